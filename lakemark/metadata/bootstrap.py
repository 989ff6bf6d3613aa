"""Builds the metadata table of a data table from a listing of its storage, or drops it.

As the last step, the partitions of the metadata table are added to the data table's properties. So
no reader uses the files that a crash leaves behind, and those files are deleted before the next
attempt. Files of pending instants are omitted, because their commits will add them. Source:
``initializeFromFilesystem`` of ``HoodieBackedTableMetadataWriter``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from lakemark.config.new_table_properties import metadata_table_properties
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.log.log_writers import read_instants
from lakemark.metadata.column_stats.derive import derive_file_ranges, files_of
from lakemark.metadata.column_stats.encode import (
    StatisticsEntry,
    encode_column_statistics,
    encode_partition_statistics,
)
from lakemark.metadata.deletion_order import steps_of_deletion
from lakemark.metadata.file_records import FilesOfPartition, encode_files
from lakemark.metadata.index_definition import (
    define_column_statistics,
    define_record_index,
    is_partitioned,
    read_definitions,
    remove_stale_definitions,
)
from lakemark.metadata.index_sources import (
    BLOOM_FILTERS,
    RECORD_INDEX,
    Indexed,
    IndexSources,
    define_indexed,
    new_index_of,
    new_record_index,
)
from lakemark.metadata.metadata_store import FirstRecords, MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.new_index import IndexContent, NewIndex
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.spilled_entries import SpilledEntries
from lakemark.metadata.stored_values import ReadRows, no_rows
from lakemark.metadata.valid_instants import draw_first_number, initial
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

#: The partitions of every metadata table: kind, prefix of file group ids, number of file groups.
PARTITIONS = (
    (PartitionKind.FILES, "files-", 1),
    (PartitionKind.COLUMN_STATS, "col-stats-", 2),
    (PartitionKind.PARTITION_STATS, "partition-stats-", 1),
)


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
    for step in steps_of_deletion(paths):
        check_lease()
        storage.delete(step)
    if not keeps_indexes:
        remove_stale_definitions(storage, check_lease)
    return properties


def _paths_of_metadata_table(storage: Storage) -> list[str]:
    return [info.path for info in storage.list_tree(METADATA_FOLDER)]


@dataclass(frozen=True, slots=True)
class PreparedPartition:
    """A partition of a new metadata table, with its first records.

    Attributes:
        name: name of the partition.
        records: its file groups, and their first records.
    """

    name: str
    records: FirstRecords


@dataclass(frozen=True, slots=True)
class PreparedMetadataTable:
    """The content of a new metadata table. Whatever can be refused was refused before.

    Attributes:
        storage: the data table's root.
        clock: the data table's clock, which the metadata table shares.
        partitions: the partitions in the order in which they are created.
        listed_at: the newest time on the data table's timeline that the records include.
        columns: names of the columns with statistics.
        indexed: what the indexes with own names index.
        partitioned: whether the keys of its record index are unique only within a partition.
    """

    storage: Storage
    clock: TimelineClock
    partitions: Sequence[PreparedPartition]
    listed_at: str | None
    columns: Sequence[str]
    indexed: Sequence[Indexed]
    partitioned: bool

    def write(
        self, properties: TableProperties, check_lease: Callable[[], None]
    ) -> TableProperties:
        """Write the metadata table; the caller holds the data table's lock.

        Args:
            properties: the data table's properties, which name no metadata table.
            check_lease: raises if the lock was lost.

        Returns:
            The properties, which now name the metadata table.

        Raises:
            WriteConflict: another process has changed the properties in the meantime.
        """
        own = FolderStorage(self.storage, METADATA_FOLDER)
        own_properties = metadata_table_properties(properties)
        check_lease()
        own.create(PROPERTIES_PATH, own_properties.to_bytes())
        instants = TimelineStore.of_table(own, own_properties, clock=self.clock)
        store = MetadataStore(own, instants, instants.load())
        first = draw_first_number(len(self.partitions))
        for number, one in enumerate(self.partitions, first):
            instant = initial(number)
            store.initialise(instant, one.name, one.records, self.listed_at, check_lease)
        self._define(instants.version, check_lease)
        after = properties.with_metadata_partitions(one.name for one in self.partitions)
        replace_properties(self.storage, properties, after, check_lease)
        return after

    def _define(self, version: FormatVersion, check_lease: Callable[[], None]) -> None:
        """Define the indexes, and remove the definitions of indexes that are gone."""
        names = [one.name for one in self.partitions]
        remove_stale_definitions(self.storage, check_lease, kept=names)
        if self.columns:
            define_column_statistics(
                self.storage, self.columns, version.column_statistics, check_lease
            )
        if RECORD_INDEX.partition in names:
            define_record_index(self.storage, check_lease, partitioned=self.partitioned)
        for one in self.indexed:
            define_indexed(self.storage, one, check_lease)


@contextmanager
def prepare_metadata_table(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    columns: pa.Schema,
    check_lease: Callable[[], None],
    clock: TimelineClock,
    indexes: Collection[str],
    indexed: Sequence[Indexed] = (),
    schema: pa.Schema | None = None,
    read_rows: ReadRows = no_rows,
) -> Iterator[PreparedMetadataTable]:
    """Prepare a new metadata table; the caller holds the data table's lock.

    Everything is read, and large indexes are stored on local disk until the end of the context. So
    the former metadata table is dropped only if the new one can be built.

    Args:
        storage: the data table's root.
        properties: the data table's properties.
        timeline: the data table's timeline, just loaded.
        columns: names and types of the columns with statistics; empty if the table has no schema
            yet.
        check_lease: raises if the lock was lost.
        clock: the data table's clock.
        indexes: the indexes of the new metadata table; see ``TableProperties.metadata_indexes``.
        indexed: what the indexes with own names among them index.
        schema: all columns of the table; None if it has no schema yet.
        read_rows: reads the rows of a file slice, if there is a record index.

    Raises:
        CorruptData, Unsupported: a data file cannot be read.
        Refused: the metadata table has a record index, and two file groups have the same key.
        StorageUnavailable: the disk of the temporary folder is full.
    """
    data = TimelineStore.of_table(storage, properties, clock=clock)
    version = data.version
    view = load_view(data, timeline, StorageFileLister(storage), version)
    slices = view.latest_slices()
    visible = visible_files(_all_files(view), timeline, version)
    files = without_unfinished_logs(storage, visible, timeline, version, check_lease)
    ranges = _file_ranges(storage, files, columns, check_lease)
    latest = {file.path for file in files_of(slices)}
    changes = _first_records(files, ranges, latest, version.column_statistics)
    partitions = [
        PreparedPartition(kind.stored_name, FirstRecords.of(changes[kind], prefix, count))
        for kind, prefix, count in _of_every_table(version)
    ]
    listed = list(chain(*files.values()))
    sources = IndexSources(
        storage, clock, timeline, version, slices, files, listed, read_rows, columns, schema
    )
    partitioned = is_partitioned(read_definitions(storage))
    with ExitStack() as opened:
        for index, one in _new_indexes(indexes, indexed, partitioned=partitioned):
            content = IndexContent(index, storage, opened.enter_context(SpilledEntries()))
            content.update(sources.of(index, one), check_lease)
            partitions.append(PreparedPartition(index.partition, content.encode()))
        yield PreparedMetadataTable(
            storage,
            clock,
            partitions,
            timeline.newest_time,
            columns.names,
            indexed,
            partitioned,
        )


def kinds_of_every_table(version: FormatVersion) -> list[PartitionKind]:
    """Return the partitions that every metadata table of lakemark has in this table version."""
    return [kind for kind, _, _ in _of_every_table(version)]


def _of_every_table(version: FormatVersion) -> Iterator[tuple[PartitionKind, str, int]]:
    """Yield the partitions of every metadata table, in the order in which they are created."""
    for kind, prefix, count in PARTITIONS:
        if kind is not PartitionKind.PARTITION_STATS or version is not FormatVersion.V6:
            yield kind, prefix, count


def _new_indexes(
    indexes: Collection[str], indexed: Iterable[Indexed], *, partitioned: bool
) -> Iterator[tuple[NewIndex, Indexed | None]]:
    for index in (BLOOM_FILTERS, new_record_index(partitioned=partitioned)):
        if index.partition in indexes:
            yield index, None
    for one in indexed:
        yield new_index_of(one), one


def all_finished_files(
    storage: Storage,
    view: FileSystemView,
    timeline: Timeline,
    version: FormatVersion,
    check_lease: Callable[[], None],
) -> list[DataFile]:
    """Return the files of a view, also of older slices, that completed instants have written.

    See ``visible_files`` and ``without_unfinished_logs``.
    """
    visible = visible_files(_all_files(view), timeline, version)
    files = without_unfinished_logs(storage, visible, timeline, version, check_lease)
    return list(chain(*files.values()))


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
