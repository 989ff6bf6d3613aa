"""Compacts the metadata table: merges the logs of each file group into a new HFile.

The compaction runs under the data table's lock, before the next commit reaches the metadata table.
It runs only if all earlier commits have completed in the data table. Readers use all records of a
base file, so a base file must not contain records of an uncompleted commit. If a dead writer left a
pending plan, the plan is dropped and replaced by a new one. No log depends on the dropped plan,
because logs are assigned to slices by completion time. In table version 6 no log depends on it
either, because each commit drops a pending plan before it writes its logs.
Source: ``compactIfNecessary`` of ``HoodieBackedTableMetadataWriter``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile import Entries
from lakemark.metadata.column_stats.encode import StatisticsEntry, encode_partition_statistics
from lakemark.metadata.column_stats.lookup import PartitionStatistics
from lakemark.metadata.file_records import FilesOfPartition, encode_files
from lakemark.metadata.index_keys import partition_path_of
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_files import BaseContent, changed_base_file
from lakemark.metadata.metadata_store import MetadataStore, commit_metadata, compaction_v6
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.recorded_files import FilesDiffer, RecordedFiles
from lakemark.metadata.slice_rows import SliceRows
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import Operation, WriteStat
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_slice import ALL_PARTITIONS, FileSlice
from lakemark.model.instant import Instant
from lakemark.timeline.content import encode_compaction_plan
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import StorageFileLister
from lakemark.view.view_loader import load_view

#: ``hoodie.metadata.compact.max.delta.commits``.
EVERY_DELTA_COMMITS = 10


def last_compaction(timeline: Timeline) -> str:
    """Return when the last completed compaction was requested; "" if there was none."""
    done = timeline.completed(Action.COMMIT)
    return max((instant.requested_at for instant in done), default="")


def compact_if_due(
    store: MetadataStore,
    data: Timeline,
    columns: Callable[[], pa.Schema],
    check_not_fenced: Callable[[], None],
) -> None:
    """Compact if enough delta commits have accumulated, and all have completed in the data table.

    Args:
        store: the metadata table.
        data: the data table's timeline, just loaded.
        columns: returns the data table's columns.
        check_not_fenced: raises if another writer may be writing the table. The compaction would
            miss the commits that the other writer adds to the metadata table.

    Raises:
        FilesDiffer: files of the metadata table differ from what its commits wrote. A compaction
            would then lose the missing records permanently.
    """
    if not _is_due(store, data):
        return
    store.timeline = store.instants.load()
    check_not_fenced()  # otherwise the metadata table may have been dropped or built again
    if not _is_due(store, data):
        return  # another process has compacted the table since the timeline was first read
    for pending in store.timeline.pending(Action.COMPACTION):
        store.undo(pending.requested_at, check_not_fenced)
    slices = _slices_to_compact(store, data)
    plan = CompactionPlan.of(slices)
    content = encode_compaction_plan(plan)
    requested = Instant(store.compaction_time(), Action.COMPACTION, State.REQUESTED)
    pending = store.begin(requested, content)
    rewritten = [
        _rewrite(store, one, slices, columns, pending.requested_at) for one in slices if one.logs
    ]
    stats = [stat for stat in rewritten if stat is not None]
    metadata = commit_metadata(stats, Operation.COMPACT, compacted=True)
    store.publish(pending, metadata, check_not_fenced)
    store.recent_logs.clear()


def _is_due(store: MetadataStore, data: Timeline) -> bool:
    commits = store.timeline.completed(Action.DELTA_COMMIT)
    # All commits must have completed, not only those since the last compaction. In version 6, a
    # commit that was requested before that compaction may have been written after it, into a log of
    # the new slice.
    last = last_compaction(store.timeline)
    names_slice = store.instants.version.logs_name_their_slice
    new = [i for i in commits if _slice_time(i, names_slice=names_slice) > last]
    return len(new) >= EVERY_DELTA_COMMITS and all(_has_completed(i, data) for i in commits)


def _slice_time(instant: Instant, *, names_slice: bool) -> str:
    """Return the time that decides to which slice a delta commit belongs."""
    return compaction_v6(instant.requested_at) if names_slice else instant.completed_at or ""


def _has_completed(instant: Instant, data: Timeline) -> bool:
    known = data.find(instant.requested_at)
    return known is None or known.is_completed


def _slices_to_compact(store: MetadataStore, data: Timeline) -> list[FileSlice]:
    lister = StorageFileLister(store.storage)
    view = load_view(store.instants, store.timeline, lister, store.instants.version)
    recorded = RecordedFiles(store.instants, store.timeline, store.timeline.is_committed, data)
    for partition in sorted(view.partitions):
        mismatch = recorded.find_mismatch(partition, view.files(partition))
        if mismatch is not None:
            raise FilesDiffer(mismatch)
    return view.slices_for_writing()


def _rewrite(
    store: MetadataStore,
    file_slice: FileSlice,
    slices: Sequence[FileSlice],
    columns: Callable[[], pa.Schema],
    instant: str,
) -> WriteStat | None:
    """Write the base file of one slice; return None if the slice's records cannot be merged."""
    partition = file_slice.group.partition_path
    committed, of_table = store.timeline.is_committed, store.instants.version
    rows = SliceRows(store.storage, committed, of_table, store.recent_logs)
    created_ms = store.created_ms(instant)
    merged: RecordChanges | None
    if partition == PartitionKind.FILES.stored_name:
        merged = _merged_files(file_slice, rows)
    elif partition == PartitionKind.PARTITION_STATS.stored_name:
        version = store.instants.version.column_statistics
        of_partition = [one for one in slices if one.group.partition_path == partition]
        merged = _merged_statistics(file_slice, of_partition, rows, columns, version)
    elif (changed := _changed_base(file_slice, rows, created_ms)) is not None:
        return _write(store, file_slice, instant, changed)
    else:
        merged = _newest(file_slice, rows)
    if merged is None:
        return None
    return _write(store, file_slice, instant, BaseContent.of(merged.written, created_ms))


