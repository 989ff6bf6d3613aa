"""Keeps the state of a metadata table for its writer, and checks that it may be continued.

A metadata table may be continued if a writer may add commits to it. Otherwise it must be built
again.

Usually one driver writes a table, so the state is kept from call to call. The state is loaded again
if the data table's timeline shows instants of other writers, if it lacks an instant of this writer,
or if another process built the metadata table again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lakemark.config import keys
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.errors import (
    CorruptData,
    Refused,
    Retriable,
    SnapshotChanged,
    TableNotFound,
    Unsupported,
)
from lakemark.metadata.column_stats.known_files import KnownFiles
from lakemark.metadata.consistency import find_inconsistency
from lakemark.metadata.expressions.indexed_expression import (
    IndexedExpression,
    indexed_expressions,
    is_expression_index,
)
from lakemark.metadata.index_definition import (
    DEFINITIONS_PATH,
    is_partitioned,
    read_definitions,
)
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER, MetadataTableOpener
from lakemark.metadata.partition_kind import PartitionKind, find_missing_statistics
from lakemark.metadata.partition_shards import PartitionedChanges
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.record_index import RecordIndex
from lakemark.metadata.secondary_columns import (
    SecondaryColumn,
    is_secondary_index,
    secondary_columns,
)
from lakemark.model.action import COMMITS
from lakemark.model.column_ranges import ColumnRanges, indexed_columns
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.instant import Instant
from lakemark.read.scan_planner import table_schema
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import check_same_version
from lakemark.storage.storage import ObjectInfo, Storage
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore

_FILES = PartitionKind.FILES.stored_name
_COLUMNS = PartitionKind.COLUMN_STATS.stored_name
_RECORD_INDEX = PartitionKind.RECORD_INDEX.stored_name


class MetadataTableBehind(Retriable):
    """A writer cannot continue its metadata table, and builds it again at its next start."""


@dataclass(kw_only=True)
class WriterState:
    """The state of a metadata table after the last call.

    Attributes:
        store: writes the metadata table.
        properties_file: the ``hoodie.properties`` file of the metadata table. A metadata table that
            was built again has a different file.
        partitions: partitions of the metadata table that readers use.
        instants: requested times of the data table's completed instants that the metadata table
            includes.
        columns: columns with statistics, according to the index definition.
        committed_columns: the subset of ``columns`` that a completed commit has. The definition is
            written before the commit, so it may name a column whose commit never completed. No
            partition has a record of such a column.
        paths: paths of the data table's partitions.
        ranges: column ranges of the partitions that this writer has written to, by path.
        files: the files of the partitions that this writer has written to last.
        expression_ranges: for each expression index, the ranges of its values in the same
            partitions.
        definitions_file: the file with the index definitions, if the table has an index of values.
            An index that was dropped and created again has a new definition.
        shard_counts: for a record index whose keys are unique only within a partition, the number
            of its file groups for each partition that has any; None for any other table.
        series_created_by: requested time of the last commit of this writer that has created file
            groups for a partition, unless it is known to have completed. A rollback removes them.
    """

    store: MetadataStore
    properties_file: ObjectInfo | None
    partitions: frozenset[str]
    instants: set[str]
    columns: list[str]
    committed_columns: set[str]
    paths: set[str]
    ranges: dict[str, ColumnRanges] = field(default_factory=dict)
    files: KnownFiles = field(default_factory=KnownFiles)
    expression_ranges: dict[str, dict[str, ColumnRanges]] = field(default_factory=dict)
    definitions_file: ObjectInfo | None = None
    shard_counts: dict[str, int] | None = None
    series_created_by: str | None = None

    def add_partitions(
        self,
        instant: Instant,
        stats: Iterable[WriteStat],
        keys: RecordChanges | PartitionedChanges | None,
    ) -> None:
        """Add the partitions of the data table that a commit has written.

        Args:
            instant: the commit, which has not yet completed in the data table.
            stats: the files of the commit.
            keys: the changes of the commit to the record index.
        """
        self.paths |= {stat.partition_path or "" for stat in stats}
        if isinstance(keys, PartitionedChanges) and keys.new_counts:
            assert self.shard_counts is not None
            self.shard_counts |= keys.new_counts
            self.series_created_by = instant.requested_at

    def has_series(self, completed: Collection[str]) -> bool:
        """Return whether the commit that last created file groups of the index has completed.

        Args:
            completed: requested times of the completed instants of the data table.
        """
        if self.series_created_by in completed:
            self.series_created_by = None
        return self.series_created_by is None


class WriterStateLoader:
    """Opens and checks the metadata table for its writer, and keeps the state between calls.

    Attributes:
        storage: the data table's root.
        instants: reads the data table's timeline.
        opener: opens the metadata table for readers.
        current: the state as of the last call that succeeded; None before the first such call.
        rebuilds_at_start: whether the next start of the writer builds a metadata table again if it
            cannot be continued.
    """

    def __init__(
        self,
        storage: Storage,
        instants: TimelineStore,
        opener: MetadataTableOpener | None = None,
        properties: TableProperties | None = None,
    ) -> None:
        """Create the loader, which reads nothing before its first call.

        Args:
            storage: the data table's root.
            instants: reads the data table's timeline.
            opener: an opener that readers of this process share, so that each commit is read once.
            properties: see ``MetadataWriter``.
        """
        self._opened_with = properties
        self.storage, self.instants = storage, instants
        self.opener = opener or MetadataTableOpener(storage)
        self.current: WriterState | None = None
        self.rebuilds_at_start = False

    def load(self, timeline: Timeline, purpose: Purpose = Purpose.MAINTAIN) -> WriterState | None:
        """Return the state as of a timeline; None if the table has no metadata table.

        ``current`` is None until ``keep`` is called, because the caller may fail.

        Raises:
            Refused: the version of the table was changed after it was opened.
            MetadataTableBehind: the metadata table cannot be continued, and the next start builds
                it again.
            Unsupported: the metadata table cannot be continued, and the next start does not build
                it again; or a property of the table forbids the purpose.
        """
        state, self.current = self.current, None
        properties = check_same_version(self.storage, self.instants.version)
        check_allows(properties, purpose, self.storage.location.url)
        if purpose is Purpose.WRITE:
            self._check_logged_changes(properties)
            self._check_statistics_columns(properties)
        partitions = frozenset(properties.metadata_partitions)
        if not partitions:
            return None
        completed = {i.requested_at for i in timeline.instants if i.is_completed}
        file = self.storage.head(f"{METADATA_FOLDER}/{PROPERTIES_PATH}")
        is_same = state is not None and (
            (state.properties_file, state.partitions, state.definitions_file)
            == (file, partitions, self._definitions_file(properties))
            and state.has_series(completed)
        )
        if state is None or not is_same or _has_changed(state.instants, completed, timeline):
            return self._read(properties, file, timeline, completed)
        state.instants = completed
        return state

    def _check_logged_changes(self, properties: TableProperties) -> None:
        """Check that a commit has the ``.cdc`` files that the table needs.

        Raises:
            Refused: the table logs other changes than when it was opened.
        """
        known = self._opened_with
        if known is None or properties.is_merge_on_read:
            return
        if (known.cdc_enabled, known.cdc_logging_mode) != (
            properties.cdc_enabled,
            properties.cdc_logging_mode,
        ):
            message = (
                f"table {self.storage.location.url} logs other changes for CDC queries than when "
                "it was opened (hoodie.table.cdc.*); open the table again, or restart the pipeline"
            )
            raise Refused(message)

    def _check_statistics_columns(self, properties: TableProperties) -> None:
        """Check that a commit has statistics of the columns that the table needs.

        Raises:
            Refused: the table has statistics of other columns than when it was opened.
        """
        known = self._opened_with
        if known is None or known.statistics_columns == properties.statistics_columns:
            return
        message = (
            f"table {self.storage.location.url} has statistics of other columns than when it was "
            f"opened ({keys.STATISTICS_COLUMNS}); open the table again, or restart the pipeline"
        )
        raise Refused(message)

    def _definitions_file(self, properties: TableProperties) -> ObjectInfo | None:
        named = properties.metadata_partitions
        has_values = _RECORD_INDEX in named or any(map(is_expression_index, named))
        return self.storage.head(DEFINITIONS_PATH) if has_values else None

    def note_properties(self, properties: TableProperties) -> None:
        """Note that this process has changed properties by which commits are written."""
        self._opened_with = properties

    def keep(self, state: WriterState, instant: Instant) -> None:
        """Keep the state for the next call, after the metadata table has received an instant."""
        state.instants.add(instant.requested_at)
        self.current = state

    def find_reason_to_rebuild(self, timeline: Timeline, schema: pa.Schema) -> str | None:
        """Return why the metadata table must be built again; None if a writer may continue it.

        Args:
            timeline: the data table's timeline, just loaded.
            schema: the data table's columns.

        Raises:
            Refused: the version of the table was changed after it was opened.
            Unsupported: the metadata table has partitions that lakemark does not write.
        """
        properties = check_same_version(self.storage, self.instants.version)
        check_allows(properties, Purpose.MAINTAIN, self.storage.location.url)
        self.check_record_index(properties)
        self.secondary_columns(properties.metadata_indexes)
        self.expressions(properties.metadata_indexes)
        if not properties.metadata_partitions:
            return "there is none"
        reason = self._find_inconsistency(properties, timeline) or self._find_other_columns(
            properties, schema
        )
        return reason or _find_file_mismatch(self.open(properties, timeline))

    def open(self, properties: TableProperties, timeline: Timeline) -> MetadataTable:
        """Open the metadata table that the properties name; see ``MetadataTableOpener.open``.

        Raises:
            SnapshotChanged: the properties name no metadata table, because another process has
                dropped it.
        """
        metadata = self.opener.open(properties, timeline, self.instants.clock)
        if metadata is None:
            url = self.storage.location.url
            message = f"the metadata table of {url} was dropped meanwhile; open the table again"
            raise SnapshotChanged(message)
        return metadata

    def open_store(self) -> MetadataStore:
        """Open the metadata table for writing.

        Raises:
            TableNotFound: the metadata table does not exist.
        """
        instants = self.opener.instants(self.instants.clock)
        own = FolderStorage(self.storage, METADATA_FOLDER)
        return MetadataStore(own, instants, instants.load())

    def check_files(self, metadata: MetadataTable, *partitions: str) -> None:
        """Check that the files of these partitions are as the metadata table's commits wrote them.

        Raises:
            MetadataTableBehind, Unsupported: a file is missing or differs; see ``refusal``.
        """
        for partition in metadata.partitions.intersection(partitions):
            reason = metadata.find_file_mismatch(partition)
            if reason is not None:
                raise self.refusal(reason)

    def check_record_index(self, properties: TableProperties) -> None:
        """Check that the record index, if there is or was one, has the keys that others need.

        Raises:
            Unsupported: there are secondary indexes, but the keys of the record index are unique
                only within a partition of the table.
        """
        indexes = properties.metadata_indexes
        needing = [name for name in indexes if is_secondary_index(name)]
        if needing and is_partitioned(read_definitions(self.storage)):
            url, name = self.storage.location.url, needing[0]
            message = (
                f"table {url} has a secondary index {name!r} and a partitioned record index "
                "(isPartitioned), but a secondary index has no partitions of its record keys, so "
                "that lakemark does not update it; drop it (lakemark table index drop "
                f"{url} {name} --run)"
            )
            raise Unsupported(message)

    def secondary_columns(self, partitions: Iterable[str]) -> tuple[SecondaryColumn, ...]:
        """Return the columns that have a secondary index, according to the definitions as of now.

        Args:
            partitions: names of partitions of the metadata table, of any kind.

        Raises:
            Unsupported: lakemark does not update one of the indexes.
        """
        named = [one for one in partitions if is_secondary_index(one)]
        definitions = read_definitions(self.storage) if named else {}
        return secondary_columns(named, definitions, self.storage.location.url)

    def expressions(self, partitions: Iterable[str]) -> tuple[IndexedExpression, ...]:
        """Return the expression indexes, according to the definitions as of now.

        Arguments and errors are as for ``secondary_columns``.
        """
        named = [one for one in partitions if is_expression_index(one)]
        definitions = read_definitions(self.storage) if named else {}
        return indexed_expressions(named, definitions, self.storage.location.url)

    def refusal(self, reason: str) -> MetadataTableBehind | Unsupported:
        """Return the error for a metadata table that cannot be continued."""
        url = self.storage.location.url
        text = f"the metadata table of {url} cannot be continued: {reason}"
        if self.rebuilds_at_start:
            return MetadataTableBehind(f"{text}; the next start builds it again")
        remedy = f"build it again with lakemark table check {url} --rebuild --run"
        return Unsupported(f"{text}; {remedy}")

    def _read(
        self,
        properties: TableProperties,
        file: ObjectInfo | None,
        timeline: Timeline,
        completed: set[str],
    ) -> WriterState:
        self.check_record_index(properties)
        reason = self._find_inconsistency(properties, timeline)
        if reason is not None:
            raise self.refusal(reason)
        metadata = self.open(properties, timeline)
        definitions = read_definitions(self.storage)
        has_series = _RECORD_INDEX in metadata.partitions and is_partitioned(definitions)
        self.check_files(metadata, *([_FILES, _RECORD_INDEX] if has_series else [_FILES]))
        try:
            index = RecordIndex(metadata) if has_series else None
            reason = None if index is None else index.find_damage()
            paths = set(MetadataFileLister(metadata).list_partitions())
        except CorruptData as error:
            raise self.refusal(str(error)) from error
        if reason is not None:
            raise self.refusal(reason)
        definition = definitions.get(_COLUMNS)
        defined = list(definition.source_fields) if definition else []
        return WriterState(
            store=self.open_store(),
            properties_file=file,
            partitions=frozenset(properties.metadata_partitions),
            instants=completed,
            columns=defined,
            committed_columns=self._committed_columns(defined, properties, timeline),
            paths=paths,
            definitions_file=self._definitions_file(properties),
            shard_counts=None if index is None else index.count_groups(),
        )

    def _committed_columns(
        self, defined: Iterable[str], properties: TableProperties, timeline: Timeline
    ) -> set[str]:
        """Return the defined columns that exist in the newest schema of a completed commit.

        If no active commit has a schema, all defined columns are returned.
        """
        schema = self.newest_schema(properties, timeline)
        if schema is None:
            return set(defined)
        return {name for name in defined if name.partition(".")[0] in schema.names}

    def newest_schema(self, properties: TableProperties, timeline: Timeline) -> pa.Schema | None:
        """Return the columns of the newest completed commit that has a schema.

        The result is None if no active commit has a schema.
        """
        for instant in reversed(timeline.completed(*COMMITS)):
            text = self.instants.read_commit(instant).extra_metadata.get(keys.SCHEMA)
            if text:
                return table_schema(json.loads(text), properties)
        return None

    def _find_inconsistency(self, properties: TableProperties, timeline: Timeline) -> str | None:
        """Return what is wrong with the partitions, timeline or index version, if anything."""
        try:
            store = self.open_store()
        except TableNotFound:
            return f"{METADATA_FOLDER} does not exist"
        definition = read_definitions(self.storage).get(_COLUMNS)
        wanted = self.instants.version.column_statistics
        if definition is not None and definition.version != wanted:
            return f"its column statistics are of version {definition.version}, not {wanted}"
        missing = find_missing_statistics(properties.metadata_partitions)
        return missing or find_inconsistency(timeline, store.timeline)

    def _find_other_columns(self, properties: TableProperties, schema: pa.Schema) -> str | None:
        """Return how the indexed columns differ from those that lakemark indexes; None if equal.

        Each writer of Apache Hudi keeps statistics of the columns in its own configuration. If
        lakemark continued such an index, only some files would have statistics of a column.
        """
        definition = read_definitions(self.storage).get(_COLUMNS)
        if definition is None:
            return None
        wanted = indexed_columns(schema, self.instants.version, properties.statistics_columns)
        indexed = [n for n in definition.source_fields if n.partition(".")[0] in schema.names]
        missing = [name for name in wanted if name not in indexed]
        if missing:
            return f"it has no statistics of column {missing[0]}"
        other = [name for name in indexed if name not in wanted]
        return f"it has statistics of column {other[0]}, which lakemark omits" if other else None


def _has_changed(known: Collection[str], completed: Collection[str], timeline: Timeline) -> bool:
    """Return whether the completed instants are others than those of this writer.

    An instant that is no longer completed was undone, or its publication failed. The second may
    still complete: a store may execute a request late. Archived instants do not count.

    Args:
        known: requested times of the instants that the metadata table included last.
        completed: requested times of the completed instants of the data table.
        timeline: the data table's timeline, just loaded.
    """
    gone = (name for name in known if name not in completed)
    return not {*completed} <= {*known} or any(
        timeline.find(name) is not None or not timeline.is_archived(name) for name in gone
    )


def _find_file_mismatch(metadata: MetadataTable) -> str | None:
    """Return what is wrong with the files of a metadata table; None if nothing is.

    The list of partitions and the file groups of a record index are read, too, to find damage.
    """
    found = (metadata.find_file_mismatch(one) for one in sorted(metadata.partitions))
    reason = next((one for one in found if one is not None), None)
    return reason or _find_damage(metadata)


def _find_damage(metadata: MetadataTable) -> str | None:
    try:
        MetadataFileLister(metadata).list_partitions()
        has_index = _RECORD_INDEX in metadata.partitions
        return RecordIndex(metadata).find_damage() if has_index else None
    except CorruptData as error:
        return str(error)
