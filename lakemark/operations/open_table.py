"""An open table: its storage, timeline, lock and metadata table, opened when they are needed.

``lakemark.Table`` is the facade for users. Only an operation that changes the table needs the lock
and the writer of the metadata table, so a query does not open them. The modules of the lock and of
this writer are imported only when needed, because the import takes longer than a query of a small
table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config import keys
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import TableProperties
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.merge.custom.api import CustomMerger
from lakemark.metadata.metadata_table_opener import MetadataTableOpener
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.cached_snapshot import CachedSnapshot
from lakemark.operations.coordination import Coordination
from lakemark.operations.query_indexes import QueryIndexes
from lakemark.operations.recorded_facts import RecordedFacts
from lakemark.operations.table_queries import LATEST, TableQueries
from lakemark.read.instant_range import EARLIEST
from lakemark.read.queries import Query
from lakemark.read.query_instant import GivenTime
from lakemark.read.scan import Scan
from lakemark.read.scan_planner import table_schema
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.visible_instants import VisibleInstants

if TYPE_CHECKING:
    from lakemark.metadata.metadata_writer import MetadataWriter
    from lakemark.read.cdc import ChangeFormat
    from lakemark.read.cdc.scan import CdcScan
    from lakemark.read.explanation import Explanation
    from lakemark.timeline.locks.table_lock import TableLock
    from lakemark.transaction.metadata_updater import MetadataUpdater
    from lakemark.transaction.multi_writer import MultiWriter
    from lakemark.transaction.table_context import TableContext


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
        self._facts = RecordedFacts(storage, self.store, self.snapshot)

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
        """Return the metadata of the newest commit with a schema; see ``RecordedFacts``."""
        return self._facts.newest_metadata()

    @property
    def bucket_count(self) -> int | None:
        """The number of buckets in each partition; see ``RecordedFacts``."""
        return self._facts.bucket_count

    @property
    def index_of_creation(self) -> Mapping[str, str]:
        """The index with which lakemark created the table; see ``RecordedFacts``."""
        return self._facts.index_of_creation

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The fields that the bucket index hashes; see ``RecordedFacts``."""
        return self._facts.hash_fields

    @property
    def schema(self) -> pa.Schema | None:
        """The table's columns, meta columns first; None before the first commit."""
        stored = self._facts.avro_schema
        return None if stored is None else table_schema(stored, self.properties)

    @property
    def known_schema(self) -> pa.Schema | None:
        """The columns of the newest commit, or else the columns of the table's creation.

        None if neither is known.
        """
        known = self._facts.known_avro_schema
        return None if known is None else table_schema(known, self.properties)

    @property
    def is_schema_known(self) -> bool:
        """Whether the columns are known, from a commit or from the table's creation."""
        return self._facts.known_avro_schema is not None

    def scan(
        self,
        query: Query = LATEST,
        columns: Sequence[str] | None = None,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Scan:
        """Plan to read rows; see ``lakemark.Table.scan``."""
        return self._queries.scan(query, columns, where, record_keys)

    def explain(
        self,
        query: Query = LATEST,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Explanation:
        """Explain which file groups a query reads; see ``lakemark.Table.explain``."""
        return self._queries.explain(query, where, record_keys)

    def changes(self, begin: GivenTime = EARLIEST, end: GivenTime | None = None) -> CdcScan:
        """Plan to read changes; see ``lakemark.Table.changes``."""
        return self._queries.changes(begin, end)

    def changes_of(self, commits: Sequence[Instant], form: ChangeFormat) -> CdcScan:
        """Plan to read the changes of some commits; see ``cdc.plan_commits``."""
        return self._queries.changes_of(commits, form)

    def rows_of(self, commit: Instant) -> Scan:
        """Plan to read the rows that one commit wrote; see ``incremental.plan_commit``."""
        return self._queries.rows_of(commit)

    @property
    def _queries(self) -> TableQueries:
        indexes = QueryIndexes(self.storage, self.snapshot, self._facts)
        return TableQueries(
            self.storage, self.store, self.snapshot, self._facts, indexes, self.mergers
        )


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
