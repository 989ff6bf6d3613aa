"""Builds the metadata table of a data table from a listing of its storage, or drops it.

As the last step, the partitions of the metadata table are added to the data table's properties. So
no reader uses the files that a crash leaves behind, and those files are deleted before the next
attempt. Files of pending instants are omitted, because their commits will add them. Source:
``initializeFromFilesystem`` of ``HoodieBackedTableMetadataWriter``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from lakemark.config.table_properties import (
    PROPERTIES_PATH,
    TableProperties,
    metadata_table_properties,
)
from lakemark.log.log_writers import read_instants
from lakemark.metadata.bloom_filter_records import encode_bloom_filters
from lakemark.metadata.column_stats.derive import derive_file_ranges, files_of
from lakemark.metadata.column_stats.encode import (
    StatisticsEntry,
    encode_column_statistics,
    encode_partition_statistics,
)
from lakemark.metadata.file_records import FilesOfPartition, encode_files
from lakemark.metadata.index_definition import (
    define_column_statistics,
    define_record_index,
    define_secondary_index,
    remove_secondary_definitions,
)
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.record_index_records import (
    MIN_RECORD_INDEX_GROUPS,
    count_record_index_groups,
    encode_locations,
)
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.stored_locations import ReadKeys, locate_keys
from lakemark.metadata.stored_values import ReadRows, encode_values, no_rows
from lakemark.metadata.valid_instants import draw_first_number
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.file_slice import LogFile, join
from lakemark.model.format_version import FormatVersion
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import replace_properties
from lakemark.storage.storage import NotFound, Storage
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.prepared import withdraw_properties
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, StorageFileLister
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.view_loader import load_view

#: For each partition: its kind, the prefix of its file group ids, and the number of file groups.
PARTITIONS = (
    (PartitionKind.FILES, "files-", 1),
    (PartitionKind.COLUMN_STATS, "col-stats-", 2),
    (PartitionKind.PARTITION_STATS, "partition-stats-", 1),
    (PartitionKind.BLOOM_FILTERS, "bloom-filters-", 4),
    (PartitionKind.RECORD_INDEX, "record-index-", MIN_RECORD_INDEX_GROUPS),
)

_NO_KEYS = pa.array([], pa.string())


def visible_files(
    listed: Mapping[str, Iterable[DataFile]], timeline: Timeline, version: FormatVersion
) -> dict[str, list[DataFile]]:
    """Return the files of a listing that may contain blocks or rows of completed instants.

    In version 6 these include all logs, because the name of a log does not show who wrote it; see
    ``without_unfinished_logs``.

    Returns:
        The files by partition path.
    """

    def is_visible(file: DataFile) -> bool:
        if isinstance(file, LogFile) and version.logs_name_their_slice:
            return True
        return timeline.is_committed(file.name.instant)

    return {name: [file for file in files if is_visible(file)] for name, files in listed.items()}


def without_unfinished_logs(
    storage: Storage,
    files: Mapping[str, Sequence[DataFile]],
    timeline: Timeline,
    version: FormatVersion,
    check_lease: Callable[[], None],
) -> dict[str, list[DataFile]]:
    """Return visible files without the logs that only pending or dead writers have written.

    Only table version 6 has such logs, because there the name of a log does not show its writer.
    The writer may still delete the log. A log with blocks that a rollback block of its slice undoes
    is kept, because cleaning deletes it together with the slice.

    Args:
        storage: the data table's root.
        files: the files, by partition path; see ``visible_files``.
        timeline: the data table's timeline.
        version: the version of the table.
        check_lease: raises if the lock was lost.

    Raises:
        CorruptData: a log file is damaged.
    """
    if not version.logs_name_their_slice:
        return {partition: list(listed) for partition, listed in files.items()}
    writers: dict[str, frozenset[str]] = {}
    undone: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for log in (file for listed in files.values() for file in listed if isinstance(file, LogFile)):
        check_lease()
        with suppress(NotFound):  # its writer deleted it after the listing
            writers[log.path], targets = read_instants(storage, log)
            undone[_slice_of(log)] |= targets

    def is_finished(file: DataFile) -> bool:
        if not isinstance(file, LogFile):
            return True
        wrote = writers.get(file.path, frozenset())
        return not wrote.isdisjoint(undone[_slice_of(file)]) or any(
            map(timeline.is_committed, wrote)
        )

    return {partition: list(filter(is_finished, listed)) for partition, listed in files.items()}


def _slice_of(log: LogFile) -> tuple[str, str, str]:
    """Return the file slice of a log of table version 6."""
    return log.partition_path, log.name.file_id, log.name.instant


def drop_metadata_table(
    storage: Storage,
    properties: TableProperties,
    check_lease: Callable[[], None],
    *,
    keeps_indexes: bool = True,
    indexes: Sequence[str] | None = None,
) -> TableProperties:
    """Delete a complete or partial metadata table; the caller holds the data table's lock.

    The metadata table is first removed from the properties, because readers would miss rows if
    files of the ``files`` partition were gone. The properties may not name the metadata table
    although its files exist. In that case the process that built it may have died, or may have
    received no answer from the store. That process may have sent a request to add the metadata
    table to the properties. This function makes that request fail, because otherwise the store
    could execute it after the files were deleted.

    Args:
        storage: the data table's root.
        properties: the data table's properties, just read.
        check_lease: raises if the lock was lost. Then another process may build a metadata table.
        keeps_indexes: whether the next metadata table has the maintained indexes of this one.
        indexes: the indexes of the next metadata table; None for those of this one.

    Returns:
        The properties without a metadata table.

    Raises:
        WriteConflict: another process has changed the properties in the meantime.
    """
    bare = (
        properties.without_metadata_table(keeps_indexes=keeps_indexes)
        if indexes is None
        else properties.with_dropped_indexes(indexes)
    )
    if properties.names_metadata_table or bare.metadata_indexes != properties.metadata_indexes:
        replace_properties(storage, properties, bare, check_lease)
        properties = bare
        paths = _paths_of_metadata_table(storage)
    elif paths := _paths_of_metadata_table(storage):
        check_lease()
        withdraw_properties(storage)
    check_lease()
    storage.delete(paths)
    if not keeps_indexes:
        remove_secondary_definitions(storage, check_lease)
    return properties


def _paths_of_metadata_table(storage: Storage) -> list[str]:
    return [info.path for info in storage.list_tree(METADATA_FOLDER)]


def build_metadata_table(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    columns: pa.Schema,
    check_lease: Callable[[], None],
    clock: TimelineClock,
    read_keys: ReadKeys,
    secondary: Sequence[SecondaryColumn] = (),
    read_rows: ReadRows = no_rows,
) -> TableProperties:
    """Build the metadata table; the caller holds the data table's lock.

    Args:
        storage: the data table's root.
        properties: the data table's properties, which name no metadata table. They may name
            indexes of the former one, which are built again.
        timeline: the data table's timeline, just loaded.
        columns: names and types of the columns with statistics; empty if the table has no schema
            yet.
        check_lease: raises if the lock was lost.
        clock: the data table's clock, which the metadata table shares.
        read_keys: reads the keys of a file slice, if the metadata table has a record index.
        secondary: the columns of the secondary indexes that the properties name.
        read_rows: reads the rows of a file slice, if there are such columns.

    Returns:
        The properties, which now name the metadata table.

    Raises:
        CorruptData, Unsupported: a data file cannot be read.
        Refused: the metadata table has a record index, and two file groups have the same key; or an
            index would be too large.
        WriteConflict: another process has changed the properties in the meantime.
    """
    data = TimelineStore.of_table(storage, properties, clock=clock)
    version = data.version
    view = load_view(data, timeline, StorageFileLister(storage), version)
    visible = visible_files(_all_files(view), timeline, version)
    files = without_unfinished_logs(storage, visible, timeline, version, check_lease)
    ranges = _file_ranges(storage, files, columns, check_lease)
    latest = {file.path for file in files_of(view.latest_slices())}
    partitions = _partitions_of(properties, version)
    changes = _first_records(files, ranges, latest, version.column_statistics)
    kinds = {kind for kind, _, _ in partitions}
    if PartitionKind.BLOOM_FILTERS in kinds:
        listed = (file for some in files.values() for file in some)
        changes[PartitionKind.BLOOM_FILTERS] = encode_bloom_filters(storage, listed)
    if PartitionKind.RECORD_INDEX in kinds:
        located = locate_keys(view.latest_slices(), read_keys, check_lease)
        changes[PartitionKind.RECORD_INDEX] = encode_locations(located, _NO_KEYS, clock)
    values = encode_values(view.latest_slices(), secondary, read_rows, check_lease)
    own = FolderStorage(storage, METADATA_FOLDER)
    own_properties = metadata_table_properties(properties)
    check_lease()
    own.create(PROPERTIES_PATH, own_properties.to_bytes())
    instants = TimelineStore.of_table(own, own_properties, clock=clock)
    store = MetadataStore(own, instants, instants.load())
    first = draw_first_number(len(partitions) + len(secondary))
    for number, (kind, prefix, count) in enumerate(partitions, first):
        shards = changes[kind].by_shard(_file_groups(kind, count, changes[kind]))
        newest = timeline.newest_time
        store.initialise(number, kind.stored_name, prefix, shards, newest, check_lease)
    for number, (column, records) in enumerate(values.items(), first + len(partitions)):
        initialise_secondary_index(
            store, number, column, records, timeline.newest_time, check_lease
        )
    if len(columns):
        define_column_statistics(storage, columns.names, version.column_statistics, check_lease)
    if PartitionKind.RECORD_INDEX in kinds:
        define_record_index(storage, check_lease)
    for column in secondary:
        define_secondary_index(storage, column.partition, column.name, column.version, check_lease)
    names = [*(kind.stored_name for kind, _, _ in partitions), *(c.partition for c in secondary)]
    after = properties.with_metadata_partitions(names)
    replace_properties(storage, properties, after, check_lease)
    return after


def initialise_secondary_index(
    store: MetadataStore,
    number: int,
    column: SecondaryColumn,
    records: RecordChanges,
    listed_at: str | None,
    check_lease: Callable[[], None],
) -> None:
    """Create the partition of a secondary index, as ``MetadataStore.initialise`` does.

    A secondary index has as many file groups as a record index of the same number of records.

    Args:
        store: the metadata table.
        number: see ``MetadataStore.initialise``, as ``listed_at`` and ``check_lease``.
        column: the indexed column.
        records: the first records of the index.
        listed_at: the newest time on the data table's timeline that the records include.
        check_lease: raises if the lock was lost.

    Raises:
        ClockBehind: ``listed_at`` is too far ahead of this machine's clock.
    """
    count = count_record_index_groups(len(records.written.keys))
    prefix, shards = f"{column.partition.replace('_', '-')}-", records.by_shard(count)
    store.initialise(number, column.partition, prefix, shards, listed_at, check_lease)


def _partitions_of(
    properties: TableProperties, version: FormatVersion
) -> list[tuple[PartitionKind, str, int]]:
    """Return the partitions of a new metadata table, in the order in which they are created.

    The indexes of the former metadata table are built again.
    """
    names = {"files", "column_stats", *properties.metadata_indexes}
    if version is not FormatVersion.V6:
        names.add("partition_stats")
    return [one for one in PARTITIONS if one[0].stored_name in names]


def _file_groups(kind: PartitionKind, count: int, changes: RecordChanges) -> int:
    """Return the number of file groups of a partition; a large record index has more."""
    if kind is not PartitionKind.RECORD_INDEX:
        return count
    return max(count, count_record_index_groups(len(changes.written.keys)))


def _all_files(view: FileSystemView) -> dict[str, list[DataFile]]:
    """Return all files of a view, visible or not, by partition."""
    files: dict[str, list[DataFile]] = {partition: [] for partition in view.partitions}
    for group in view.groups.values():
        files[group.id.partition_path] += group.files.values()
    return files


def _file_ranges(
    storage: Storage,
    files: Mapping[str, Sequence[DataFile]],
    columns: pa.Schema,
    check_lease: Callable[[], None],
) -> dict[str, dict[str, ColumnRanges]]:
    """Return the column ranges of each file, by partition path, then by file name."""
    found: dict[str, dict[str, ColumnRanges]] = {}
    for partition, listed in files.items():
        found[partition] = {}
        for file in listed if len(columns) else ():
            check_lease()
            found[partition][str(file.name)] = derive_file_ranges(storage, file, columns)
    return found


def _first_records(
    files: Mapping[str, Sequence[DataFile]],
    ranges: Mapping[str, Mapping[str, ColumnRanges]],
    latest: Collection[str],
    version: str,
) -> dict[PartitionKind, RecordChanges]:
    """Return the first records of each partition of the metadata table.

    Args:
        files: files of the data table, by partition path.
        ranges: column ranges of these files, by partition path and file name.
        latest: paths of the files that queries read; partition statistics cover only these.
        version: format version of the column statistics.
    """
    of_files = [
        StatisticsEntry(partition, name, one)
        for partition, named in ranges.items()
        for name, one in named.items()
    ]
    read = {
        partition: [one for name, one in named.items() if join(partition, name) in latest]
        for partition, named in ranges.items()
    }
    of_partitions = [
        StatisticsEntry(partition, "", ColumnRanges.union(some))
        for partition, some in read.items()
        if some
    ]
    listed = (
        FilesOfPartition(path, {str(file.name): file.size_bytes for file in some})
        for path, some in files.items()
        if some
    )
    return {
        PartitionKind.FILES: encode_files(listed, files),
        PartitionKind.COLUMN_STATS: encode_column_statistics(of_files, version),
        PartitionKind.PARTITION_STATS: encode_partition_statistics(of_partitions, version),
    }
