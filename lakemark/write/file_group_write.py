"""Writes the file of one bucket in a commit: a base file, or a log file with the changes.

Very many changes become several log files (``lakemark.write.new_log_file``).

This code runs in a worker or in a thread of the driver. The file's name and content depend only on
the instant, the task and the changes. So a second attempt produces the same file, and finds the
file of the first attempt.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.table_properties import MergeMode, TableType
from lakemark.errors import Refused
from lakemark.execution.interleave import read_ahead
from lakemark.index.bucket import file_id
from lakemark.index.key_search import SearchedGroup, find_live_keys
from lakemark.merge.change_index import MergeCounts, MergeResult
from lakemark.merge.merge_stream import MergeStream, merge_streams
from lakemark.merge.partial_update.partial_rows import resolve_partial_rows
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_names import LogFileName, write_token
from lakemark.model.file_slice import FileGroupId, FileSlice, LogFile
from lakemark.model.key_changes import KeyChanges
from lakemark.read.projection import conform
from lakemark.read.row_filter import filter_keys
from lakemark.storage import Storage
from lakemark.view.file_lister import PARTITION_METAFILE, data_file, is_partition_metafile
from lakemark.write.change_data import RowChanges, write_change_data
from lakemark.write.early_conflicts import check_rivals
from lakemark.write.index_changes import IndexedRows, value_changes_of_logs
from lakemark.write.markers import create_partition_metafile
from lakemark.write.new_base_file import NewBaseFile
from lakemark.write.new_log_file import NewLogFiles
from lakemark.write.partitioner import Bucket, task_number
from lakemark.write.write_context import WriteContext

#: Size, in Arrow bytes, at which gathered changes are folded and written as log blocks.
MAX_BLOCK_BYTES = 64 << 20

#: The largest number of column sets among the partial rows of one table of changes, without the set
#: of all columns. Each set needs its own block, and a block costs as much as about a hundred rows.
MAX_COLUMN_SETS = 16


@dataclass(frozen=True, slots=True)
class FileGroupWrite:
    """The task of writing the changes of one bucket.

    Attributes:
        bucket: bucket of the changes.
        current: the bucket's latest file slice; None to create a file group. A non-blocking writer
            creates a file group by its first log, so its slice has no files then.
        is_new_partition: whether the partition may have no metafile yet.
        readable: the bucket's file slice as queries read it; None if that is ``current``.
        adds_keys: whether the changes have keys that a lookup index must find in a base file later.
            Then the base file is rewritten, also in a merge-on-read table.
        new_file_id: the file id of a file group to create; None to use the id of a bucket index.
        is_insert: whether each change becomes a row of its own, whatever its key. All changes are
            upserts then, and they are never appended to a log.
    """

    bucket: Bucket
    current: FileSlice | None
    is_new_partition: bool
    readable: FileSlice | None = None
    adds_keys: bool = False
    new_file_id: str | None = None
    is_insert: bool = False

    def appends(self, table_type: TableType) -> bool:
        """Return whether the changes are appended to a log."""
        is_merge_on_read = table_type is TableType.MERGE_ON_READ
        rewrites = self.adds_keys or self.is_insert
        return self.current is not None and is_merge_on_read and not rewrites


class RowObserver(Protocol):
    """Receives the rows of a base file while it is written."""

    def add(self, rows: pa.Table) -> None:
        """Receive the next rows. Rows without a commit time are new or changed."""
        ...


def write_file_group(
    context: WriteContext, task: FileGroupWrite, changes: Iterable[pa.Table]
) -> list[WriteStat]:
    """Write the file of one bucket, and return its write stat; nothing if nothing is to write.

    Changes that exceed the largest size of a log become several logs, each with a write stat.

    Args:
        context: the commit.
        task: the bucket and its current slice.
        changes: a stream of tables of changes, in order of arrival. A key may occur more than once
            (see ``RecordMerger.fold``). Columns of the table that the changes lack are null.

    Raises:
        ContentMismatch: another attempt to execute the task wrote other changes.
        EarlyConflict: an earlier commit is writing the file group.
    """
    if context.rivals:
        check_rivals(context.storage, context.rivals, _group_of(context, task))
    changes = _resolve(context, task, _conform_changes(context.schema, changes))
    if task.current is None:
        return _create_base_file(context, task, changes)
    if task.appends(context.table_type):
        return _append_log_files(context, task, task.current, changes)
    return [_rewrite_base_file(context, task, task.current, changes)]


def write_base_file(
    context: WriteContext,
    group: FileGroupId,
    merged: MergeStream,
    first: pa.Table | None = None,
    replaces: FileSlice | None = None,
    written: Sequence[RowObserver] = (),
    *,
    reads_ahead: bool = True,
) -> WriteStat:
    """Write merged rows as a base file of the group, with the instant of the commit.

    Args:
        context: the commit or compaction.
        group: the file group.
        merged: the live rows. Rows without a commit time get the time of this instant.
        first: rows that were already read from ``merged``.
        replaces: the file slice that the new file replaces.
        written: receive the rows, before their other meta columns are set.
        reads_ahead: whether a thread merges the next rows while earlier rows are encoded. Pass
            False for few rows, because the first memory of a new thread takes much time.
    """
    rest: MergeStream | Generator[pa.Table, None, None] = merged
    if reads_ahead:
        rest = read_ahead(lambda: merged)
    with NewBaseFile(context, group, replaces) as file, closing(rest) as arriving:
        for rows in chain([] if first is None else [first], arriving):
            file.write(rows)
            for observer in written:
                observer.add(rows)
        return file.close(merged.counts)


def _conform_changes(schema: pa.Schema, changes: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the changes in the table's columns, to which another writer may have added some.

    Changes with partial rows already have the table's columns, so they are not converted.
    """
    wanted = schema.append(CHANGE_KIND_FIELD)
    for part in changes:
        assert {*part.schema.names} <= {*wanted.names, WRITTEN_COLUMNS}, part.schema.names
        yield part if WRITTEN_COLUMNS in part.schema.names else conform(part, wanted, "")