def _changed_base(file_slice: FileSlice, rows: SliceRows, created_ms: int) -> BaseContent | None:
    """Return the new base file, for which most blocks of the old one are copied.

    The result is None if all records must be merged.
    """
    base = file_slice.base
    if base is None:
        return None
    changes = rows.newest_changes(file_slice)
    return changed_base_file(rows.base_reader(base), changes, created_ms, base.path)


def _write(
    store: MetadataStore, file_slice: FileSlice, instant: str, base: BaseContent
) -> WriteStat:
    group = file_slice.group
    stat = store.write_base(group.partition_path, group.file_id, instant, base)
    return replace(
        stat,
        prev_commit=file_slice.base_instant,
        prev_base_file=file_slice.base_name,
        total_log_files_compacted=len(file_slice.logs),
        total_log_size_compacted=file_slice.log_bytes,
    )


def _newest(file_slice: FileSlice, rows: SliceRows) -> RecordChanges:
    return RecordChanges(rows.newest_entries(file_slice), pa.array([], pa.binary()))


def _merged_statistics(
    file_slice: FileSlice,
    slices: Sequence[FileSlice],
    rows: SliceRows,
    columns: Callable[[], pa.Schema],
    version: str,
) -> RecordChanges | None:
    """Merge the statistics of partitions; a record that is not tight widens older records.

    Return None if a column whose records must be merged no longer exists, or has a current type in
    which the bounds cannot be compared. In that case the logs are kept. A base file with only the
    newest record would not cover the values of the older records, so queries of Apache Hudi would
    skip rows.
    """
    newest = _newest(file_slice, rows)
    name = PartitionKind.PARTITION_STATS.stored_name
    statistics = PartitionStatistics(MetadataTable(frozenset([name]), lambda _: slices, rows))
    merged = statistics.merged_columns()
    if not merged:
        return newest
    fields = [field for field in columns() if field.name in {name for _, name in merged}]
    ranges = statistics.ranges(sorted({path for path, _ in merged}), pa.schema(fields)).ranges
    entries = [
        StatisticsEntry(path, "", one.select([n for n in one.columns if (path, n) in merged]))
        for path, one in ranges.items()
    ]
    if sum(len(entry.ranges.columns) for entry in entries) < len(merged):
        return None
    changed = encode_partition_statistics(entries, version, is_tight=False).written
    is_here = pc.is_in(changed.keys, value_set=newest.written.keys)
    is_kept = pc.invert(pc.is_in(newest.written.keys, value_set=changed.keys))
    return RecordChanges.union([_filtered(newest.written, is_kept), _filtered(changed, is_here)])


def _filtered(entries: Entries, are_chosen: pa.Array) -> RecordChanges:
    chosen = Entries(*(column.filter(are_chosen) for column in entries))
    return RecordChanges(chosen, pa.array([], pa.binary()))


def _merged_files(file_slice: FileSlice, rows: SliceRows) -> RecordChanges:
    name = PartitionKind.FILES.stored_name
    table = MetadataTable(frozenset([name]), lambda _: [file_slice], rows)
    listed = MetadataFileLister(table).records()
    partitions = [partition_path_of(stored) for stored in listed.pop(ALL_PARTITIONS, {})]
    files = (FilesOfPartition(partition_path_of(key), sizes) for key, sizes in listed.items())
    return encode_files(files, partitions)
