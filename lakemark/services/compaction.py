"""Compaction: file slices with logs become base files.

``request_compaction`` writes a plan to the timeline under the lock. So every delta commit that
completed before is in the plan, and every later one belongs to the slice that the plan opens. A
``CompactionExecution`` rewrites the slices and publishes the new base files. Any writer may execute
a plan, Apache Hudi included, and again after a crash. Delta commits may complete meanwhile. Source:
``HoodieCompactor`` of Apache Hudi 1.2.0.

A plan may appear late. A writer may be paused right before it creates the plan, lose the table's
lock, and create the plan after others have compacted, cleaned or restored what it names. If that
writer dies, another writer that finds the plan removes it. Others would not have compacted a file
group of the plan, deleted a file of it, restored the table, or archived newer instants while the
plan existed: any of these shows that the plan came late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakemark.errors import CorruptData, WriteConflict
from lakemark.execution.runner import Runner
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile, join
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import FILE_NAME
from lakemark.storage import Storage
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_compaction_plan
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.heartbeat import forget_heartbeat
from lakemark.transaction.multi_writer import has_heartbeat
from lakemark.transaction.rollback import roll_back_named
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.transaction.transaction import Transaction
from lakemark.view.file_lister import DataFile, data_file
from lakemark.write.file_group_write import write_base_file
from lakemark.write.write_context import WriteContext

#: Rewrites one slice in the name of the compaction.
Rewrite = Callable[[CompactionOperation], WriteStat]

_log = logging.getLogger(__name__)


def request_compaction(
    context: TableContext, slices_at: Callable[[Timeline], Iterable[FileSlice]]
) -> tuple[Instant, CompactionPlan] | None:
    """Write a plan to the timeline; None if no slice has logs, or if a v6 write is pending.

    Args:
        context: the table.
        slices_at: the latest slices as of a timeline, without those of pending services.

    Raises:
        LeaseLost: the lock was lost before the plan existed; ``CompactionExecution.begin`` removes
            a plan that came late.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        store = context.timeline
        if store.version.logs_name_their_slice and store.pending_writes(timeline):
            return None  # their logs name a slice that the plan would end without them
        plan = CompactionPlan.of(slices_at(timeline))  # model: plan compaction
        if not plan.operations:
            return None
        name = context.generate_time(timeline.newest_time, ClockSlot.SERVICE)
        requested = Instant(name, Action.COMPACTION, State.REQUESTED)
        lease.check()
        # model: request compaction
        context.timeline.create(requested, encode_compaction_plan(plan))
        lease.check()  # if it came late, ``_check_in_time`` finds it
        return requested, plan


@dataclass(frozen=True, slots=True)
class CompactionExecution:
    """A compaction that was begun: its slices are rewritten, then it is completed or abandoned.

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
        context: TableContext,
        pending: Instant,
        plan: CompactionPlan,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> CompactionExecution:
        """Begin an attempt at a plan, whichever writer made the plan or began it before.

        Raises:
            WriteConflict: another writer is executing it, or has completed or removed it; or it
                came late and was removed.
        """
        _check_in_time(context, pending, plan, lock_wait_s)
        transaction = Transaction.resume(context, pending, lock_wait_s)
        return cls(transaction.instant, plan, transaction)

    def rewrite(self, rewrite: Rewrite, runner: Runner) -> list[WriteStat]:
        """Write the new base files, which no reader sees yet; the timeline does not change.

        The content of a file depends on the plan alone, its name on the plan and this attempt. So a
        task that runs twice finds its own file, and never a file of another attempt.

        Raises:
            AttemptLost: another writer undid the compaction, and maybe deleted files of its plan.
            CorruptData: a file of the plan is damaged or missing.
        """
        try:
            return runner.map(rewrite, self.plan.operations)  # model: rewrite
        except CorruptData:
            self._transaction.check_inflight()
            raise

    def complete(
        self, stats: Sequence[WriteStat], extra_at: Callable[[Timeline], Mapping[str, str]]
    ) -> tuple[Instant, CommitMetadata, Timeline]:
        """Publish the new base files; errors as for ``Transaction.commit``.

        Args:
            stats: what ``rewrite`` wrote.
            extra_at: the extra metadata of the commit, as of a timeline that contains the commits
                that completed while the slices were rewritten.
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
        """Stop the heartbeat, so that others may execute the plan; no effect once completed."""
        self._transaction.leave()


@dataclass(frozen=True)
class SliceRewriter:
    """Rewrites the slices of one compaction, in a worker; pickles.

    Attributes:
        context: of the compaction, whose instant names the new files.
        log_sizes: see ``recorded_log_sizes``.
    """

    context: WriteContext
    log_sizes: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, operation: CompactionOperation) -> WriteStat:
        """Merge one slice and write its base file; winning rows keep their commit time."""
        context = self.context
        file_slice = _slice_of(operation, context.storage, self.log_sizes)
        # Every row gets the new file's name. The old names are as long as some rows.
        kept = [name for name in context.schema.names if name != FILE_NAME]
        merged = context.reader.merge(file_slice, kept)
        stat = write_base_file(context, file_slice.group, merged, replaces=file_slice)
        return replace(
            stat,
            total_log_files_compacted=len(file_slice.logs),
            total_log_size_compacted=file_slice.log_bytes,
        )