def _resolve(
    context: WriteContext, task: FileGroupWrite, changes: Iterable[pa.Table]
) -> Iterator[pa.Table]:
    """Resolve partial rows, if there can be any, and combine changes for a log into blocks."""
    appends = task.appends(context.table_type)
    arriving = iter(changes)
    first = next(arriving, None)
    if first is None:
        return iter(())
    together = chain([first], arriving)
    if WRITTEN_COLUMNS not in first.column_names:
        return _combine_blocks(together) if appends else together
    file_slice = task.readable or task.current

    def read_current(keys: pa.ChunkedArray, columns: Sequence[str]) -> pa.Table:
        nothing = context.schema.empty_table().select(list(columns))
        rows = context.reader.read(file_slice, columns) if file_slice else ()
        return pa.concat_tables([nothing, *(filter_keys(batch, keys) for batch in rows)])

    return resolve_partial_rows(
        _combine_blocks(together),
        context.merger,
        read_current,
        completes_rows=appends and context.merge.mode is MergeMode.COMMIT_TIME,
        max_column_sets=MAX_COLUMN_SETS if appends else None,
    )


def _create_base_file(
    context: WriteContext, task: FileGroupWrite, changes: Iterable[pa.Table]
) -> list[WriteStat]:
    partition = task.bucket.partition_path
    merged = _merge(context, task, (), changes)
    first = next(merged, None)
    if first is None:
        return []  # all changes are deletes of keys that do not exist
    create_partition(context, partition, is_new_partition=task.is_new_partition)
    rows, group = IndexedRows.of(context), _group_of(context, task)
    stat = write_base_file(context, group, merged, first, written=[rows])  # model: write files
    return [rows.describe_changes(stat, IndexedRows())]


def _group_of(context: WriteContext, task: FileGroupWrite) -> FileGroupId:
    """Return the file group that a task writes or creates."""
    if task.current is not None:
        return task.current.group
    partition, number = task.bucket.partition_path, task.bucket.number
    new = task.new_file_id or file_id(number, partition, context.instant, context.table_name)
    return FileGroupId(partition, new)


