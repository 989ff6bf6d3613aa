"""Prepares the resize of buckets on local disk, and publishes the prepared files later.

The rows of a bucket are encoded while commits continue to write logs to the bucket. Nothing of this
is in the table. The changes in the logs that were added meanwhile are then prepared as logs of the
new buckets, in several rounds, each of which finds fewer changes than the round before. When the
resize is requested, the prepared files are copied to the table, after a last round. So only the
copies and the changes of the last round delay the next commit.

The new buckets have the rows that a resize without preparation would have given them: a base file
with the state as of the preparation, and a log with the later changes. A base file contains no
deletes. But a delete as of the preparation may have a larger ordering value than a row that was
logged since. Therefore the deletes of the old logs are kept, and decide about such rows.

A change keeps the time of its commit, and its block keeps the instant of the commit: a compaction
of Apache Hudi 1.2.0 skips blocks that are later than the last commit, delta commit or rollback
(``HoodieCompactor.compact``), so it would lose blocks with the instant of the replace commit. A
delete is written with its ordering value, so that it still wins against an older row that arrives
later.

Merging is not associative for two kinds of changes: one of a key that a delete without an ordering
value has removed before, and a partial row. Their result depends on the old base file, which the
new buckets do not have. If such a change was logged since the preparation, the preparation is
outdated, so that readers find the same rows before and after the resize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.table_properties import MergeMode
from lakemark.execution.runner import LocalRunner
from lakemark.index.hash_ring import HashRing
from lakemark.merge.merge_stream import fold_changes
from lakemark.merge.precedence import find_unconditional_deletes
from lakemark.model.changes import CHANGE_KIND, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import FileGroupId, FileSlice, LogFile
from lakemark.model.meta_columns import COMMIT_TIME, RECORD_KEY
from lakemark.services.bucket_rewriter import BucketRewriter, RewriteTask, check_expected
from lakemark.services.clustering import PlanOutdated
from lakemark.services.planned_files import planned_slice
from lakemark.services.prepared_files import (
    check_commit_times,
    check_file,
    check_files,
    copying,
    local_context,
    until_cancelled,
)
from lakemark.storage.scratch import scratch_folder, temporary_writes
from lakemark.write.new_log_file import NewLogFile
from lakemark.write.prepared_base_file import PreparedBaseFile
from lakemark.write.prepared_log_file import (
    PreparedLogFile,
    new_prepared_log,
    publish_logs,
)
from lakemark.write.write_context import WriteContext

#: The number of logs that are encoded at the same time.
_WRITERS = 2

_REMEDY = "resize the buckets between two batches (bucket_resizing.mode: inline)"

_FLAGGED = int(ChangeKind.FLAGGED_DELETE)

#: The records of delete blocks; one after a delete without an ordering value changes nothing.
_DELETES = (int(ChangeKind.DELETE), int(ChangeKind.COMMIT_TIME_DELETE))


@dataclass(frozen=True, slots=True)
class KeptDeletes:
    """A file with the deletes in the logs of a slice; an Arrow IPC stream.

    Attributes:
        path: where the file lies, on this machine's disk.
        size_bytes: its size.
    """

    path: Path
    size_bytes: int

    @classmethod
    def at(cls, path: Path) -> KeptDeletes:
        """Return a file that was just written."""
        return cls(path, path.stat().st_size)


@dataclass(frozen=True, slots=True)
class PreparedTask:
    """The files of one group of a resize plan, in a folder on this machine's disk.

    Attributes:
        task: the group as of the last round.
        files: the base files of the new buckets that have rows.
        deletes: for each slice, the deletes in its logs as of the first round, without the keys
            that were changed since; None if no delete can decide about a later row.
        removed: the keys in the logs of the slices that a delete without an ordering value removed.
        logs: the logs of the new buckets, in the order of the rounds.
    """

    task: RewriteTask
    files: tuple[PreparedBaseFile, ...]
    deletes: tuple[KeptDeletes | None, ...]
    removed: pa.Array
    logs: tuple[PreparedLogFile, ...] = ()

    def check_files(self) -> None:
        """Check that the prepared files still exist; see ``check_files``."""
        check_files((*self.files, *self.logs))
        for kept in self.deletes:
            if kept is not None:
                check_file(kept.path, kept.size_bytes)


@dataclass(frozen=True)
class _Preparation:
    """Encodes files of a resize that has not been requested yet.

    Attributes:
        context: the write context of a resize as of now.
        key_fields: as in ``BucketRewriter``.
        log_sizes: see ``recorded_log_sizes``.
        folder: the folder for the files; another one may have those of earlier rounds.
        is_cancelled: returns whether to stop.
    """

    context: WriteContext
    key_fields: tuple[str, ...]
    log_sizes: Mapping[str, int]
    folder: Path
    is_cancelled: Callable[[], bool] = field(default=lambda: False)


class BucketPreparation(_Preparation):
    """Encodes the base files."""

    def __call__(self, task: RewriteTask) -> PreparedTask:
        """Write the files of one group.

        Raises:
            Cancelled: ``is_cancelled`` returned true.
            Refused, CorruptData: as for ``BucketRewriter``.
        """
        removed: list[pa.Array] = []
        deletes = tuple(self._keep_deletes(one, removed) for one in task.slices)
        target = local_context(self.context, self.folder)
        rewrite = _Cancellable(
            self.context, self.key_fields, self.log_sizes, target, self.is_cancelled
        )
        files = tuple(PreparedBaseFile(self.folder, stat) for stat in rewrite(task))
        return PreparedTask(task, files, deletes, _united(removed))

    def _keep_deletes(self, file_slice: FileSlice, removed: list[pa.Array]) -> KeptDeletes | None:
        """Write the deletes in the logs of a slice to a file; return None if they have no changes.

        Args:
            file_slice: the slice.
            removed: gets the keys of deletes without an ordering value.
        """
        path = self.folder / f"{file_slice.group.file_id}.arrows"
        schema, writer = None, None
        with ExitStack() as opened, temporary_writes("the deletes of a bucket"):
            for changes in self._folded(file_slice):
                if writer is None:
                    schema = changes.schema
                    writer = opened.enter_context(pa.ipc.new_stream(str(path), schema))
                are_deletes = pc.not_equal(changes.column(CHANGE_KIND), int(ChangeKind.UPSERT))
                writer.write_table(changes.filter(are_deletes))
                removed.append(_removed_keys(self.context, changes))
        return None if writer is None else KeptDeletes.at(path)

    def _folded(self, file_slice: FileSlice) -> Iterator[pa.Table]:
        """Yield the changes in the logs of a slice, at most one of each key."""
        if self.context.merge.mode is MergeMode.COMMIT_TIME or not file_slice.logs:
            return  # the later change wins, so no delete decides about a later row
        reader, merger = self.context.reader, self.context.merger
        logs = _chosen(self.context, file_slice, file_slice.logs, self.log_sizes)
        folded = fold_changes(reader.read_changes(logs), merger, reader.memory_budget_bytes)
        yield from until_cancelled(folded, self.is_cancelled)


@dataclass(frozen=True)
class _Cancellable(BucketRewriter):
    """A ``BucketRewriter`` that can be stopped between two tables of rows."""

    is_cancelled: Callable[[], bool] = field(default=lambda: False)

    def _rows(self, task: RewriteTask) -> Iterator[pa.Table]:
        for rows in until_cancelled(super()._rows(task), self.is_cancelled):
            check_commit_times(rows, task.slices[0].group, _REMEDY)
            yield rows


@dataclass(frozen=True, slots=True)
class _Later:
    """A log that was added to a slice.

    Attributes:
        file_slice: the slice.
        log: the log.
        deletes: the deletes in the logs of the first round; None if there are none.
        decided: gets the keys for which such deletes were found.
        removed: the keys that were removed so far; gets those of the log.
    """

    file_slice: FileSlice
    log: LogFile
    deletes: KeptDeletes | None
    decided: list[pa.Array]
    removed: list[pa.Array]


class ChangePreparation(_Preparation):
    """Encodes the changes that were logged after a preparation, or after its last round."""

    def __call__(self, prepared: PreparedTask, task: RewriteTask) -> PreparedTask:
        """Write a log of each new bucket with changes.

        Args:
            prepared: what was prepared before.
            task: the same group as of now.

        Raises:
            Cancelled: ``is_cancelled`` returned true.
            PlanOutdated: the result of a later change depends on the old base file; or another
                program has removed or changed a prepared file.
            Refused, CorruptData: as for ``BucketRewriter``.
        """
        logs: list[PreparedLogFile] = []
        deletes: list[KeptDeletes | None] = []
        removed = [prepared.removed]
        for now, before, kept in zip(
            task.slices, prepared.task.slices, prepared.deletes, strict=True
        ):
            decided: list[pa.Array] = []
            for log in later_logs(now, before):
                number = len(prepared.logs) + len(logs) + 1
                logs += self._prepare(_Later(now, log, kept, decided, removed), task, number)
            path = self.folder / f"{now.group.file_id}.{len(prepared.logs)}.arrows"
            deletes.append(kept and _without_keys(kept, decided, path))
        return PreparedTask(
            task, prepared.files, tuple(deletes), _united(removed), (*prepared.logs, *logs)
        )

    def _prepare(self, later: _Later, task: RewriteTask, number: int) -> list[PreparedLogFile]:
        """Write the changes of a log to a log of each new bucket."""
        target = local_context(self.context, self.folder, later.log.name.instant)
        files: dict[int, NewLogFile] = {}

        def open_log(at: int) -> NewLogFile:
            group = FileGroupId(task.ring.partition_path, task.ring.file_ids[at])
            check_expected(group, task)
            return opened.enter_context(new_prepared_log(target, group, number))

        with ExitStack() as opened:
            for changes in self._changes(later):
                parts = self._divide(changes, task)
                files |= {at: open_log(at) for at in parts.keys() - files.keys()}
                LocalRunner(_WRITERS).map(_write, [(files[at], part) for at, part in parts.items()])
            stats = [files[at].close() for at in sorted(files)]
        return [PreparedLogFile(self.folder, stat) for stat in stats]

    def _changes(self, later: _Later) -> Iterator[pa.Table]:
        """Yield the changes of a log, block by block.

        The blocks are not merged, because this would take as long as encoding them. A new log may
        have several changes of a key, as several logs may.
        """
        chosen = _chosen(self.context, later.file_slice, [later.log], self.log_sizes)
        blocks = self.context.reader.read_changes(chosen)
        for block in until_cancelled(blocks, self.is_cancelled):
            later.removed.append(_removed_keys(self.context, block))
            _check_associative(block, later.removed, later.file_slice)
            is_mixed = pc.any(pc.equal(block.column(CHANGE_KIND), _FLAGGED)).as_py()
            changes = self.context.merger.fold(block) if is_mixed else block
            yield self._with_deletes(changes, later.deletes, later.decided)

    def _with_deletes(
        self, changes: pa.Table, deletes: KeptDeletes | None, decided: list[pa.Array]
    ) -> pa.Table:
        """Merge the first changes of keys with the earlier deletes of the same keys."""
        if deletes is None:
            return changes
        keys = changes.column(RECORD_KEY).combine_chunks()
        known = _united(decided)

        def are_first(found: pa.Array) -> pa.Array:
            is_known = pc.is_in(found, value_set=known)
            return pc.and_(pc.is_in(found, value_set=keys), pc.invert(is_known))

        earlier = _read_deletes(deletes, are_first)
        if not earlier.num_rows:
            return changes
        touched = earlier.column(RECORD_KEY).combine_chunks()
        decided.append(touched)
        is_touched = pc.is_in(changes.column(RECORD_KEY), value_set=touched)
        both = [earlier.select(changes.column_names), changes.filter(is_touched)]
        merged = self.context.merger.fold(pa.concat_tables(both))
        return pa.concat_tables([changes.filter(pc.invert(is_touched)), merged])

    def _divide(self, changes: pa.Table, task: RewriteTask) -> dict[int, pa.Table]:
        """Return the changes of each new bucket, by the position of the bucket in the ring."""
        are_rows = pc.equal(changes.column(CHANGE_KIND), int(ChangeKind.UPSERT))
        rows = changes.select([COMMIT_TIME]).filter(are_rows)
        check_commit_times(rows, task.slices[0].group, _REMEDY)
        numbers = task.ring.buckets_of_keys(changes.column(RECORD_KEY), self.key_fields)
        found = np.unique(numbers).tolist()
        return {at: changes.filter(pa.array(numbers == at)) for at in found}


def _write(part: tuple[NewLogFile, pa.Table]) -> None:
    log, changes = part
    log.write(changes)


@dataclass(frozen=True)
class PreparedRewriter:
    """Executes the tasks of a resize with files that were prepared.

    Attributes:
        context: write context of the resize.
        prepared: the prepared files of each task, by its new file ids.
        key_fields: as in ``BucketRewriter``.
        log_sizes: see ``recorded_log_sizes``.
        copies: the number of files that are copied at the same time.
    """

    context: WriteContext
    prepared: Mapping[tuple[str, ...], PreparedTask]
    key_fields: tuple[str, ...]
    log_sizes: Mapping[str, int]
    copies: int

    def __call__(self, task: RewriteTask) -> list[WriteStat]:
        """Copy the prepared files, and write the later changes to the logs.

        Raises:
            PlanOutdated: as for ``ChangePreparation``; or another program has removed a file.
            Refused, CorruptData: as for ``BucketRewriter``.
        """
        prepared = self.prepared[task.new_file_ids]
        with scratch_folder("buckets") as folder, ThreadPoolExecutor(1) as pool:
            prepare = ChangePreparation(self.context, self.key_fields, self.log_sizes, folder)
            changes = pool.submit(prepare, prepared, task)
            copied = LocalRunner(self.copies).map(self._copy, prepared.files)
            return [*copied, *self._publish_logs(changes.result().logs, copied)]

    def _publish_logs(
        self, logs: Iterable[PreparedLogFile], copied: Iterable[WriteStat]
    ) -> list[WriteStat]:
        base_names = {stat.file_id: _name_of(stat) for stat in copied}
        of_groups: dict[FileGroupId, list[PreparedLogFile]] = {}
        for log in logs:
            of_groups.setdefault(log.group, []).append(log)
        with copying([log for of_group in of_groups.values() for log in of_group]):
            return [
                stat
                for group, of_group in sorted(of_groups.items())
                for stat in publish_logs(self.context, of_group, base_names.get(group.file_id, ""))
            ]

    def _copy(self, file: PreparedBaseFile) -> WriteStat:
        with copying([file]):
            return file.publish(self.context)


def later_logs(now: FileSlice, before: FileSlice) -> tuple[LogFile, ...]:
    """Return the logs that were added to a slice, of which the first logs are still the same."""
    return now.logs[len(before.logs) :]


def is_continued(now: FileSlice, before: FileSlice) -> bool:
    """Return whether a slice is an earlier slice, to which maybe logs were added."""
    same = (now.group, now.base_instant, now.base, now.logs[: len(before.logs)])
    return same == (before.group, before.base_instant, before.base, before.logs)


def has_same_buckets(ring: HashRing, other: HashRing) -> bool:
    """Return whether two rings divide the same partition into the same buckets."""
    return replace(ring, instant="") == replace(other, instant="")


def _removed_keys(context: WriteContext, changes: pa.Table) -> pa.Array:
    """Return the keys of deletes that win whatever the ordering value of the other record is.

    In a table without ordering values there is none, because the later change always wins.
    """
    if context.merge.mode is MergeMode.COMMIT_TIME:
        return pa.array([], pa.string())
    always = find_unconditional_deletes(changes, context.merge.ordering_fields)
    return changes.column(RECORD_KEY).filter(pa.array(always)).combine_chunks()


def _check_associative(changes: pa.Table, removed: Sequence[pa.Array], of: FileSlice) -> None:
    """Check that the changes give the same rows with a base file that contains earlier changes.

    Raises:
        PlanOutdated: they may give other rows.
    """
    kinds = changes.column(CHANGE_KIND)
    are_deletes = pc.is_in(kinds, value_set=pa.array(_DELETES, pa.int8()))
    later = changes.filter(pc.invert(are_deletes)).column(RECORD_KEY)
    is_removed = pc.any(pc.is_in(later, value_set=_united(removed))).as_py()
    if WRITTEN_COLUMNS in changes.column_names or is_removed:
        reason = "rows of deleted keys" if is_removed else "rows with only some of the columns"
        message = f"{of.group} was prepared before {reason} were written, which need its base file"
        raise PlanOutdated(message)


def _chosen(
    context: WriteContext,
    file_slice: FileSlice,
    logs: Sequence[LogFile],
    log_sizes: Mapping[str, int],
) -> FileSlice:
    """Return a slice with only some of its logs, which have their real sizes."""
    names = [str(log.name) for log in logs]
    group, base_instant = file_slice.group, file_slice.base_instant
    return planned_slice(group, base_instant, names, context.storage, log_sizes)


def _read_deletes(kept: KeptDeletes, are_chosen: Callable[[pa.Array], pa.Array]) -> pa.Table:
    """Return the deletes in a file whose keys are chosen.

    Raises:
        PlanOutdated: the file was removed or changed.
    """
    check_file(kept.path, kept.size_bytes)
    with pa.memory_map(str(kept.path)) as file, pa.ipc.open_stream(file) as stream:
        found = [batch.filter(are_chosen(batch.column(RECORD_KEY))) for batch in stream]
        return pa.Table.from_batches(found, stream.schema)


def _without_keys(kept: KeptDeletes, decided: Sequence[pa.Array], copy: Path) -> KeptDeletes:
    """Return a file without the deletes of some keys, because later logs decide about them."""
    if not decided:
        return kept
    keys = _united(decided)
    rest = _read_deletes(kept, lambda found: pc.invert(pc.is_in(found, value_set=keys)))
    with (
        temporary_writes("the deletes of a bucket"),
        pa.ipc.new_stream(str(copy), rest.schema) as to,
    ):
        to.write_table(rest)
    return KeptDeletes.at(copy)


def _united(keys: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *keys])


def _name_of(stat: WriteStat) -> str:
    return (stat.path or "").rpartition("/")[2]