def _check_in_time(
    context: TableContext, pending: Instant, plan: CompactionPlan, lock_wait_s: float
) -> None:
    """Pass if a plan may be executed; a plan that came late is removed.

    Args:
        context: the table.
        pending: the compaction.
        plan: of it.
        lock_wait_s: how long to wait for the table's lock.

    Raises:
        WriteConflict: it came late, or another writer has completed or removed it.
        LockTimeout: another writer kept the lock.
    """
    timeline = context.timeline.load()
    current = timeline.find(pending.requested_at)
    if current is None or current.is_completed:
        message = f"{pending} was completed or removed by another writer"
        raise WriteConflict(message)
    reason = _reason_late(pending, plan, timeline, context.timeline)
    if not reason or _is_followed(context, pending, plan):
        return
    if has_heartbeat(context.storage, pending, context.multi_writer):
        message = f"{pending} is being executed by another writer, whose heartbeat is alive"
        raise WriteConflict(message)
    if pending.state is State.INFLIGHT:
        roll_back_named(context, pending.requested_at)
    with context.lock.hold(lock_wait_s) as lease:
        timeline = context.timeline.load()
        check_no_restore(timeline)
        current = timeline.find(pending.requested_at)
        if current is not None and current.state is State.REQUESTED:
            lease.check()
            context.timeline.forget(current)
            forget_heartbeat(context.storage, pending.requested_at)  # of an executor that died
    _log.warning("%s was removed without being executed: %s", pending, reason)
    message = f"{pending} was removed: {reason}"
    raise WriteConflict(message)


def _reason_late(
    pending: Instant, plan: CompactionPlan, timeline: Timeline, store: TimelineStore
) -> str:
    """Return why a plan is known to have come late; empty if it is not."""
    name = pending.requested_at
    newer = next((i for i in timeline.completed() if i.action.is_write), None)
    if timeline.has_history and newer is not None and name < newer.requested_at:
        return f"what came before {newer} was archived"
    later = (i for i in timeline.completed() if (i.completed_at or "") > name)
    return next((f"{i} came after it" for i in later if _contradicts(i, name, plan, store)), "")


def _contradicts(done: Instant, name: str, plan: CompactionPlan, store: TimelineStore) -> bool:
    """Return whether a completed instant would not have begun while the plan existed."""
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
    """Return whether logs are named after the slice that the plan opens, as in table version 6."""
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


def recorded_log_sizes(
    plan: CompactionPlan, timeline: Timeline, store: TimelineStore
) -> dict[str, int]:
    """Return the sizes of a plan's logs that their commits recorded, in bytes by path.

    A reader takes a log that was cut for one whose writer died, and passes over its last block. A
    compaction of it would lose the rows for good, because nothing reads the log afterwards. The
    logs of archived commits are not included.
    """
    paths = {
        join(one.group.partition_path, name) for one in plan.operations for name in one.log_files
    }
    logs = (LogFileName.parse(path.rpartition("/")[2]) for path in paths)
    wrote = {log.instant for log in logs if log is not None}
    commits = (
        commit
        for commit in timeline.completed(Action.DELTA_COMMIT)
        if store.version.logs_name_their_slice or commit.requested_at in wrote
    )
    stats = (stat for commit in commits for stat in store.read_commit(commit).write_stats)
    return {stat.path: stat.file_size_in_bytes for stat in stats if stat.path in paths}


def _slice_of(
    operation: CompactionOperation, storage: Storage, log_sizes: Mapping[str, int]
) -> FileSlice:
    """Return the slice that a plan names, whatever was written to its group since.

    Raises:
        CorruptData: the plan names something that is not a data file, or a missing file, or a log
            that is smaller than its commit recorded.
    """
    group = operation.group
    names = [operation.data_file] if operation.data_file else []
    files = [_file(group, name, storage) for name in (*names, *operation.log_files)]
    for file in files:
        if file.size_bytes < log_sizes.get(file.path, 0):
            expected = f"{log_sizes[file.path]} bytes, which its commit wrote"
            raise CorruptData(file.path, None, expected, f"{file.size_bytes} bytes")
    bases = [file for file in files if isinstance(file, BaseFile)]
    logs = tuple(file for file in files if isinstance(file, LogFile))
    return FileSlice(group, operation.base_instant, bases[0] if bases else None, logs)


def _file(group: FileGroupId, name: str, storage: Storage) -> DataFile:
    """Return a file of a plan with its real size: without the size a log would be read as empty."""
    info = storage.head(join(group.partition_path, name))
    file = data_file(group.partition_path, name, info.size_bytes) if info else None
    if file is None:
        place = f"compaction plan of {group}"
        raise CorruptData(place, None, f"a data file {name!r}", "no such file")
    return file
