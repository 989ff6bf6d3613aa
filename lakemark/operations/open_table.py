"""An open table: its storage, timeline, lock and metadata table, opened when they are needed.

``lakemark.Table`` is the facade for users. Only an operation that changes the table needs the lock
and the writer of the metadata table, so a query does not open them. The modules of the lock and of
this writer are imported only when needed, because the import takes longer than a query of a small
table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config import keys
from lakemark.config.key_generators import find_implemented
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import TableProperties
from lakemark.errors import CorruptData, InvalidConfig, SnapshotChanged
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.merge.custom.api import CustomMerger
from lakemark.metadata.index_definition import is_partitioned
from lakemark.metadata.metadata_table_opener import MetadataTableOpener
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.cached_snapshot import CachedSnapshot
from lakemark.operations.expression_trust import trusted_expressions
from lakemark.read.index_protocols import FileStatistics, GroupIndex, KeySearch, SliceSearch
from lakemark.read.instant_range import EARLIEST
from lakemark.read.path_columns import PathColumns
from lakemark.read.queries import Incremental, Query, Snapshot
from lakemark.read.query_instant import GivenTime
from lakemark.read.renamed_columns import LATEST_SCHEMA, check_no_renamed_columns
from lakemark.read.scan import Scan
from lakemark.read.scan_planner import (
    ScanPlanner,
    may_change_in_compaction,
    may_make_values,
    table_schema,
)
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.visible_instants import VisibleInstants

if TYPE_CHECKING:
    from lakemark.keygen.key_generator import KeyGeneratorConfig
    from lakemark.metadata.metadata_writer import MetadataWriter
    from lakemark.read.cdc import ChangeFormat
    from lakemark.read.cdc.scan import CdcScan
    from lakemark.read.demanded_values import DemandedValues
    from lakemark.read.explanation import Explanation
    from lakemark.timeline.locks.table_lock import TableLock
    from lakemark.transaction.metadata_updater import MetadataUpdater
    from lakemark.transaction.multi_writer import MultiWriter
    from lakemark.transaction.table_context import TableContext

Planned = TypeVar("Planned")

LATEST = Snapshot()

_NO_COLUMNS: dict[str, Any] = {"type": "record", "name": "empty", "fields": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordination:
    """How the writers of one table coordinate. All writers must use the same settings.

    Attributes:
        lock_provider: where the table's lock is stored; see ``open_lock``.
        lock_expire_minutes: when a lock file of Apache Hudi expires; see ``open_lock``.
        lock_options: the options of the lock provider; see ``open_lock``. They are never printed.
        multi_writer: the settings of a shared table; None if this writer is the only one.
    """

    lock_provider: str = LockProviderName.STORAGE
    lock_expire_minutes: int = 0
    lock_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    multi_writer: MultiWriter | None = None

    def lock_of(self, storage: Storage) -> TableLock | None:
        """Return the table's lock; None for the default lock, which is opened when needed.

        Raises:
            InvalidConfig: the lock provider does not work on this storage, or has no such options.
        """
        if self.lock_provider == LockProviderName.STORAGE and not self.lock_options:
            return None
        return open_lock(
            storage,
            provider=self.lock_provider,
            expire_minutes=self.lock_expire_minutes,
            options=self.lock_options,
        )


class OpenTable:
    """One open table.

    Attributes:
        storage: the storage of the table's root.
        mergers: the users' mergers, for a table in merge mode ``CUSTOM``.
        version: the table's format version.
        store: the reader and writer of the table's timeline.
        metadata_opener: opens the metadata table for reading.
        runner: runs tasks; None to run them in threads of this process.
        base_files: how this process writes base files.
        snapshot: the cached properties, timeline and view, as of the last ``refresh`` or the last
            change by this process.
    """

    def __init__(
        self,
        storage: Storage,
        properties: TableProperties,
        *,
        mergers: Sequence[CustomMerger] = (),
        timezone: str | None = None,
        clock: TimelineClock | None = None,
        lock: TableLock | None = None,
        multi_writer: MultiWriter | None = None,
        runner: Runner | None = None,
        metadata_updater: MetadataUpdater | None = None,
        base_files: ParquetSettings = PARQUET_DEFAULTS,
    ) -> None:
        """Open a table without reading anything; everything is read when it is first needed.

        Args:
            storage: the storage of the table's root.
            properties: the table's properties.
            mergers: see ``open_table``.
            timezone: see ``open_table``.
            clock: the clock of the table's timeline, if it is known.
            lock: the table's lock; None to open the default lock when it is needed.
            multi_writer: the settings of a shared table; None if this writer is the only one.
            runner: runs tasks; None to run them in threads of this process.
            metadata_updater: records each change; None for the writer of the metadata table.
            base_files: how this process writes base files.
        """
        self.storage = storage
        self.mergers = tuple(mergers)
        self.version = FormatVersion.of(properties.version, storage.location.url)
        self.store = TimelineStore.of_table(storage, properties, timezone, clock)
        self.metadata_opener = MetadataTableOpener(storage)
        self.snapshot = CachedSnapshot(storage, properties, self.store, self.metadata_opener)
        self._lock, self._multi_writer = lock, multi_writer
        self.runner, self._metadata_updater = runner, metadata_updater
        self.base_files = base_files
        self._first_ring_count: int | None = None

    def __repr__(self) -> str:
        return f"OpenTable({self.location.url!r}, version {int(self.version)})"

    @cached_property
    def metadata_writer(self) -> MetadataWriter:
        """The writer that keeps the metadata table up to date."""
        from lakemark.metadata.metadata_writer import MetadataWriter

        return MetadataWriter(self.storage, self.store, self.metadata_opener, self.properties)

    @property
    def first_ring_count(self) -> int | None:
        """The number of buckets of a new partition; None without consistent hashing.

        If there is no partition yet, a commit of lakemark, or the table's creation, records the
        number.

        Raises:
            CorruptData: the newest hash ring is damaged.
        """
        if self._first_ring_count is None:
            from lakemark.index.ring_files import first_count_of

            self._first_ring_count = first_count_of(self.storage)
        if self._first_ring_count is None:
            newest = self.newest_metadata()
            created = newest.extra_metadata if newest else self.index_of_creation
            recorded = created.get(keys.FIRST_BUCKETS)
            self._first_ring_count = None if recorded is None else int(recorded)
        return self._first_ring_count

    @cached_property
    def context(self) -> TableContext:
        """The table's storage, timeline, lock and settings, for a transaction."""
        from lakemark.transaction.table_context import TableContext

        return TableContext(
            storage=self.storage,
            timeline=self.store,
            lock=self._lock or open_lock(self.storage),
            metadata_updater=self._metadata_updater or self.metadata_writer,
            multi_writer=self._multi_writer,
            runner=self.runner or LocalRunner(1),
        )

    def with_properties(self, properties: TableProperties) -> OpenTable:
        """Return this table with new properties, after a version change, but with the same lock."""
        return OpenTable(
            self.storage,
            properties,
            mergers=self.mergers,
            clock=self.store.clock,
            lock=self._lock,
            multi_writer=self._multi_writer,
            runner=self.runner,
            base_files=self.base_files,
        )

    @property
    def location(self) -> StorageLocation:
        """The location of the table."""
        return self.storage.location

    @property
    def properties(self) -> TableProperties:
        """The table's properties as they were last read."""
        return self.snapshot.properties

    @property
    def timeline(self) -> Timeline:
        """The active timeline as of the last ``refresh`` or the last change by this process."""
        return self.snapshot.timeline

    def view(self) -> FileSystemView:
        """Return the file slices as of ``timeline``; see ``CachedSnapshot.view``."""
        return self.snapshot.view()

    def view_at(self, timeline: Timeline) -> FileSystemView:
        """Return the file slices as of a timeline that was just loaded, and cache both."""
        self.snapshot.refresh(timeline)
        return self.snapshot.view()

    def refresh(self, loaded: Timeline | None = None) -> None:
        """Load the timeline; see ``CachedSnapshot.refresh``."""
        self.snapshot.refresh(loaded)

    @property
    def visible_instants(self) -> VisibleInstants:
        """The instants whose log blocks are visible to queries, as of ``timeline``."""
        return VisibleInstants.of(self.timeline, self.version)

    def newest_metadata(self) -> CommitMetadata | None:
        """Return the metadata of the newest completed commit that contains the table's schema.

        Columns may be added while a table service runs. So the commit of a table service is
        returned only if no other commit contains a schema.
        """
        of_service = None
        for instant in reversed(self.timeline.completed(*COMMITS)):
            metadata = self.store.read_commit(instant)
            if metadata.extra_metadata.get(keys.SCHEMA):
                if metadata.may_change_schema:
                    return metadata
                of_service = of_service or metadata
        return of_service

    @property
    def bucket_count(self) -> int | None:
        """The number of buckets in each partition, from the newest active commit that records it.

        Before the first commit, the number is that of the table's creation. None if no commit
        records the number. Commits of Apache Hudi do not record it.
        """
        for instant in reversed(self.timeline.completed(*COMMITS)):
            count = self.store.read_commit(instant).extra_metadata.get(keys.BUCKET_COUNT)
            if count is not None:
                return int(count)
        count = self.index_of_creation.get(keys.BUCKET_COUNT)
        return None if count is None else int(count)

    @property
    def index_of_creation(self) -> Mapping[str, str]:
        """The index with which lakemark created the table, under the keys that commits use.

        Empty if the table has a commit, which records the index; or if no index is known.
        """
        if self.timeline.completed(*COMMITS):
            return {}
        stored = self.properties.values
        return {key: stored[key] for key in keys.INDEX_OF_CREATION if key in stored}

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The fields of the record key that the bucket index hashes; empty if it hashes all."""
        newest = self.newest_metadata()
        return () if newest is None else _hash_fields(newest, self.properties)

    @property
    def schema(self) -> pa.Schema | None:
        """The table's columns, meta columns first; None before the first commit."""
        stored = self._avro_schema()
        return None if stored is None else table_schema(stored, self.properties)

    @property
    def known_schema(self) -> pa.Schema | None:
        """The columns of the newest commit, or else the columns of the table's creation.

        None if neither is known.
        """
        known = self._known_avro_schema()
        return None if known is None else table_schema(known, self.properties)

    @property
    def is_schema_known(self) -> bool:
        """Whether the columns are known, from a commit or from the table's creation."""
        return self._known_avro_schema() is not None

    def scan(
        self,
        query: Query = LATEST,
        columns: Sequence[str] | None = None,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Scan:
        """Plan to read rows; see ``lakemark.Table.scan``."""

        def plan() -> Scan:
            planner, condition, keys = self._prepare(query, where, record_keys)
            return planner.plan(query, columns, condition, keys)

        return self._with_current_metadata(plan)

    def explain(
        self,
        query: Query = LATEST,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Explanation:
        """Explain which file groups a query reads; see ``lakemark.Table.explain``."""
        from lakemark.read import explanation  # imported here, because few queries need it

        def explain() -> Explanation:
            planner, condition, keys = self._prepare(query, where, record_keys)
            return explanation.explain(planner, query, condition, keys)

        return self._with_current_metadata(explain)

    def _with_current_metadata(self, plan: Callable[[], Planned]) -> Planned:
        """Plan a query; if the metadata table has changed since it was opened, plan it again."""
        try:
            return plan()
        except (SnapshotChanged, CorruptData):
            # Another process may have built the metadata table again since it was opened.
            if not self.snapshot.forget_metadata():
                raise
            return plan()

    def _prepare(
        self,
        query: Query,
        where: pc.Expression | str | None,
        record_keys: Sequence[str] | None,
    ) -> tuple[ScanPlanner, pc.Expression | None, pa.Array | None]:
        """Return the planner of a query, its parsed condition, and its keys as an Arrow array."""
        if not isinstance(where, pc.Expression | str | None):
            message = f"where is {where!r}; pass an Arrow expression, or a condition as text"
            raise InvalidConfig(message)
        is_filtered = where is not None or record_keys is not None
        is_latest = not isinstance(query, Incremental) and query.as_of is None
        planner = self._planner(is_filtered=is_filtered, is_latest=is_latest)
        given = where
        if isinstance(where, str):
            from lakemark.read.where import parse_where

            where = parse_where(where, planner.schema)
        elif where is not None and (isinstance(query, Incremental) or query.as_of is None):
            _check_condition(where, planner.schema)
        wanted = None if record_keys is None else pa.array(record_keys, pa.string())
        if is_filtered:
            is_current = is_latest and isinstance(query, Snapshot)
            planner = self._with_demands(planner, given, wanted, is_current=is_current)
        return planner, where, wanted

    def _with_demands(
        self,
        planner: ScanPlanner,
        where: pc.Expression | str | None,
        record_keys: pa.Array | None,
        *,
        is_current: bool,
    ) -> ScanPlanner:
        """Return the planner with the keys and values that a query demands, and their indexes.

        Args:
            planner: the planner of the query.
            where: the condition on the rows.
            record_keys: the keys of the rows; None for any key.
            is_current: whether the query is a snapshot query of the latest rows.
        """
        from lakemark.read.demanded_keys import demanded_keys
        from lakemark.read.demanded_values import demanded_values

        values = {} if where is None else demanded_values(where, planner.schema)
        if record_keys is None:
            demanded = demanded_keys(values, planner.schema, self._key_settings())
        else:
            demanded = record_keys.drop_null()
        if is_current and values:
            value_groups = self._groups_of_values(values, planner.schema)
            value_filters = self._filters_of_values(values, planner.schema)
            planner = replace(planner, value_groups=value_groups, value_filters=value_filters)
        if demanded is None or not self.properties.populates_meta_columns:
            return replace(planner, demanded_keys=demanded)
        groups = self._groups_of_keys(demanded) if is_current else None
        filters = self._key_filters() if groups is None else None
        return replace(planner, demanded_keys=demanded, key_groups=groups, key_filters=filters)

    def changes(self, begin: GivenTime = EARLIEST, end: GivenTime | None = None) -> CdcScan:
        """Plan to read changes; see ``lakemark.Table.changes``."""
        return self._planner().changes(begin, end)

    def changes_of(self, commits: Sequence[Instant], form: ChangeFormat) -> CdcScan:
        """Plan to read the changes of some commits; see ``cdc.plan_commits``."""
        return self._planner().changes_of(commits, form)

    def rows_of(self, commit: Instant) -> Scan:
        """Plan to read the rows that one commit wrote; see ``incremental.plan_commit``."""
        return self._planner().rows_of(commit)

    def _avro_schema(self) -> dict[str, Any] | None:
        metadata = self.newest_metadata()
        if metadata is None:
            return None
        check_no_renamed_columns(self.storage, metadata.extra_metadata)
        parsed: dict[str, Any] = json.loads(metadata.extra_metadata[keys.SCHEMA])
        return parsed

    def _known_avro_schema(self) -> dict[str, Any] | None:
        return self._avro_schema() or self.properties.create_schema

    def _planner(self, *, is_filtered: bool = False, is_latest: bool = False) -> ScanPlanner:
        """Return a scan planner. Only what the scan uses is opened.

        A condition on the latest rows may select few file slices, so the others are not loaded.
        """
        parts = self.snapshot.partial_views() if is_filtered and is_latest else None
        if parts is None:
            self.view()
        return ScanPlanner(
            self.storage,
            self.properties,
            self.store,
            self.view,
            self._known_avro_schema() or _NO_COLUMNS,
            parts,
            self._statistics() if is_filtered else None,
            self._key_hashes() if is_filtered and is_latest else None,
            self.mergers,
            trusted_expressions(self.store, self.timeline, self.properties) if is_filtered else (),
        )

    def _statistics(self) -> FileStatistics | None:
        from lakemark.metadata.column_stats.lookup import ColumnStatistics

        metadata = self.snapshot.metadata_with(PartitionKind.COLUMN_STATS)
        return None if metadata is None else ColumnStatistics(metadata)

    def _key_hashes(self) -> KeySearch | None:
        """Return the hashes of record keys; None if the newest commit records no bucket count.

        Only commits of lakemark record it. Another writer may have another bucket count.
        """
        newest = self.newest_metadata()
        if newest is None or keys.BUCKET_COUNT not in newest.extra_metadata:
            return None
        from lakemark.index.bucket import BucketIndex
        from lakemark.index.hashed_keys import HashedKeys

        count, properties = int(newest.extra_metadata[keys.BUCKET_COUNT]), self.properties
        hash_fields = _hash_fields(newest, properties)
        return HashedKeys(BucketIndex(count, properties.record_key_fields, hash_fields))

    def _key_settings(self) -> KeyGeneratorConfig | None:
        """Return the settings of record keys; None if columns do not certainly determine the keys.

        They do not if lakemark lacks the key generator, if a custom merger may change a column, or
        if the values of a column come from folder names. With schema on read, a column may have had
        another type when its keys were written.
        """
        properties, newest = self.properties, self.newest_metadata()
        path_columns = PathColumns.of(properties)
        if newest is None or newest.extra_metadata.get(LATEST_SCHEMA):
            return None
        if may_make_values(properties) or find_implemented(properties.key_generator) is None:
            return None
        if path_columns and set(path_columns.names).intersection(properties.record_key_fields):
            return None
        from lakemark.keygen.key_generator import KeyGeneratorConfig

        try:
            return KeyGeneratorConfig.of(properties, self.location.url)
        except InvalidConfig:  # its fields do not fit the key generator
            return None

    def _groups_of_keys(self, record_keys: pa.Array) -> GroupIndex | None:
        """Return the file groups of record keys, by the record index; None if the table has none.

        The metadata table is opened after the listing, so that both have the same timeline.
        """
        metadata = self.snapshot.metadata_with(PartitionKind.RECORD_INDEX)
        if metadata is None:
            return None
        from lakemark.index.indexed_groups import IndexedGroups, groups_of_keys

        find_groups = partial(groups_of_keys, metadata, record_keys)
        return IndexedGroups(self.storage, self.properties.is_merge_on_read, find_groups)

    def _key_filters(self) -> KeySearch:
        from lakemark.index.key_filters import KeyFilters

        return KeyFilters(self.storage, self.snapshot.metadata_with(PartitionKind.BLOOM_FILTERS))

    def _groups_of_values(self, values: DemandedValues, schema: pa.Schema) -> GroupIndex | None:
        """Return the file groups of demanded values, by secondary indexes.

        The result is None if no index has the values, or if a compaction, which does not update
        the indexes, may have changed some of them.
        """
        kind = PartitionKind.SECONDARY_INDEX
        if not any(name.startswith(kind.stored_name) for name in self.properties.metadata_indexes):
            return None
        if may_change_in_compaction(self.properties):
            return None
        metadata = self.snapshot.metadata_with(kind)
        if metadata is None or not metadata.usable_partitions(PartitionKind.RECORD_INDEX):
            return None
        if is_partitioned(metadata.definitions):
            return None  # the writers of Apache Hudi may not have updated the secondary index
        from lakemark.index.indexed_groups import IndexedGroups, groups_of_values, texts_of
        from lakemark.metadata.secondary_columns import readable_columns

        usable = metadata.usable_partitions(kind)
        columns = readable_columns(usable, metadata.definitions, schema)
        texts = {
            column.partition: texts_of(values[column.name], schema.field(column.name).type)
            for column in columns
            if column.name in values
        }
        known = {partition: some for partition, some in texts.items() if some is not None}
        if not known:
            return None
        find_groups = partial(groups_of_values, metadata, known)
        return IndexedGroups(self.storage, self.properties.is_merge_on_read, find_groups)

    def _filters_of_values(self, values: DemandedValues, schema: pa.Schema) -> SliceSearch | None:
        """Return the bloom filters that decide about demanded values; None if there are none."""
        kind = PartitionKind.EXPRESSION_INDEX
        if not any(name.startswith(kind.stored_name) for name in self.properties.metadata_indexes):
            return None
        if may_make_values(self.properties):
            return None
        metadata = self.snapshot.metadata_with(kind)
        if metadata is None:
            return None
        from lakemark.index.value_filters import filters_of_values

        usable = frozenset(metadata.usable_partitions(kind))
        return filters_of_values(metadata, usable, values, schema, self.location.url)


def _hash_fields(newest: CommitMetadata, properties: TableProperties) -> tuple[str, ...]:
    hashed = newest.extra_metadata.get(keys.BUCKET_HASH_FIELDS, "")
    fields = tuple(name for name in hashed.split(",") if name)
    return () if fields == properties.record_key_fields else fields


def _check_condition(where: pc.Expression, columns: pa.Schema) -> None:
    """Check that Arrow can evaluate an expression on rows with these columns."""
    try:
        columns.empty_table().filter(where)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = (
            f"where cannot be evaluated on the columns {', '.join(columns.names)}: "
            f"{str(error).splitlines()[0]}; correct the expression"
        )
        raise InvalidConfig(message) from error


def open_table(
    location: StorageLocation,
    *,
    mergers: Sequence[CustomMerger] = (),
    timezone: str | None = None,
    coordination: Coordination | None = None,
    runner: Runner | None = None,
    base_files: ParquetSettings = PARQUET_DEFAULTS,
) -> OpenTable:
    """Open the table at a location.

    Args:
        location: the location of the table.
        mergers: the users' mergers, in order of preference. A table in merge mode ``CUSTOM`` is
            read with the first merger that has the table's merge strategy id.
        timezone: the IANA name of the time zone of the table's instants, for a table whose timeline
            is in local time (``hoodie.table.timeline.timezone=LOCAL``).
        coordination: how this writer coordinates with other writers; None for the only writer, with
            the default lock.
        runner: runs tasks; None to run them in threads of this process.
        base_files: how this process writes base files.

    Raises:
        InvalidConfig: ``timezone`` is not a time zone; or the lock provider does not work at this
            location.
        TableNotFound: there is no table.
        CorruptData: the table's properties are damaged.
        Unsupported: lakemark does not read such a table.
    """
    storage = open_storage(location)
    properties = read_properties(storage)
    check_allows(properties, Purpose.READ, location.url)
    coordination = coordination or Coordination()
    return OpenTable(
        storage,
        properties,
        mergers=mergers,
        timezone=timezone,
        lock=coordination.lock_of(storage),
        multi_writer=coordination.multi_writer,
        runner=runner,
        base_files=base_files,
    )
