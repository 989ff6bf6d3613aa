"""Compacts file slices: merges the base file and logs of each slice into a new base file.

``request_compaction`` writes a plan to the timeline under the lock. So the plan includes every
delta commit that completed earlier, and every later delta commit writes to the slices that the plan
opens. The execution of the plan rewrites the slices and publishes the new base files. Any writer,
including Apache Hudi, may execute a plan, and may execute it again after a crash. Delta commits may
complete while the plan is executed. Source: ``HoodieCompactor`` of Apache Hudi 1.2.0.

A plan may be created late. A writer may be suspended right before it creates the plan, and lose the
table's lock. When it resumes, it creates the plan, although other writers may have compacted or
cleaned the files that the plan names, or restored the table. If that writer dies, the next writer
that finds the plan removes it. To see that a plan was created late, the writer looks for these
changes after the plan's requested time: a file group of the plan was compacted, a file of the plan
was deleted, the table was restored, or newer instants were archived. No writer makes such a change
while a plan exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakemark.errors import WriteConflict
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileSlice, join
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import FILE_NAME
from lakemark.services.plan_execution import PlanExecution
from lakemark.services.plan_removal import remove_plan
from lakemark.services.planned_files import planned_slice
from lakemark.services.slice_choice import ALL_SLICES, SliceChoice
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_compaction_plan
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.write.file_group_write import write_base_file
from lakemark.write.write_context import WriteContext

#: Stored size of a slice that is merged without a thread of its own. Its rows are mostly one batch,
#: so that nothing could be merged while they are encoded.
_SMALL_BYTES = 4 << 20


def request_compaction(
    context: TableContext,
    slices_at: Callable[[Timeline], Iterable[FileSlice]],
    choice: SliceChoice = ALL_SLICES,
) -> tuple[Instant, CompactionPlan] | None:
    """Write a plan to the timeline; None if no chosen slice has logs.

    The result is also None if a write is pending in a table of version 6.

    Args:
        context: the table.
        slices_at: returns the latest slices as of a timeline, without slices of pending services.
        choice: which of them the plan contains.

    Raises:
        LeaseLost: the lock was lost before the plan was created. If the plan was created after
            that, ``begin_compaction`` removes it.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        store = context.timeline
        if store.version.logs_name_their_slice and store.pending_writes(timeline):
            return None  # the plan would close the slices to which these writes add logs
        plan = CompactionPlan.of(choice.choose(slices_at(timeline)))  # model: plan compaction
        if not plan.operations:
            return None
        name = context.generate_time(timeline.newest_time, ClockSlot.SERVICE)
        requested = Instant(name, Action.COMPACTION, State.REQUESTED)
        lease.check()
        # model: request compaction
        context.timeline.create(requested, encode_compaction_plan(plan))
        lease.check()  # if the plan was created late, ``_check_in_time`` finds it
        return requested, plan


def begin_compaction(
    context: TableContext, pending: Instant, plan: CompactionPlan, lock_wait_s: float
) -> PlanExecution[CompactionPlan]:
    """Begin an attempt to execute a plan, which any writer may have made and tried before.

    The arguments are those of ``PlanExecution.begin``.

    Raises:
        WriteConflict: another writer is executing the plan, or has completed or removed it; or the
            plan was created late and has been removed.
    """
    _check_in_time(context, pending, plan, lock_wait_s)
    return PlanExecution.begin(context, pending, plan, lock_wait_s)


@dataclass(frozen=True)
class SliceRewriter:
    """Rewrites the slices of one compaction in a worker; can be pickled.

    Attributes:
        context: write context of the compaction; new files are named after its instant.
        log_sizes: see ``recorded_log_sizes``.
    """

    context: WriteContext
    log_sizes: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, operation: CompactionOperation) -> WriteStat:
        """Merge one slice and write its base file; winning rows keep their commit time."""
        context = self.context
        names = [operation.data_file] if operation.data_file else []
        file_slice = planned_slice(
            operation.group,
            operation.base_instant,
            [*names, *operation.log_files],
            context.storage,
            self.log_sizes,
        )
        # Every row gets the new file's name, so the old names are not read. A name takes as much
        # memory as a short row.
        kept = [name for name in context.schema.names if name != FILE_NAME]
        merged = context.reader.merge(file_slice, kept)
        stat = write_base_file(
            context,
            file_slice.group,
            merged,
            replaces=file_slice,
            reads_ahead=file_slice.size_bytes > _SMALL_BYTES,
        )
        return replace(
            stat,
            total_log_files_compacted=len(file_slice.logs),
            total_log_size_compacted=file_slice.log_bytes,
        )


