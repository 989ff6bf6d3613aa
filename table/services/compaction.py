"""Compaction: file slices with logs become base files.

``schedule`` is pure: it chooses from a view. ``request`` writes the choice down under the lock, so
that every delta commit that completed before is in the plan, and every later one belongs to the
slice that the plan opens. ``execute`` may be done by whoever finds the plan, Apache Hudi included,
and again after a crash. Source: ``HoodieCompactionPlanGenerator``, ``HoodieCompactor``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from table.execution.runner import Runner
from table.model.action import Action, State
from table.model.commit_metadata import CommitMetadata, Operation, WriteStat
from table.model.compaction_plan import CompactionOperation, CompactionPlan
from table.model.file_slice import FileSlice
from table.model.instant import Instant
from table.timeline.clock import Turn, next_instant
from table.timeline.timeline import Timeline
from table.timeline.timeline_store import compaction_plan_content
from table.transaction.access import LOCK_WAIT_S, TableAccess
from table.transaction.transaction import Transaction

#: Rewrites one slice; given the compaction's instant.
Rewrite = Callable[["SliceRewrite"], WriteStat]


@dataclass(frozen=True, slots=True)
class SliceRewrite:
    """One slice to rewrite, in the name of a compaction."""

    instant: str
    operation: CompactionOperation


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When to compact: after so many delta commits (Apache's default is 5)."""

    every_delta_commits: int = 5


def is_due(timeline: Timeline, policy: CompactionPolicy) -> bool:
    """Whether enough delta commits completed since the last compaction was requested."""
    return delta_commits_since_compaction(timeline) >= policy.every_delta_commits


def delta_commits_since_compaction(timeline: Timeline) -> int:
    """How many delta commits completed since the last compaction was requested."""
    compactions = [*timeline.pending(Action.COMPACTION), *timeline.completed(Action.COMMIT)]
    last = max((i.requested_at for i in compactions), default="")
    return sum((i.completed_at or "") > last for i in timeline.completed(Action.DELTA_COMMIT))


def schedule(slices: Iterable[FileSlice]) -> CompactionPlan:
    """Every slice that has logs, those with most log bytes first."""
    return CompactionPlan.of(slices)


def request(
    access: TableAccess, slices_at: Callable[[Timeline], Iterable[FileSlice]]
) -> tuple[Instant, CompactionPlan] | None:
    """Write a plan down; None when no slice has logs.

    Args:
        access: the table.
        slices_at: the latest slices as of a timeline, without those under a pending service.
    """
    with access.lock.hold(LOCK_WAIT_S) as lease:
        timeline = access.timeline.load()
        plan = schedule(slices_at(timeline))
        if not plan.operations:
            return None
        requested = Instant(
            next_instant(timeline.newest_time, Turn.SERVICE), Action.COMPACTION, State.REQUESTED
        )
        lease.check()
        access.timeline.create(requested, compaction_plan_content(plan))
        if access.sharing is not None:
            access.sharing.let_clocks_pass()
        return requested, plan


def execute(
    access: TableAccess,
    pending: Instant,
    plan: CompactionPlan,
    rewrite: Rewrite,
    runner: Runner,
    extra_metadata: Mapping[str, str],
) -> tuple[Instant, CommitMetadata, Timeline]:
    """Rewrite the plan's slices and publish the new base files.

    Names and bytes are pure functions of the plan, so a second execution after a crash finds its
    own files and goes on.
    """
    transaction = Transaction.take_up(access, pending, access.timeline.load())
    tasks = [SliceRewrite(pending.requested_at, operation) for operation in plan.operations]
    try:
        stats = runner.map(rewrite, tasks)
        metadata = CommitMetadata(
            tuple(stats), extra_metadata, operation=Operation.COMPACT, compacted=True
        )
        completed, timeline = transaction.commit(metadata)
    finally:
        transaction.leave()
    return completed, metadata, timeline
