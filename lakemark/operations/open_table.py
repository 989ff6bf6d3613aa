"""A table as operations see it: its parts, opened when they are needed.

``lakemark.Table`` is the facade for users. Opening a table for a query opens no lock and no writer
of the metadata table: only an operation that changes the table needs them. Their modules are
imported when they are needed, because a query of a small table takes less time than the import.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config import keys
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.merge.custom.api import CustomMerger
from lakemark.metadata.metadata_table_opener import MetadataTableOpener
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.format_version import FormatVersion
from lakemark.operations.cached_snapshot import CachedSnapshot
from lakemark.read.index_protocols import FileStatistics, KeyLocations
from lakemark.read.instant_range import EARLIEST
from lakemark.read.queries import Incremental, Query, Snapshot
from lakemark.read.query_instant import GivenTime
from lakemark.read.renamed_columns import check_no_renamed_columns
from lakemark.read.scan import Scan
from lakemark.read.scan_planner import ScanPlanner, table_schema
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.visible_instants import VisibleInstants

if TYPE_CHECKING:
    from lakemark.metadata.metadata_writer import MetadataWriter
    from lakemark.read.cdc.scan import CdcScan
    from lakemark.timeline.locks.table_lock import TableLock
    from lakemark.transaction.metadata_updater import MetadataUpdater
    from lakemark.transaction.multi_writer import MultiWriter
    from lakemark.transaction.table_context import TableContext

LATEST = Snapshot()

_NO_COLUMNS: dict[str, Any] = {"type": "record", "name": "empty", "fields": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordination:
    """How the writers of one table coordinate; the same for all of them.

    Attributes:
        lock_provider: where the table's lock is kept.
        lock_expire_minutes: of a lock file of Apache Hudi; see ``open_lock``.
        multi_writer: how other writers are respected; None if this is the only writer.
    """

    lock_provider: LockProviderName = LockProviderName.STORAGE
    lock_expire_minutes: int = 0
    multi_writer: MultiWriter | None = None

    def lock_of(self, storage: Storage) -> TableLock | None:
        """Return the lock of a table; None for the default lock, which is opened when it is needed.

        Raises:
            InvalidConfig: the lock provider does not work on this storage.
        """
        if self.lock_provider is LockProviderName.STORAGE:
            return None
        minutes = self.lock_expire_minutes
        return open_lock(storage, provider=self.lock_provider, expire_minutes=minutes)


class OpenTable:
    """One open table.

    Attributes:
        storage: the table's root.
        mergers: of users, for a table in merge mode ``CUSTOM``.
        version: of the table format.
        store: of its timeline.
        metadata_opener: opens its metadata table for reading.
        runner: what runs tasks; None for threads of this process.
        snapshot: properties, timeline and view as of the last ``refresh`` or own change.
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
    ) -> None:
        """Read nothing before it is needed.

        Args:
            storage: the table's root.
            properties: of the table.
            mergers: as for ``open_table``.
            timezone: as for ``open_table``.
            clock: of its timeline, if it is known.
            lock: of the table; None opens the default one when it is needed.
            multi_writer: how other writers are respected; None if this is the only writer.
            runner: runs tasks; None runs them in threads of this process.
            metadata_updater: is informed of each change; None for the metadata table's writer.
        """
        self.storage = storage
        self.mergers = tuple(mergers)
        self.version = FormatVersion.of(properties.version, storage.location.url)
        self.store = TimelineStore.of_table(storage, properties, timezone, clock)
        self.metadata_opener = MetadataTableOpener(storage)
        self.snapshot = CachedSnapshot(storage, properties, self.store, self.metadata_opener)
        self._lock, self._multi_writer = lock, multi_writer
        self.runner, self._metadata_updater = runner, metadata_updater

    def __repr__(self) -> str:
        return f"OpenTable({self.location.url!r}, version {int(self.version)})"

    @cached_property
    def metadata_writer(self) -> MetadataWriter:
        """Keeps the metadata table up to date."""
        from lakemark.metadata.metadata_writer import MetadataWriter

        return MetadataWriter(self.storage, self.store, self.metadata_opener)

    @cached_property
    def context(self) -> TableContext:
        """What a transaction needs of the table."""
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
        """Return the same table after a change of version, with the same lock and settings."""
        return OpenTable(
            self.storage,
            properties,
            mergers=self.mergers,
            clock=self.store.clock,
            lock=self._lock,
            multi_writer=self._multi_writer,
            runner=self.runner,
        )

    @property
    def location(self) -> StorageLocation:
        """Where the table is."""
        return self.storage.location

    @property
    def properties(self) -> TableProperties:
        """The table's properties as last read."""
        return self.snapshot.properties

    @property
    def timeline(self) -> Timeline:
        """The active timeline as of the last ``refresh`` or own change."""
        return self.snapshot.timeline

    def view(self) -> FileSystemView:
        """Return the file slices as of ``timeline``; see ``CachedSnapshot.view``."""
        return self.snapshot.view()

    def view_at(self, timeline: Timeline) -> FileSystemView:
        """File slices as of a timeline that was just loaded, which becomes the current one."""
        self.snapshot.refresh(timeline)
        return self.snapshot.view()

    def refresh(self, loaded: Timeline | None = None) -> None:
        """Load the timeline; see ``CachedSnapshot.refresh``."""
        self.snapshot.refresh(loaded)

    @property
    def visible_instants(self) -> VisibleInstants:
        """The instants whose log blocks count, as of ``timeline``."""
        return VisibleInstants.of(self.timeline, self.version)

    def newest_metadata(self) -> CommitMetadata | None:
        """Return the metadata of the newest completed commit that contains the table's schema.

        Columns may be added while a service runs, so the schema of a service's commit counts only
        if no other commit has one.
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
        """Buckets in each partition, as the newest active commit that records it says.

        None if no commit records it; commits of Apache Hudi do not.
        """
        for instant in reversed(self.timeline.completed(*COMMITS)):
            count = self.store.read_commit(instant).extra_metadata.get(keys.BUCKET_COUNT)
            if count is not None:
                return int(count)
        return None

    @property
    def schema(self) -> pa.Schema | None:
        """The table's columns, meta columns first; None before the first commit."""
        stored = self._avro_schema()
        return None if stored is None else table_schema(stored, self.properties)

    @property
    def known_schema(self) -> pa.Schema | None:
        """The columns of a commit, or else those that the table was created with; None without."""
        known = self._known_avro_schema()
        return None if known is None else table_schema(known, self.properties)

    @property
    def is_schema_known(self) -> bool:
        """Whether a query can name columns: from a commit, or from the table's creation."""
        return self._known_avro_schema() is not None

    def scan(
        self,
        query: Query = LATEST,
        columns: Sequence[str] | None = None,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Scan:
        """Plan to read rows; see ``lakemark.Table.scan``."""
        if not isinstance(where, pc.Expression | str | None):
            message = f"where is {where!r}; pass an Arrow expression, or a condition as text"
            raise InvalidConfig(message)
        planner = self._planner(
            is_filtered=where is not None or record_keys is not None,
            names_keys=record_keys is not None,
        )
        if isinstance(where, str):
            from lakemark.read.where import parse_where

            where = parse_where(where, planner.schema)
        elif where is not None and (isinstance(query, Incremental) or query.as_of is None):
            _check_condition(where, planner.schema)
        wanted = None if record_keys is None else pa.array(record_keys, pa.string())
        return planner.plan(query, columns, where, wanted)

    def changes(self, begin: GivenTime = EARLIEST, end: GivenTime | None = None) -> CdcScan:
        """Plan to read changes; see ``lakemark.Table.changes``."""
        return self._planner().changes(begin, end)

    def _avro_schema(self) -> dict[str, Any] | None:
        metadata = self.newest_metadata()
        if metadata is None:
            return None
        check_no_renamed_columns(self.storage, metadata.extra_metadata)
        parsed: dict[str, Any] = json.loads(metadata.extra_metadata[keys.SCHEMA])
        return parsed

    def _known_avro_schema(self) -> dict[str, Any] | None:
        return self._avro_schema() or self.properties.create_schema

    def _planner(self, *, is_filtered: bool = False, names_keys: bool = False) -> ScanPlanner:
        """Statistics and indexes are opened only for a scan that uses them."""
        view = self.view()
        return ScanPlanner(
            self.storage,
            self.properties,
            self.store,
            view,
            self._known_avro_schema() or _NO_COLUMNS,
            self._statistics() if is_filtered else None,
            self._key_locations() if names_keys else None,
            self.mergers,
        )

    def _statistics(self) -> FileStatistics | None:
        from lakemark.metadata.column_stats.lookup import ColumnStatistics

        metadata = self.snapshot.metadata_with(PartitionKind.COLUMN_STATS)
        return None if metadata is None else ColumnStatistics(metadata)

    def _key_locations(self) -> KeyLocations | None:
        from lakemark.metadata.record_index import RecordIndex

        metadata = self.snapshot.metadata_with(PartitionKind.RECORD_INDEX)
        return None if metadata is None else RecordIndex(metadata)


def _check_condition(where: pc.Expression, columns: pa.Schema) -> None:
    """Pass if Arrow can evaluate an expression on rows with these columns."""
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
) -> OpenTable:
    """Open the table at a location.

    Args:
        location: of the table.
        mergers: of users, in order of preference. A table in mode ``CUSTOM`` is read with the first
            that has its strategy id.
        timezone: the IANA name of the zone of its instants, for a table whose timeline is in local
            time (``hoodie.table.timeline.timezone=LOCAL``).
        coordination: with other writers; None for the only writer, with the default lock.
        runner: runs tasks; None runs them in threads of this process.

    Raises:
        InvalidConfig: ``timezone`` is not a time zone; or the lock provider does not work there.
        TableNotFound: there is no table.
        CorruptData: its properties and their backup are damaged.
        Unsupported: a table that this project does not read.
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
    )