def _check_in_time(
    context: TableContext, pending: Instant, plan: CompactionPlan, lock_wait_s: float
) -> None:
    """Check that a plan may be executed; a plan that was created late is removed.

    Args:
        context: the table.
        pending: the instant of the compaction.
        plan: the plan of the compaction.
        lock_wait_s: how long to wait for the table's lock.

    Raises:
        WriteConflict: the plan was created late, or another writer has completed or removed it.
        LockTimeout: another writer kept the lock.
        SnapshotChanged, CorruptData: the archive could not be read; see ``Timeline.completed_at``.
    """
    timeline = context.timeline.load()
    current = timeline.find(pending.requested_at)
    if current is None or current.is_completed:
        message = f"{pending} was completed or removed by another writer"
        raise WriteConflict(message)
    reason = _reason_late(pending, plan, timeline, context.timeline)
    if not reason:
        return
    if not timeline.has_reappeared(pending) and _is_followed(context, pending, plan):
        return
    remove_plan(context, pending, reason, lock_wait_s)


def _reason_late(
    pending: Instant, plan: CompactionPlan, timeline: Timeline, store: TimelineStore
) -> str:
    """Return why a plan must have been created late; an empty text if there is no such reason."""
    name = pending.requested_at
    newer = next((i for i in timeline.completed() if i.action.is_write), None)
    if timeline.has_history and newer is not None and name < newer.requested_at:
        return f"the instants before {newer} were archived"
    later = (i for i in timeline.completed() if (i.completed_at or "") > name)
    return next((f"{i} came after it" for i in later if _contradicts(i, name, plan, store)), "")


def _contradicts(done: Instant, name: str, plan: CompactionPlan, store: TimelineStore) -> bool:
    """Return whether a completed instant shows that the plan was created late.

    While the plan exists, no writer begins such an instant.
    """
    if done.action is Action.RESTORE:
        return True
    if done.action is Action.ROLLBACK:
        gone = store.read_rollback(done).files
        return not _files(plan).isdisjoint(_names(gone))
    if done.action is Action.CLEAN and done.requested_at > name:
        planned = store.read_clean_plan(done.requested_at)
        return planned is not None and not _files(plan).isdisjoint(planned.paths)
    if done.action is not Action.COMMIT or done.requested_at < name:
        return False
    metadata = store.read_commit(done)
    groups = {(one.group.partition_path, one.group.file_id) for one in plan.operations}
    written = {(stat.partition_path or "", stat.file_id) for stat in metadata.write_stats}
    return metadata.compacted and not groups.isdisjoint(written)


def _is_followed(context: TableContext, pending: Instant, plan: CompactionPlan) -> bool:
    """Return whether logs were written to the slices that the plan opens; only in table version 6.

    In later versions the names of logs do not show this, so the result is False.
    """
    if not context.timeline.version.logs_name_their_slice:
        return False
    folders = {one.group.partition_path for one in plan.operations}
    objects = (info for folder in folders for info in context.storage.list_folder(folder)[1])
    logs = (LogFileName.parse(info.name) for info in objects)
    return any(log is not None and log.instant == pending.requested_at for log in logs)


def _files(plan: CompactionPlan) -> set[str]:
    return {
        join(one.group.partition_path, name)
        for one in plan.operations
        for name in (one.data_file, *one.log_files)
        if name
    }


def _names(files: Mapping[str, Sequence[str]]) -> set[str]:
    return {
        join(folder, path.rpartition("/")[2]) for folder, paths in files.items() for path in paths
    }
