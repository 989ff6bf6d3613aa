"""Chooses which instants of a timeline to archive; reads no files.

If more than the maximum number of completed commits are active, the oldest are archived until the
minimum number remains. The cleans and rollbacks between them are archived, too, and from table
version 8 on the restores and indexing actions. The first instant that is still needed stays active,
and so do all later instants. Savepoints are never archived. Source: ``TimelineArchiverV2``,
``ArchivalUtils``, ``CompactionUtils`` of Apache Hudi 1.2.0. Unlike lakemark, Apache Hudi archives
no restore and no indexing action, and does not keep commits that completed during a pending write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lakemark.errors import InvalidConfig
from lakemark.model.action import Action
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.services.cleaning_plan import CleaningPolicy, commits_by_request, earliest_retained
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.timeline import Timeline

#: Actions that are archived together with the commits around them in table version 6. Apache Hudi
#: archives no others in any version.
_FOLLOWING_IN_V6 = (Action.CLEAN, Action.ROLLBACK)

#: The same from table version 8 on, where no active instant may be older than an archived commit.
#: Otherwise queries of Apache Hudi take the commit for a pending one, and add its logs to the
#: newest file slice. They were seen to return the old row of an updated key after an index had been
#: created. In table version 6, the name of a log contains its file slice.
_FOLLOWING = (*_FOLLOWING_IN_V6, Action.RESTORE, Action.INDEXING)

#: With one file, the merge of a layer would move the file to the next layer, and never end.
FEWEST_FILES_TO_MERGE = 2


@dataclass(frozen=True, slots=True)
class ArchivalPolicy:
    """How long the active timeline may be; the defaults are those of Apache Hudi.

    Attributes:
        min_commits: how many completed commits stay active (``hoodie.keep.min.commits``).
        max_commits: archival begins if more completed commits are active
            (``hoodie.keep.max.commits``).
        delta_commits_to_compact: this many delta commits since the last compaction stay active,
            because the compaction trigger counts them
            (``hoodie.compact.inline.max.delta.commits``); None if it counts none.
        files_to_merge: how many files of the archive are merged into one file, in table version 8
            and later (``hoodie.timeline.compaction.batch.size``).

    Raises:
        InvalidConfig: ``min_commits`` is not below ``max_commits``, or fewer than two files are to
            be merged.
    """

    min_commits: int = 20
    max_commits: int = 30
    delta_commits_to_compact: int | None = 5
    files_to_merge: int = 10

    def __post_init__(self) -> None:
        if not 0 < self.min_commits < self.max_commits:
            message = (
                f"at most {self.max_commits} active commits and at least {self.min_commits}: the "
                "maximum must be larger than the minimum, and the minimum larger than 0"
            )
            raise InvalidConfig(message)
        if self.files_to_merge < FEWEST_FILES_TO_MERGE:
            message = (
                f"{self.files_to_merge} files of the archive cannot be merged into one; merge at "
                f"least {FEWEST_FILES_TO_MERGE}"
            )
            raise InvalidConfig(message)

    def with_commits_of_cleaning(
        self, cleaning: CleaningPolicy | None, timeline: Timeline, clock: TimelineClock
    ) -> ArchivalPolicy:
        """Return a policy that also keeps the commits that a cleaning policy needs, plus one."""
        commits = commits_by_request(timeline)
        if cleaning is None or not commits:
            return self
        newest = clock.parse(commits[-1].requested_at)
        earliest = earliest_retained(timeline, cleaning, newest, clock)
        if earliest is None:
            return self
        needed = 2 + sum(i.requested_at > earliest.requested_at for i in commits)
        more = max(0, needed - self.min_commits)
        return replace(
            self, min_commits=self.min_commits + more, max_commits=self.max_commits + more
        )


def is_due(timeline: Timeline, policy: ArchivalPolicy) -> bool:
    """Return whether more commits have completed than may be active."""
    return len(commits_by_request(timeline)) > policy.max_commits


def plan(
    timeline: Timeline,
    policy: ArchivalPolicy,
    version: FormatVersion,
    keep_from: Iterable[str] = (),
) -> tuple[Instant, ...]:
    """Return the completed instants to archive, oldest first, if any.

    Args:
        timeline: the active timeline.
        policy: how many commits stay active.
        version: the version of the table.
        keep_from: requested times; instants from the earliest of these times on stay active.
    """
    commits = commits_by_request(timeline)
    if not is_due(timeline, policy):
        return ()
    first_kept = commits[len(commits) - policy.min_commits].requested_at
    needed = (instant for instant, _ in needed_on(timeline, policy, version))
    end = _before_indexing(timeline, min([first_kept, *keep_from, *needed]))
    chosen = [i for i in commits if i.requested_at < end]
    if not chosen:
        return ()
    last = chosen[-1].requested_at
    following = _FOLLOWING_IN_V6 if version.logs_name_their_slice else _FOLLOWING
    chosen += [i for i in timeline.completed(*following) if i.requested_at < last]
    return tuple(sorted(chosen, key=lambda i: (i.requested_at, i.action)))


def _before_indexing(timeline: Timeline, first_kept: str) -> str:
    """Return the first instant that stays active if ``first_kept`` and all later ones stay.

    An indexing action stays if it completed after the request of ``first_kept``. Its index may
    contain the rows of that commit, so a rollback of the commit must find the action
    (``undo_checks.was_built_since``).
    """
    indexing = sorted(timeline.completed(Action.INDEXING), key=lambda i: i.requested_at)
    for built in reversed(indexing):
        if built.requested_at < first_kept < (built.completed_at or ""):
            first_kept = built.requested_at
    return first_kept


def limit_of_metadata_table(data_timeline: Timeline) -> list[str]:
    """Return the first instant that a metadata table keeps, if any.

    The metadata table's timeline must reach as far back as the data table's timeline. A savepoint
    has no instant there. A pending one, whose process died, would stop archival for good.

    Args:
        data_timeline: the data table's active timeline.
    """
    waiting = (i for i in data_timeline.pending() if i.action is not Action.SAVEPOINT)
    pending = (i.requested_at for i in waiting)
    return sorted([*pending, *([data_timeline.start] if data_timeline.start else [])])[:1]


def needed_on(
    timeline: Timeline, policy: ArchivalPolicy, version: FormatVersion
) -> Iterator[tuple[str, str]]:
    """Yield the instants that other instants of the timeline need, each with the reason as text."""
    for one in _before_pending(timeline):
        yield one, "a write is pending"
    if not version.logs_name_their_slice:
        # No archived commit may be newer than an active instant; see ``_FOLLOWING``.
        for pending in _pending_services(timeline):
            yield pending.requested_at, f"{pending} has not completed"
    for saved in timeline.completed(Action.SAVEPOINT):
        yield saved.requested_at, f"there is a savepoint of {saved.requested_at}"
    if policy.delta_commits_to_compact is not None:
        for one in _for_compaction(timeline, policy.delta_commits_to_compact):
            yield one, "the next compaction counts the delta commits since the last one"


def _pending_services(timeline: Timeline) -> Iterator[Instant]:
    """Yield the pending instants that are no writes; ``archive`` deletes pending savepoints."""
    for pending in timeline.pending():
        if not pending.action.is_write and pending.action is not Action.SAVEPOINT:
            yield pending


def _before_pending(timeline: Timeline) -> Iterator[str]:
    """Yield the commits that stay active because of the oldest pending write.

    One is the newest commit before the pending write, because the timeline must not start with a
    pending instant. The others are older commits that completed after the write was requested,
    because its writer looks for conflicts on the active timeline only. Apache Hudi does not keep
    these commits, and was seen to create a second file group of a bucket.
    """
    pending = next((i for i in timeline.pending() if i.action.is_write), None)
    if pending is None:
        return
    older = [i for i in commits_by_request(timeline) if i.requested_at < pending.requested_at]
    yield older[-1].requested_at if older else pending.requested_at
    yield from (i.requested_at for i in older if (i.completed_at or "") > pending.requested_at)


def _for_compaction(timeline: Timeline, delta_commits: int) -> Iterator[str]:
    """Yield the oldest instant that the compaction trigger needs.

    The trigger counts the delta commits since the last compaction, up to ``delta_commits``. So it
    needs the newest ``delta_commits`` of them. If there are fewer, it needs the last compaction.
    """
    deltas = [i for i in commits_by_request(timeline) if i.action is Action.DELTA_COMMIT]
    if not deltas:
        return
    compactions = timeline.completed(Action.COMMIT)
    last = max((i.requested_at for i in compactions), default=None)
    since = [i.requested_at for i in deltas if last is None or (i.completed_at or "") > last]
    if len(since) >= delta_commits:
        yield since[-delta_commits]
    else:
        yield last if last is not None else deltas[0].requested_at
