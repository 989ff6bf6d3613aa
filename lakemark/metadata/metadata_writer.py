"""Updates the metadata table with every change to the files of its data table.

    writer_state           opens the metadata table, and checks that it may be continued
    commit_statistics      creates the column statistics of a commit
    bloom_filter_records   creates the bloom filters of a commit, if the table has this index
    record_index_changes   finds the new and removed keys of a commit, if the table has this index
    secondary_index_records   creates the changes of each secondary index
    metadata_store         executes the steps of a commit to the metadata table

Source: ``HoodieBackedTableMetadataWriter`` and the ``convertMetadataTo…Records`` of
``HoodieTableMetadataUtil``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import TableProperties
from lakemark.errors import CorruptData, Fenced, TableNotFound
from lakemark.metadata.bloom_filter_records import delete_bloom_filters, encode_bloom_filters
from lakemark.metadata.bootstrap import drop_metadata_table
from lakemark.metadata.column_stats.encode import delete_column_statistics
from lakemark.metadata.commit_statistics import CommitStatistics
from lakemark.metadata.file_records import FilesOfPartition, encode_files
from lakemark.metadata.metadata_compaction import compact_if_due, last_compaction
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import MetadataTableOpener
from lakemark.metadata.partition_kind import PartitionKind, has_record_index
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.record_index import RecordIndex
from lakemark.metadata.record_index_changes import record_index_changes, record_index_moves
from lakemark.metadata.recorded_files import FilesDiffer
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.secondary_index_records import secondary_index_changes
from lakemark.metadata.valid_instants import INITIAL
from lakemark.metadata.writer_state import WriterState, WriterStateLoader
from lakemark.model.action import Action
from lakemark.model.column_ranges import indexed_columns
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.instant import Instant
from lakemark.storage.properties_file import read_properties
from lakemark.storage.storage import Storage
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, data_file

_FILES = PartitionKind.FILES.stored_name
_COLUMNS = PartitionKind.COLUMN_STATS.stored_name
_BLOOM_FILTERS = PartitionKind.BLOOM_FILTERS.stored_name
_RECORD_INDEX = PartitionKind.RECORD_INDEX.stored_name


class MetadataWriter:
    """The ``MetadataUpdater`` of a table, which may or may not have a metadata table."""

    def __init__(
        self,
        storage: Storage,
        instants: TimelineStore,
        opener: MetadataTableOpener | None = None,
        properties: TableProperties | None = None,
    ) -> None:
        """Create the writer, which reads nothing before its first call.

        Args:
            storage: the data table's root.
            instants: reads and writes the data table's timeline.
            opener: an opener that readers of this process share, so that each commit is read once.
            properties: the properties by which commits are written, as of the opening of the table;
                None if this writer commits no rows.
        """
        self._storage, self._instants = storage, instants
        self._loader = WriterStateLoader(storage, instants, opener, properties)
        self._statistics = CommitStatistics(self._loader)

    @property
    def opener(self) -> MetadataTableOpener:
        """Opens the metadata table for readers."""
        return self._loader.opener

    def rebuild_at_start(self) -> None:
        """Declare that the writer's next start rebuilds a metadata table that cannot be continued.

        Errors then name this remedy.
        """
        self._loader.rebuilds_at_start = True

    def on_commit(self, instant: Instant, metadata: CommitMetadata, timeline: Timeline) -> None:
        """Add the files of a commit, their column statistics and filters, its keys and values.

        Raises:
            Fenced: the instant was rolled back in the meantime.
            WriteConflict: another writer has added a record key of the commit to the record index;
                or an index was created after the commit began.
            Refused: the version of the table, or what it logs for CDC queries, was changed after it
                was opened.
            MetadataTableBehind: the metadata table cannot be continued, and the next start builds
                it again.
            Unsupported: the metadata table cannot be continued, and the next start does not build
                it again; or a property that was added after the table was opened forbids the
                commit.
        """
        changes_rows = bool(metadata.write_stats) or metadata.replaces_rows
        is_service = instant.action.is_table_service or not metadata.may_change_schema
        writes_rows = changes_rows and not is_service
        known = self._loader.current
        state = self._loader.load(timeline, Purpose.WRITE if writes_rows else Purpose.MAINTAIN)
        if state is None:
            if writes_rows:
                self._check_no_dropped_record_index(read_properties(self._storage))
            return

        def check_not_fenced() -> None:
            self._check_not_fenced(instant)

        self._compact_if_due(state, timeline, check_not_fenced)
        stats = [stat for stat in metadata.write_stats if stat.path]
        changes = {_FILES: _encode_new_files(stats)}
        changes |= self._statistics.changes_of(state, instant, metadata, timeline, check_not_fenced)
        if _BLOOM_FILTERS in state.partitions:
            changes[_BLOOM_FILTERS] = encode_bloom_filters(self._storage, _files_of(stats))
        if _RECORD_INDEX in state.partitions and writes_rows:
            # If no other writer has changed the table, the keys need not be looked up again.
            index = None if state is known else self.record_index(timeline)
            clock = self._instants.clock
            groups = [*stats, *metadata.replaced_groups]
            found = record_index_changes(groups, instant.requested_at, clock, index)
            changes[_RECORD_INDEX] = found
            for column in self._loader.secondary_columns(state.partitions):
                changes[column.partition] = secondary_index_changes(groups, column)
        if _RECORD_INDEX in state.partitions and metadata.operation == Operation.CLUSTER:
            clock = self._instants.clock
            changes[_RECORD_INDEX] = record_index_moves(stats, instant.requested_at, clock)
        state.store.commit(instant, changes, check_not_fenced)
        state.paths |= {stat.partition_path or "" for stat in stats}
        self._loader.keep(state, instant)

    def check_record_index(self, properties: TableProperties) -> None:
        """See ``WriterStateLoader.check_record_index``."""
        self._loader.check_record_index(properties)

    def secondary_columns(self, properties: TableProperties) -> tuple[SecondaryColumn, ...]:
        """Return the columns whose values a commit collects for secondary indexes.

        Raises:
            Unsupported: lakemark does not update one of the indexes.
        """
        return self._loader.secondary_columns(properties.metadata_indexes)

    def record_index(self, timeline: Timeline) -> RecordIndex | None:
        """Open the record index as of a timeline; None if the table has no record index.

        Raises:
            MetadataTableBehind, Unsupported: the metadata table cannot be continued, or the index
                has locations only within partitions.
            SnapshotChanged: another process has dropped the metadata table.
        """
        properties = read_properties(self._storage)
        self._check_no_dropped_record_index(properties)
        if not has_record_index(properties):
            return None
        self._loader.check_record_index(properties)
        metadata = self._loader.open(properties, timeline)
        if metadata.inconsistency is not None:
            raise self._loader.refusal(metadata.inconsistency)
        self._loader.check_files(metadata, _RECORD_INDEX)
        return RecordIndex(metadata)

    def _check_no_dropped_record_index(self, properties: TableProperties) -> None:
        """Check that the table has no record index, or has it in its metadata table.

        Without the index, a commit could add a key that another partition already has. The next
        metadata table could then not be built.
        """
        if not properties.names_metadata_table and _RECORD_INDEX in properties.metadata_indexes:
            reason = "it was dropped, and the next one must have its record index"
            raise self._loader.refusal(reason)

    def on_clean(
        self, instant: Instant, deleted: Mapping[str, Sequence[str]], timeline: Timeline
    ) -> None:
        """Remove the files that a clean deleted, their statistics, and their bloom filters.

        Errors as for ``on_commit``.
        """
        state = self._loader.load(timeline)
        if state is None:
            return
        found = [file for path, names in deleted.items() for file in _data_files(path, names)]
        removed: dict[str, set[str]] = defaultdict(set)
        for file in found:
            removed[file.partition_path].add(str(file.name))
        files = [FilesOfPartition(path, removed=names) for path, names in removed.items()]
        changes = {_FILES: encode_files(files)} if files else {}
        if _COLUMNS in state.partitions:
            named = [(path, name) for path, names in removed.items() for name in names]
            # If there is no index definition, any column may have statistics.
            columns = state.columns or indexed_columns(
                self._columns(timeline), self._instants.version
            )
            changes[_COLUMNS] = delete_column_statistics(columns, named)
        if _BLOOM_FILTERS in state.partitions:
            changes[_BLOOM_FILTERS] = delete_bloom_filters(found)
        state.store.commit(instant, changes, lambda: self._check_not_fenced(instant))
        self._loader.keep(state, instant)

    def on_rollback(
        self,
        target: str,
        deleted: Mapping[str, Sequence[str]],
        timeline: Timeline,
        check_lease: Callable[[], None],
        *,
        may_have_completed: bool,
    ) -> None:
        """Undo the commit of an instant in the metadata table.

        In two cases the metadata table is dropped instead. The next start of a writer builds it
        again.

        - The commit was compacted into base files, or the metadata table or one of its indexes was
          built after the commit had completed. Then it cannot be undone: the statistics and keys of
          its files would remain, or those of rows that it replaced would be missing.
        - Files of the metadata table itself are missing, so that it is unknown which data files it
          lists.
        """
        self._loader.current = None
        properties = read_properties(self._storage)
        if not properties.metadata_partitions:
            return
        try:
            store = self._loader.open_store()
        except TableNotFound:
            return
        # A commit that only replaced file groups has no file by which ``_may_list`` could find it.
        is_unlisted = store.timeline.find(target) is not None and not any(deleted.values())
        may_be_compacted = is_unlisted and last_compaction(store.timeline) > target
        is_in_index = may_have_completed and _was_built_since(target, store.timeline, timeline)
        store.undo(target, check_lease)
        metadata = self._loader.open(properties, timeline)
        is_damaged = metadata.find_file_mismatch(_FILES) is not None
        if may_be_compacted or is_in_index or is_damaged or _may_list(metadata, deleted):
            drop_metadata_table(self._storage, properties, check_lease)

    def has_commit(self, requested_at: str) -> bool:
        """Return whether the metadata table has a completed commit with this requested time."""
        if not read_properties(self._storage).metadata_partitions:
            return False
        try:
            own = self.opener.instants(self._instants.clock).load()
        except TableNotFound:
            return False
        found = own.find(requested_at)
        return found is not None and found.is_completed

    def compact(self, timeline: Timeline, check_lease: Callable[[], None]) -> None:
        """Compact the metadata table if enough commits have accumulated.

        Errors as for ``on_commit``.

        Args:
            timeline: the data table's timeline, just loaded under the table's lock.
            check_lease: raises if the lock was lost.
        """
        state = self._loader.load(timeline)
        if state is not None:
            self._compact_if_due(state, timeline, check_lease)
            self._loader.current = state

    def open_store(self, timeline: Timeline) -> MetadataStore | None:
        """Check that the metadata table may be continued, and open it to add a partition.

        The result is None if there is no metadata table. Errors as for ``on_commit``.

        Args:
            timeline: the data table's timeline, just loaded under the table's lock.
        """
        state = self._loader.load(timeline)  # the next call loads the state again
        return None if state is None else state.store

    def find_reason_to_rebuild(self, timeline: Timeline, schema: pa.Schema) -> str | None:
        """See ``WriterStateLoader.find_reason_to_rebuild``."""
        return self._loader.find_reason_to_rebuild(timeline, schema)

    @property
    def timeline(self) -> Timeline | None:
        """The metadata table's timeline as of this writer's last commit; None if unknown."""
        state = self._loader.current
        return state.store.timeline if state else None

    def note_table_services(self, timeline: Timeline) -> None:
        """Use this timeline of the metadata table, because cleaning or archival has changed it."""
        state = self._loader.current
        if state:
            state.store.timeline = timeline
            state.store.instants.forget_commits(timeline)

    @property
    def compacted_at(self) -> str | None:
        """Requested time of the metadata table's last compaction.

        "" if the metadata table was never compacted; None if this is unknown.
        """
        state = self._loader.current
        return last_compaction(state.store.timeline) if state else None

    def forget(self) -> None:
        """Discard the state, so that the next call reads it again.

        This is needed after the metadata table was built again.
        """
        self._loader.current = None

    def _compact_if_due(
        self, state: WriterState, timeline: Timeline, check_not_fenced: Callable[[], None]
    ) -> None:
        try:
            compact_if_due(state.store, timeline, lambda: self._columns(timeline), check_not_fenced)
        except (FilesDiffer, CorruptData) as error:
            raise self._loader.refusal(str(error)) from error

    def _columns(self, timeline: Timeline) -> pa.Schema:
        """Return the columns of the data table; empty if no active commit has a schema."""
        schema = self._loader.newest_schema(read_properties(self._storage), timeline)
        return pa.schema([]) if schema is None else schema

    def _check_not_fenced(self, instant: Instant) -> None:
        if not self._instants.is_prepared(instant):
            raise Fenced(instant.requested_at, "its prepared content was removed by a rollback")


def _encode_new_files(stats: Iterable[WriteStat]) -> RecordChanges:
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    for stat in stats:
        for path, size_bytes in stat.sizes_bytes.items():
            sizes[stat.partition_path or ""][path.rpartition("/")[2]] = size_bytes
    files = [FilesOfPartition(path, named) for path, named in sizes.items()]
    return encode_files(files, sizes)


def _files_of(stats: Iterable[WriteStat]) -> Iterator[DataFile]:
    for stat in stats:
        name = (stat.path or "").rpartition("/")[2]
        file = data_file(stat.partition_path or "", name, stat.file_size_in_bytes)
        if file is not None:
            yield file


def _data_files(partition_path: str, names: Iterable[str]) -> Iterator[DataFile]:
    """Yield the data files among some names, whose sizes are unknown."""
    for name in names:
        file = data_file(partition_path, name, 0)
        if file is not None:
            yield file


def _was_built_since(requested_at: str, metadata: Timeline, data: Timeline) -> bool:
    """Return whether a partition of the metadata table was built after an instant was requested.

    The metadata table's archival may have archived the instant that created the partition of an
    index. The data table's timeline then still has the instant that announced the index.
    """
    created = (i for i in metadata.completed() if i.requested_at.startswith(INITIAL))
    built = (*created, *data.completed(Action.INDEXING))
    return any((i.completed_at or "") > requested_at for i in built)


def _may_list(metadata: MetadataTable, files: Mapping[str, Iterable[str]]) -> bool:
    """Return whether the metadata table lists one of the files, or cannot be read."""
    try:
        listed = MetadataFileLister(metadata).list_some(files)
    except CorruptData:
        return True
    return any(
        str(file.name) in set(names) for path, names in files.items() for file in listed[path]
    )