def _merge(
    context: WriteContext,
    task: FileGroupWrite,
    base: Iterable[pa.Table],
    changes: Iterable[pa.Table],
) -> MergeStream:
    """Merge changes into base rows, or append the rows of an insert to them.

    Source: ``HoodieConcatHandle`` of Apache Hudi 1.2.0 appends the rows of an insert.
    """
    if not task.is_insert:
        return merge_streams(base, changes, context.merger)
    stored = (MergeResult(rows, MergeCounts()) for rows in base)
    added = (
        MergeResult(rows.select(context.schema.names), MergeCounts(inserted=rows.num_rows))
        for rows in changes
    )
    return MergeStream(chain(stored, added))


def create_partition(context: WriteContext, partition_path: str, *, is_new_partition: bool) -> None:
    """Create the metafile of a partition before its first data file.

    Args:
        context: the commit.
        partition_path: the partition.
        is_new_partition: whether the partition may have no metafile yet; if not, do nothing.

    Raises:
        Refused: the partition has data files, but no metafile.
    """
    if is_new_partition:
        _check_has_no_files(context.storage, partition_path)
        create_partition_metafile(context.storage, context.instant, partition_path)


def _check_has_no_files(storage: Storage, partition: str) -> None:
    """Check that a partition without a partition metafile has no data files.

    Writers create the metafile before any data file. If the metafile was deleted, readers do not
    find the partition's data files. A new file group would then be the second one of its bucket.

    Raises:
        Refused: the partition has data files.
    """
    names = [info.name for info in storage.list_folder(partition)[1]]
    files = [name for name in names if data_file(partition, name, 0) is not None]
    if files and not any(map(is_partition_metafile, names)):
        message = (
            f"partition {partition!r} of {storage.location.url} has data files, such as "
            f"{files[0]}, but its file {PARTITION_METAFILE} is missing, so that no reader finds "
            "them; create that file, which may be empty, and write again"
        )
        raise Refused(message)


def _rewrite_base_file(
    context: WriteContext, task: FileGroupWrite, current: FileSlice, changes: Iterable[pa.Table]
) -> WriteStat:
    before, after = IndexedRows.of(context), IndexedRows.of(context)
    stored = before.each_of(context.reader.read(current))
    if not context.logs_changes:
        merged = _merge(context, task, stored, changes)
        stat = write_base_file(context, current.group, merged, replaces=current, written=[after])
        return after.describe_changes(stat, before)
    rows = RowChanges(context.schema, only_adds=task.is_insert)
    merged = _merge(context, task, rows.each_stored(stored), rows.each_change(changes))
    stat = write_base_file(context, current.group, merged, replaces=current, written=[after, rows])
    changed = rows.finish(lambda: context.reader.read(current))
    token = write_token(task_number(current.group))
    cdc_stats = write_change_data(context, current.group, token, changed)
    return replace(after.describe_changes(stat, before), cdc_stats=cdc_stats)


def _append_log_files(
    context: WriteContext, task: FileGroupWrite, current: FileSlice, changes: Iterable[pa.Table]
) -> list[WriteStat]:
    folded = (context.merger.fold(part) for part in changes)
    parts = (part for part in folded if part.num_rows)
    first = next(parts, None)
    if first is None:
        return []  # all changes were too late
    group = current.group
    if current.base is None and not current.logs:
        create_partition(context, group.partition_path, is_new_partition=task.is_new_partition)
    name = _name_log(context, current, task_number(group))
    may_remove = IndexedRows(collects_keys=context.has_record_index)
    changed = IndexedRows(collects_keys=bool(context.secondary_columns))
    with NewLogFiles(context, group, name) as files:
        for part in chain([first], parts):
            may_remove.add(_possible_deletes(context, part))
            changed.add(part)
            files.write(part)
        stats = files.close()
    logs = [_log_of(group, stat) for stat in stats]
    before = SearchedGroup(task.readable or current, current)
    last = replace(
        stats[-1],
        key_changes=_removed_by(context, task, logs, may_remove.record_keys()),
        secondary_changes=value_changes_of_logs(context, before, logs, changed.record_keys()),
    )
    written = [*(_without_changes(context, stat) for stat in stats[:-1]), last]
    base_file, earlier = _listed_files(context, task, current)
    return [
        replace(stat, base_file=base_file, log_files=(*earlier, *(stat.log_files or ())))
        for stat in written
    ]


