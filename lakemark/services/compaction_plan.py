"""Decides when a compaction is due.

Source: ``ScheduleCompactionActionExecutor.needCompact`` and ``CompactionTriggerStrategy`` of Apache
Hudi 1.2.0, which counts commits and measures the time since the last compaction, and knows no limit
of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from lakemark.errors import InvalidConfig
from lakemark.model.action import Action
from lakemark.model.file_slice import FileSlice
from lakemark.services.slice_choice import SliceChoice
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.timeline import Timeline


class DueWhen(StrEnum):
    """How several limits are combined.

    Attributes:
        ANY: a compaction is due when one of them is reached (``NUM_OR_TIME``).
        ALL: a compaction is due when all of them are reached (``NUM_AND_TIME``).
    """

    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When a compaction is due. Without any limit, it always is.

    Attributes:
        after_commits: this many delta commits completed since the last compaction was requested
            (``hoodie.compact.inline.max.delta.commits``; 5 by default, as in Apache Hudi); None for
            no such limit.
        after: the oldest log is this old; None for no such limit. See ``backlog_since``.
        after_log_bytes: the logs that a plan may contain are together this large; None for no such
            limit.
        when: whether one of the limits must be reached, or all of them.

    Raises:
        InvalidConfig: a limit is not positive.
    """

    after_commits: int | None = 5
    after: timedelta | None = None
    after_log_bytes: int | None = None
    when: DueWhen = DueWhen.ANY

    def __post_init__(self) -> None:
        positive = [
            limit is None or limit > 0 for limit in (self.after_commits, self.after_log_bytes)
        ]
        if not all(positive) or (self.after is not None and self.after <= timedelta(0)):
            message = (
                f"a compaction cannot be due after {self.after_commits} commits, a time of "
                f"{self.after} and {self.after_log_bytes} bytes of logs; use positive limits"
            )
            raise InvalidConfig(message)


#: A compaction is due whenever there are logs.
ALWAYS = CompactionPolicy(after_commits=None)


@dataclass(frozen=True, slots=True)
class TableBacklog:
    """What a table accumulated since its compactions, at one moment.

    Attributes:
        timeline: the active timeline.
        free_slices: returns the newest slices that no pending service will rewrite; called only if
            a limit needs them.
        logs_name_their_slice: whether the names of logs contain the time of their slice, and not
            that of their commit, as in table version 6.
        clock: the clock of the timeline.
        now: the current time.
    """

    timeline: Timeline
    free_slices: Callable[[], Iterable[FileSlice]]
    logs_name_their_slice: bool
    clock: TimelineClock
    now: datetime

    def age(self, slices: Sequence[FileSlice]) -> timedelta | None:
        """Return the age of the oldest log of some slices; None if it is older than is known."""
        since = backlog_since(self.timeline, slices, self.logs_name_their_slice)
        return None if since is None else self.now - self.clock.parse(since)


def is_due(policy: CompactionPolicy, choice: SliceChoice, backlog: TableBacklog) -> bool:
    """Return whether a compaction of chosen slices should be planned."""
    reached = list(_limits_reached(policy, choice, backlog))
    return all(reached) if policy.when is DueWhen.ALL else any(reached) or not reached


def backlog_since(
    timeline: Timeline, slices: Sequence[FileSlice], logs_name_their_slice: bool
) -> str | None:
    """Return the time of the oldest log; None if it is older than the active timeline.

    In table version 6, the names of logs do not contain the times of their commits. Then the result
    is the time of the last compaction's request or, if there was none, of the first delta commit.

    Args:
        timeline: the active timeline.
        slices: slices with logs, at least one.
        logs_name_their_slice: see ``TableBacklog``.
    """
    if not logs_name_their_slice:
        return min(log.name.instant for one in slices for log in one.logs)
    last = _last_request(timeline)
    if last or timeline.has_history:
        return last or None
    deltas = timeline.completed(Action.DELTA_COMMIT)
    return deltas[0].requested_at if deltas else None


def delta_commits_since_compaction(timeline: Timeline) -> int:
    """Return how many delta commits completed since the last compaction was requested."""
    last = _last_request(timeline)
    return sum((i.completed_at or "") > last for i in timeline.completed(Action.DELTA_COMMIT))


def delta_commits_uncompacted(timeline: Timeline) -> int:
    """Return how many delta commits no completed compaction has merged; ignores pending plans."""
    last = max((i.requested_at for i in timeline.completed(Action.COMMIT)), default="")
    return sum((i.completed_at or "") > last for i in timeline.completed(Action.DELTA_COMMIT))


def _limits_reached(
    policy: CompactionPolicy, choice: SliceChoice, backlog: TableBacklog
) -> Iterator[bool]:
    """Yield for each limit of the policy whether it is reached."""
    if policy.after_commits is not None:
        yield delta_commits_since_compaction(backlog.timeline) >= policy.after_commits
    if policy.after is None and policy.after_log_bytes is None:
        return
    slices = choice.candidates(backlog.free_slices())
    if policy.after is not None:
        age = backlog.age(slices) if slices else timedelta(0)
        yield age is None or age >= policy.after
    if policy.after_log_bytes is not None:
        yield sum(one.log_bytes for one in slices) >= policy.after_log_bytes


def _last_request(timeline: Timeline) -> str:
    """Return the requested time of the last compaction; an empty text if none is active."""
    compactions = [*timeline.pending(Action.COMPACTION), *timeline.completed(Action.COMMIT)]
    return max((i.requested_at for i in compactions), default="")
