"""Updates the metadata table with every change to the files of its data table.

    writer_state           opens the metadata table, and checks that it may be continued
    commit_statistics      creates the column statistics of a commit
    bloom_filter_records   creates the bloom filters of a commit, if the table has this index
    record_index_changes   finds the new and removed keys of a commit, if the table has this index
    secondary_index_records   creates the changes of each secondary index
    commit_expressions     creates the changes of each expression index
    metadata_store         executes the steps of a commit to the metadata table

Source: ``HoodieBackedTableMetadataWriter`` and the ``convertMetadataTo…Records`` of
``HoodieTableMetadataUtil``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from lakemark.config.keys import GLOBAL_LOOKUP, INDEX
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import TableProperties
from lakemark.errors import (
    CorruptData,
    Fenced,
    HudiError,
    SnapshotChanged,
    TableNotFound,
    WriteConflict,
)
from lakemark.metadata.bloom_filter_records import delete_bloom_filters, encode_bloom_filters
from lakemark.metadata.bootstrap import drop_metadata_table
from lakemark.metadata.column_stats.encode import delete_column_statistics
from lakemark.metadata.commit_statistics import CommitStatistics
from lakemark.metadata.expressions.commit_expressions import CommitExpressions
from lakemark.metadata.expressions.indexed_expression import IndexedExpression
from lakemark.metadata.file_records import FilesOfPartition, encode_files
from lakemark.metadata.metadata_compaction import compact_if_due, last_compaction
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table_opener import MetadataTableOpener
from lakemark.metadata.partition_kind import PartitionKind, has_record_index
from lakemark.metadata.partition_shards import PartitionedChanges
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.record_index import RecordIndex
from lakemark.metadata.record_index_changes import RecordIndexCommit
from lakemark.metadata.recorded_files import FilesDiffer
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.secondary_index_records import secondary_index_changes
from lakemark.metadata.undo_checks import covers_too_little, may_list, was_built_since
from lakemark.metadata.writer_state import WriterState, WriterStateLoader
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
        self._expressions = CommitExpressions(self._loader)

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
                or an index was created, or the record index dropped, after the commit began.
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
        if state is None and writes_rows:
            self._check_no_dropped_record_index(read_properties(self._storage))
        if writes_rows:
            self._check_keys_are_checked_in(metadata, state)
        if state is None:
            return

        def check_not_fenced() -> None:
            self._check_not_fenced(instant)

        self._compact_if_due(state, timeline, check_not_fenced)
        stats = [stat for stat in metadata.write_stats if stat.path]
        changes: dict[str, RecordChanges | PartitionedChanges] = {_FILES: _encode_new_files(stats)}
        changes |= self._statistics.changes_of(state, instant, metadata, timeline, check_not_fenced)
        files = list(_files_of(stats))
        if _BLOOM_FILTERS in state.partitions:
            changes[_BLOOM_FILTERS] = encode_bloom_filters(self._storage, files)
        changes |= self._expressions.changes_of(state, instant, metadata, timeline, files)
        if _RECORD_INDEX in state.partitions and writes_rows:
            self._check_keys_are_unique_in(metadata, state)
            # If no other writer has changed the table, the keys need not be looked up again.
            index = None if state is known else self.record_index(timeline)
            groups = [*stats, *metadata.replaced_groups]
            changes[_RECORD_INDEX] = self._keys_of(state, instant).changes(groups, index)
            for column in self._loader.secondary_columns(state.partitions):
                changes[column.partition] = secondary_index_changes(groups, column)
        if _RECORD_INDEX in state.partitions and metadata.operation == Operation.CLUSTER:
            changes[_RECORD_INDEX] = self._keys_of(state, instant).moves(stats)
        state.store.commit(instant, changes, check_not_fenced)
        state.add_partitions(instant, stats, changes.get(_RECORD_INDEX))
        self._loader.keep(state, instant)

    def _check_keys_are_unique_in(self, metadata: CommitMetadata, state: WriterState) -> None:
        """Check that the index is not partitioned if a commit has keys of the whole table.

        Raises:
            WriteConflict: another process has replaced the record index since the keys of the
                commit were looked up.
        """
        is_global = metadata.extra_metadata.get(INDEX) == GLOBAL_LOOKUP
        if is_global and state.shard_counts is not None:
            message = (
                f"the record index of {self._storage.location.url} has keys of each partition, and "
                "was created after this commit with keys of the whole table began; write again"
            )
            raise WriteConflict(message)

    def _check_keys_are_checked_in(
        self, metadata: CommitMetadata, state: WriterState | None
    ) -> None:
        """Check that a record index still exists in which a global commit looked up its keys.

        Such a commit does not conflict with commits that add keys to other partitions, because the
        index would show if one of them has added the same key.

        Raises:
            WriteConflict: another process has dropped the index since.
        """
        is_global = metadata.extra_metadata.get(INDEX) == GLOBAL_LOOKUP
        relies_on_index = any(stat.key_changes is not None for stat in metadata.write_stats)
        has_index = state is not None and _RECORD_INDEX in state.partitions
        if is_global and relies_on_index and not has_index:
            message = (
                f"the record index of {self._storage.location.url} was dropped after this commit "
                "with keys of the whole table began, so that another writer may have added one of "
                "its keys to another partition; write again"
            )
            raise WriteConflict(message)

    def _keys_of(self, state: WriterState, instant: Instant) -> RecordIndexCommit:
        return RecordIndexCommit(
            instant.requested_at,
            self._instants.clock,
            state.shard_counts,
            partial(state.store.stored_groups, _RECORD_INDEX),
        )

    def check_record_index(self, properties: TableProperties) -> None:
        """See ``WriterStateLoader.check_record_index``."""
        self._loader.check_record_index(properties)

    def secondary_columns(self, properties: TableProperties) -> tuple[SecondaryColumn, ...]:
        """Return the columns whose values a commit collects for secondary indexes.

        Raises:
            Unsupported: lakemark does not update one of the indexes.
        """
        return self._loader.secondary_columns(properties.metadata_indexes)

    def expressions(self, properties: TableProperties) -> tuple[IndexedExpression, ...]:
        """Return the expression indexes that the table has, or had before a drop.

        Raises:
            Unsupported: lakemark does not update one of the indexes.
        """
        return self._loader.expressions(properties.metadata_indexes)

    def record_index(self, timeline: Timeline) -> RecordIndex | None:
        """Open the record index as of a timeline; None if the table has no record index.

        Raises:
            MetadataTableBehind, Unsupported: the metadata table cannot be continued; or there is a
                secondary index, but the record index is partitioned.
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

    def refusal_of_record_index(self, reason: str) -> HudiError:
        """Return the error for a record index that a writer has opened, but cannot search.

        Args:
            reason: what is wrong with the index.
        """
        if has_record_index(read_properties(self._storage)):
            return self._loader.refusal(reason)
        url = self._storage.location.url
        return SnapshotChanged(f"the record index of {url} was dropped meanwhile; write again")

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
        changes |= self._expressions.changes_of_clean(state, found)
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

        In three cases the metadata table is dropped instead. The next start of a writer builds it
        again.

        - The commit was compacted into base files, or the metadata table or one of its indexes was
          built after the commit had completed. Then it cannot be undone: the statistics and keys of
          its files would remain, or those of rows that it replaced would be missing.
        - A commit that was requested earlier completed later. Its statistics of partitions do not
          cover the rows that this commit replaced, and would become effective.
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
        partitions = properties.metadata_partitions if may_have_completed else ()
        # A commit that only replaced file groups has no file by which ``may_list`` could find it.
        is_unlisted = store.timeline.find(target) is not None and not any(deleted.values())
        may_be_compacted = is_unlisted and last_compaction(store.timeline) > target
        is_in_index = may_have_completed and was_built_since(target, store.timeline, timeline)
        must_drop = (
            may_be_compacted
            or is_in_index
            or covers_too_little(target, partitions, store.timeline, timeline)
        )
        # Before the undo: if this process dies after it, the next one no longer finds the commit.
        if must_drop:
            drop_metadata_table(self._storage, properties, check_lease)
            return
        store.undo(target, check_lease)
        metadata = self._loader.open(properties, timeline)
        is_damaged = metadata.find_file_mismatch(_FILES) is not None
        if is_damaged or may_list(metadata, deleted):
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

    def on_failure(self) -> None:
        """Discard the state, so that the next call reads it again.

        The metadata table may get another commit of the same instant, with logs of the same names.
        """
        self._loader.current = None

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

    def forget(self, properties: TableProperties) -> None:
        """Discard the state, so that the next call reads it again.

        This is needed after the metadata table was built again.

        Args:
            properties: the properties of the table, by which later commits are written.
        """
        self._loader.current = None
        self._loader.note_properties(properties)

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
