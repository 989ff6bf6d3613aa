"""Compaction: file slices with logs become base files.

``schedule`` is pure: it chooses from a view. ``request`` writes the choice down under the lock, so
that every delta commit that completed before is in the plan, and every later one belongs to the
slice that the plan opens. An ``Execution`` may be done by whoever finds the plan, Apache Hudi
included, and again after a crash; delta commits may complete meanwhile. Source:
``HoodieCompactionPlanGenerator``, ``HoodieCompactor``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakemark.errors import CorruptData
from lakemark.execution.runner import Runner
from lakemark.log.log_writers import writers_in
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_slice import FileSlice, LogFile
from lakemark.model.instant import Instant
from lakemark.services.late_compaction import check_in_time
from lakemark.storage.storage import Storage
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_compaction_plan
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.transaction.transaction import Transaction
from lakemark.view.file_system_view import FileSystemView

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


def delta_commits_uncompacted(timeline: Timeline) -> int:
    """How many delta commits no completed compaction has merged; those of a pending plan count."""
    last = max((i.requested_at for i in timeline.completed(Action.COMMIT)), default="")
    return sum((i.completed_at or "") > last for i in timeline.completed(Action.DELTA_COMMIT))


def schedule(slices: Iterable[FileSlice]) -> CompactionPlan:
    """Every slice that has logs, those with most log bytes first."""
    return CompactionPlan.of(slices)


def completed(
    plan: CompactionPlan, requested_at: str, view: FileSystemView, storage: Storage
) -> CompactionPlan:
    """The plan with every file of the slices that it takes.

    Who planned may have trusted a metadata table that lacked a commit. The files of that commit
    belong to the slices that the compaction ends, and their rows would be gone with these. Apache
    Hudi does not look. In table version 6 a slice may have logs that need not count, so those are
    added that hold rows of completed commits: a writer that lost the lock right before it created
    the plan does not know the commits that completed until then.

    Args:
        plan: of the compaction, pending.
        requested_at: its requested time.
        view: the table's, with the compaction pending.
        storage: the table's root.
    """
    if view.version.logs_name_their_slice:
        operations = (_with_committed_logs(view, one, storage) for one in plan.operations)
        return CompactionPlan(tuple(operations))
    found = (_slice_to_rewrite(view, operation, requested_at) for operation in plan.operations)
    return CompactionPlan(
        tuple(
            operation if there is None or _has_all(operation, there) else there
            for operation, there in zip(plan.operations, found, strict=True)
        )
    )


def request(
    access: TableContext, slices_at: Callable[[Timeline], Iterable[FileSlice]]
) -> tuple[Instant, CompactionPlan] | None:
    """Write a plan down; None when no slice has logs, or, in version 6, while somebody writes.

    Args:
        access: the table.
        slices_at: the latest slices as of a timeline, without those under a pending service.

    Raises:
        LeaseLost: the lock was lost before the plan was there; ``Execution.begin`` judges it.
    """
    with access.lock.hold(LOCK_WAIT_S) as lease:
        timeline = access.timeline.load()
        store = access.timeline
        if store.version.logs_name_their_slice and store.pending_writes(timeline):
            return None  # what they write names a slice that the plan would end without it
        plan = schedule(slices_at(timeline))  # model: plan compaction
        if not plan.operations:
            return None
        name = access.generate_time(timeline.newest_time, ClockSlot.SERVICE)
        requested = Instant(name, Action.COMPACTION, State.REQUESTED)
        lease.check()
        # model: request compaction
        access.timeline.create(requested, encode_compaction_plan(plan))
        lease.check()  # created late, it is for ``check_in_time`` to judge
        return requested, plan


@dataclass(frozen=True, slots=True)
class Execution:
    """A compaction that was begun: its slices are rewritten, then it is completed, or left.

    Attributes:
        instant: inflight; names this attempt.
        plan: what it rewrites.
    """

    instant: Instant
    plan: CompactionPlan
    _transaction: Transaction

    @classmethod
    def begin(
        cls,
        access: TableContext,
        pending: Instant,
        plan: CompactionPlan,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> Execution:
        """Take a plan up, whoever made it, and whoever began it before; as ``take_up``.

        Raises:
            WriteConflict: another writer is doing it, or has done it, or has removed it; or it came
                late and was removed.
        """
        check_in_time(access, pending, plan, lock_wait_s)
        transaction = Transaction.take_up(access, pending, lock_wait_s)
        return cls(transaction.instant, plan, transaction)

    def rewrite(self, rewrite: Rewrite, runner: Runner) -> list[WriteStat]:
        """Write the new base files, which no reader sees yet; touches no timeline.

        Bytes are pure functions of the plan, and names of the plan and of this attempt at it. So a
        task that runs twice finds its own file, and never one of another attempt.

        Raises:
            AttemptLost: another writer undid the compaction, and maybe deleted files of its plan.
            CorruptData: a file of the plan is damaged or gone.
        """
        name = self.instant.requested_at
        tasks = [SliceRewrite(name, operation) for operation in self.plan.operations]
        try:
            return runner.map(rewrite, tasks)  # model: rewrite
        except CorruptData:
            self._transaction.check_standing()
            raise

    def complete(
        self, stats: Sequence[WriteStat], extra_at: Callable[[Timeline], Mapping[str, str]]
    ) -> tuple[Instant, CommitMetadata, Timeline]:
        """Publish the new base files; errors as for ``Transaction.commit``.

        Args:
            stats: what ``rewrite`` wrote.
            extra_at: what else the commit says, after the commits on a timeline: those that
                completed while the slices were rewritten are among them.
        """
        metadata = CommitMetadata(
            write_stats=tuple(stats), operation=Operation.COMPACT, compacted=True
        )

        def describe(timeline: Timeline) -> CommitMetadata:
            nonlocal metadata
            metadata = replace(metadata, extra_metadata=extra_at(timeline))
            return metadata

        completed, timeline = self._transaction.commit(metadata, describe=describe)
        return completed, metadata, timeline

    def leave(self) -> None:
        """Show no more signs of life; harmless once completed."""
        self._transaction.leave()


def _with_committed_logs(
    view: FileSystemView, operation: CompactionOperation, storage: Storage
) -> CompactionOperation:
    """The operation, with logs of its slice that completed commits wrote."""
    group = view.groups.get(operation.group)
    slices = group.slices if group else ()
    planned = next((s for s in slices if s.base_instant == operation.base_instant), None)
    logs = planned.logs if planned else ()
    missing = [log for log in logs if str(log.name) not in operation.log_files]
    counted = [log for log in missing if _is_committed(log, view.timeline, storage)]
    return replace(
        operation,
        log_files=(*operation.log_files, *(str(log.name) for log in counted)),
        log_bytes=operation.log_bytes + sum(log.size_bytes for log in counted),
    )


def _is_committed(log: LogFile, timeline: Timeline, storage: Storage) -> bool:
    return any(timeline.is_committed(writer) for writer in writers_in(storage, log))


def _slice_to_rewrite(
    view: FileSystemView, operation: CompactionOperation, requested_at: str
) -> CompactionOperation | None:
    """What a plan of that time has to say of a group: the newest slice that began before."""
    group = view.groups.get(operation.group)
    before = [s for s in group.slices if s.base_instant < requested_at] if group else []
    return CompactionOperation.of(before[-1]) if before else None


def _has_all(operation: CompactionOperation, there: CompactionOperation) -> bool:
    is_same_base = there.data_file is None or operation.data_file == there.data_file
    return is_same_base and set(there.log_files) <= set(operation.log_files)