def _log_of(group: FileGroupId, stat: WriteStat) -> LogFile:
    assert stat.log_files
    name = LogFileName.parse(stat.log_files[-1])
    assert name is not None
    return LogFile(group.partition_path, name, stat.file_size_in_bytes)


def _without_changes(context: WriteContext, stat: WriteStat) -> WriteStat:
    """Return the write stat of a log for which the last log of the file group states the changes.

    The changes in indexes are those of all the logs together.
    """
    nothing = KeyChanges.removing(pa.array([], pa.string()))
    return replace(
        stat,
        key_changes=nothing if context.has_record_index else None,
        secondary_changes=dict.fromkeys(context.secondary_columns, nothing),
    )


def _possible_deletes(context: WriteContext, part: pa.Table) -> pa.Table:
    """Return the changes of a log that may delete a row; with a custom merger, all of them."""
    if context.merger.needs_whole_rows or not context.has_record_index:
        return part
    return part.filter(pc.not_equal(part.column(CHANGE_KIND), int(ChangeKind.UPSERT)))


def _removed_by(
    context: WriteContext, task: FileGroupWrite, logs: Sequence[LogFile], keys: pa.Array
) -> KeyChanges | None:
    """Return the keys that have no row any more, once the new logs of their file group are read.

    A delete may lose to a newer row, so the rows of the keys are merged. A log adds no key, because
    new keys are written only to base files of a table with a record index.

    Args:
        context: the commit.
        task: the bucket of the logs and its slices before the commit.
        logs: the new logs.
        keys: the distinct keys whose rows the logs may delete.
    """
    if not context.has_record_index:
        return None
    if task.current is None or not len(keys):
        return KeyChanges.removing(keys)
    after = SearchedGroup(task.readable or task.current, task.current).with_logs(logs)
    reader = replace(
        context.reader,
        is_visible=lambda instant: instant == context.instant or context.is_visible(instant),
    )
    live = find_live_keys(reader, after, keys)
    return KeyChanges.removing(keys.filter(pc.invert(pc.is_in(keys, value_set=live))))


def _name_log(context: WriteContext, current: FileSlice, number: int) -> LogFileName:
    """Return the name of a new log.

    The log is named after its instant, or in version 6 after its slice, with the slice's next log
    version. In version 6, the write token contains the time of day of the instant, so that the logs
    of two writers have different names.
    """
    file_id = current.group.file_id
    if not context.version.logs_name_their_slice:
        return LogFileName(file_id, context.instant, 1, write_token(number))
    latest = max((log.name.version for log in current.logs), default=0)
    token = f"{number}-{int(context.instant[8:])}-0"
    return LogFileName(file_id, current.base_instant, latest + 1, token)


def _listed_files(
    context: WriteContext, task: FileGroupWrite, current: FileSlice
) -> tuple[str, tuple[str, ...]]:
    """Return the base file and the earlier logs to list in the write stat of a log.

    The base file is listed because hudi-rs needs its name to read a commit incrementally. In
    version 6, the earlier logs of the slice are listed too.

    If CDC is enabled, all files are listed that a query would have read before the commit, even if
    a compaction is pending. Apache Hudi reads the rows before the commit from these files
    (``HoodieCDCExtractor.getDependentFileSliceForLogFile``).
    """
    listed, logs = current, current.logs
    if not context.version.logs_name_their_slice:
        listed = (task.readable or current) if context.cdc_mode is not None else current
        logs = listed.logs if context.cdc_mode is not None else ()
    return listed.base_name or "", tuple(str(log.name) for log in logs)


def _combine_blocks(changes: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Combine tables to the size of a block. The caller folds each of the combined tables."""
    gathered: list[pa.Table] = []
    for table in changes:
        gathered.append(table)
        if sum(part.nbytes for part in gathered) >= MAX_BLOCK_BYTES:
            yield pa.concat_tables(gathered)
            gathered = []
    if gathered:
        yield pa.concat_tables(gathered)
