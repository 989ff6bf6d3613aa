"""Whether a metadata table tells of every commit and clean of its data table, and of nothing else.

A commit that it lacks hides the commit's rows, a clean that it lacks shows files that are gone, and
so does a commit that it has beyond the data table's. None of them may be trusted, and none mends
itself. Rollbacks and restores are not asked for: Apache Hudi 1.2.0 tells a metadata table of those
under times of its own, and what they took back must not be there any more.
"""

from __future__ import annotations

from dataclasses import replace

from lakemark.metadata.valid_instants import INITIAL, MILLIS_DIGITS, first_initial
from lakemark.model.action import COMMITS, Action
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline

#: What a metadata table is told of under the same time.
TOLD = (*COMMITS, Action.CLEAN)

_NO_MILLIS = "000"


def disagreement(data: Timeline, metadata: Timeline) -> str | None:
    """What is wrong with a metadata table by its timeline; None when nothing is.

    Args:
        data: the data table's timeline, without others writing meanwhile.
        metadata: the metadata table's.
    """
    missing = next((i for i in _must_have(data, metadata) if not _has(metadata, i)), None)
    if missing is not None:
        return f"it lacks {missing.action} {missing.requested_at}"
    stranger = next(iter(_strangers(data, metadata)), None)
    if stranger is not None:
        return f"it has commit {stranger}, which the table has not"
    return None


def disagreement_for_readers(data: Timeline, metadata: Timeline) -> str | None:
    """The same while others write.

    Args:
        data: the data table's timeline, loaded before ``metadata`` was. A commit is told first, so
            all that it shows must be there; what was requested since does not count yet.
        metadata: the metadata table's.
    """
    newest = data.newest_time or ""
    seen = [i for i in metadata.instants if i.requested_at <= newest]
    return disagreement(data, replace(metadata, instants=tuple(seen)))


def _must_have(data: Timeline, metadata: Timeline) -> list[Instant]:
    """What completed after the metadata table was made, and has not left its timeline."""
    told, made = data.completed(*TOLD), first_initial(metadata)
    if made is None:
        start = metadata.start or ""
        return [i for i in told if i.requested_at > start]
    listed_at = made.completed_at or "9"
    if made.is_legacy and listed_at.endswith(_NO_MILLIS):
        # A store that tells times to the second: what completed in that one may be older.
        listed_at = listed_at.removesuffix(_NO_MILLIS) + "999"
    return [i for i in told if (i.completed_at or "") > listed_at]


def _has(metadata: Timeline, instant: Instant) -> bool:
    found = metadata.find(instant.requested_at)
    return found is not None and found.is_completed


def _strangers(data: Timeline, metadata: Timeline) -> list[str]:
    """Commits that no instant of the data table has; those of a restore have times of their own."""
    start, restores = data.start, data.completed(Action.RESTORE)
    return [
        i.requested_at
        for i in metadata.completed(Action.DELTA_COMMIT)
        if not i.requested_at.startswith(INITIAL)
        and data.find(i.requested_at[:MILLIS_DIGITS]) is None
        and (start is None or i.requested_at > start)
        and not any(r.requested_at < i.requested_at < (r.completed_at or "") for r in restores)
        # Cleans of version 6 are archived before older commits are; so is what follows a savepoint.
        and data.archived_time(i.requested_at[:MILLIS_DIGITS]) is None
    ]
