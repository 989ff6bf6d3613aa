"""Compacts logs: merges the logs of a file slice into one log, without reading the base file.

This takes less time than a compaction, and queries merge fewer changes afterwards. The base file
and the file slice stay the same, and so do the logs, which queries of the past read. A log
compaction completes as a delta commit. Any writer, including Apache Hudi, may execute a plan, and
may execute it again after a crash.

A plan is made while no write is pending. So the plan includes all logs of each slice, and every
later log is read after the new one, also by readers that do not skip the replaced blocks.

Apache Hudi compacts slices of a pending log compaction. Then the plan of the log compaction is out
of date. Its log must not be published, because readers that do not skip the replaced blocks would
read it after the new base file, which may have later rows. lakemark removes such a plan, and leaves
out file groups that a pending clustering will replace. Source:
``HoodieLogCompactionPlanGenerator``, ``HoodieCompactor.logCompact`` of Apache Hudi 1.2.0. When one
is due: ``ScheduleCompactionActionExecutor``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.instant import Instant
from lakemark.services.planned_files import planned_slice
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_compaction_plan
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.write.compacted_log import write_compacted_log
from lakemark.write.write_context import WriteContext

#: By default, slices with at least this number of logs are planned
#: (``hoodie.log.compaction.blocks.threshold``).
MIN_LOGS = 5


def is_log_compaction_due(
    timeline: Timeline, read_commit: Callable[[Instant], CommitMetadata], min_logs: int
) -> bool:
    """Return whether enough delta commits completed since the last compaction of either kind.

    Args:
        timeline: the active timeline.
        read_commit: returns the metadata of a completed commit.
        min_logs: the number of delta commits.
    """
    planned = timeline.pending(Action.COMPACTION, Action.LOG_COMPACTION)
    plans = [*planned, *timeline.completed(Action.COMMIT)]
    last = max((instant.requested_at for instant in plans), default="")
    since = [i for i in timeline.completed(Action.DELTA_COMMIT) if (i.completed_at or "") > last]
    newest = since[-min_logs:]
    return len(newest) == min_logs and all(
        read_commit(instant).operation != Operation.LOG_COMPACT for instant in newest
    )


def request_log_compaction(
    context: TableContext, slices_at: Callable[[Timeline], Iterable[FileSlice]]
) -> tuple[Instant, CompactionPlan] | None:
    """Write a plan to the timeline; None if there are no slices, or while a write is pending.

    Args:
        context: the table.
        slices_at: returns the slices to plan as of a timeline. A pending service must not rewrite
            them.

    Raises:
        LeaseLost: the lock was lost; the plan may exist.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        if context.timeline.pending_writes(timeline):
            return None
        plan = CompactionPlan.of(slices_at(timeline), is_of_logs=True)
        if not plan.operations:
            return None
        name = context.generate_time(timeline.newest_time, ClockSlot.SERVICE)
        requested = Instant(name, Action.LOG_COMPACTION, State.REQUESTED)
        lease.check()
        context.timeline.create(requested, encode_compaction_plan(plan))
        lease.check()
        return requested, plan


def current_operations(
    plan: CompactionPlan, current: Mapping[FileGroupId, FileSlice]
) -> tuple[CompactionOperation, ...]:
    """Return the operations whose slices are still the newest of their file groups.

    Args:
        plan: the plan.
        current: the slice of each file group to which a commit would write now.
    """
    return tuple(one for one in plan.operations if _is_current(one, current.get(one.group)))


@dataclass(frozen=True)
class LogRewriter:
    """Merges the logs of the slices of one log compaction in a worker; can be pickled.

    Attributes:
        context: write context of the log compaction; new logs are named after its instant.
        log_sizes: see ``recorded_log_sizes``.
    """

    context: WriteContext
    log_sizes: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, operation: CompactionOperation) -> list[WriteStat]:
        """Write the log of one slice; nothing if its logs contain no changes."""
        names = [operation.data_file] if operation.data_file else []
        planned = planned_slice(
            operation.group,
            operation.base_instant,
            [*names, *operation.log_files],
            self.context.storage,
            self.log_sizes,
        )
        return write_compacted_log(self.context, planned)


def _is_current(operation: CompactionOperation, newest: FileSlice | None) -> bool:
    logs = newest.logs if newest else ()
    return set(operation.log_files) <= {str(log.name) for log in logs}
