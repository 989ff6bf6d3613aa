"""Opens a table and hands out its parts; holds no logic of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config import keys
from lakemark.config.merge_settings import merge_settings
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig, SnapshotChanged
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.index.repeated_keys import RepeatedKeys, find_repeated_keys
from lakemark.index.stored_rows import StoredRows, sample_rows
from lakemark.merge.custom.api import CustomMerger
from lakemark.merge.record_merger import commit_time_merger
from lakemark.metadata.bootstrap import build_metadata_table, drop_metadata_table
from lakemark.metadata.column_stats.lookup import ColumnStatistics
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_writer import MetadataWriter
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_index import RecordIndex
from lakemark.metadata.validation import Difference, find_differences
from lakemark.model.action import COMMITS
from lakemark.model.clean_plan import CleanPlan
from lakemark.model.column_ranges import indexed_columns
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.cdc.scan import CdcScan
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.index_protocols import FileStatistics, KeyLocations
from lakemark.read.instant_range import EARLIEST
from lakemark.read.queries import Query, ReadOptimized, Snapshot
from lakemark.read.renamed_columns import check_no_renamed_columns
from lakemark.read.scan import Scan
from lakemark.read.scan_planner import ScanPlanner, table_schema
from lakemark.read.virtual_keys import VirtualKeys
from lakemark.read.where import parse_where
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.probe import check_conditional_puts
from lakemark.storage.properties_file import check_same_version, read_properties
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.view.file_lister import FileLister, StorageFileLister
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.view_loader import load_view
from lakemark.view.visible_instants import VisibleInstants

LATEST = Snapshot()

#: How often a view is loaded before others who clean and roll back have their way.
_VIEW_ATTEMPTS = 3
_NO_COLUMNS: dict[str, Any] = {"type": "record", "name": "empty", "fields": []}


class Table:
    """One open table: its properties, and its timeline and view as of the last ``refresh``."""

    def __init__(
        self,
        storage: Storage,
        properties: TableProperties,
        mergers: Sequence[CustomMerger] = (),
        timezone: str | None = None,
        clock: TimelineClock | None = None,
    ) -> None:
        """Nothing is read before the first question.

        Args:
            storage: the table's root.
            properties: the table's.
            mergers: of users, as for ``open_table``.
            timezone: of its timeline, as for ``open_table``.
            clock: of its timeline, if that is known.
        """
        self.storage = storage
        self.properties = properties
        self.mergers = tuple(mergers)
        self.version = FormatVersion.of(properties.version, storage.location.url)
        self.store = TimelineStore.of_table(storage, properties, timezone, clock)
        self._metadata_writer = MetadataWriter(storage, self.store)
        self.access = TableContext(storage, self.store, open_lock(storage), self._metadata_writer)
        self._timeline: Timeline | None = None
        self._view: FileSystemView | None = None
        self._metadata: MetadataTable | None = None

    @property
    def location(self) -> StorageLocation:
        """Where the table lies."""
        return self.storage.location

    @property
    def timeline(self) -> Timeline:
        """The active timeline as last read."""
        if self._timeline is None:
            self._timeline = self.store.load()
        return self._timeline

    def view(self) -> FileSystemView:
        """File slices as of ``timeline``; lists the data folders at the first call only.

        Raises:
            SnapshotChanged: others cleaned or rolled back each time that it was tried, with
                ``timeline`` loaded again in between.
        """
        if self._view is None:
            self._view = self._load_view()
        return self._view

    @property
    def visible_instants(self) -> VisibleInstants:
        """Which blocks of its logs count as of ``timeline``."""
        return VisibleInstants.of(self.timeline, self.version)

    @property
    def carried_view(self) -> FileSystemView | None:
        """The view where it is at hand: nothing is listed, so any thread may ask."""
        return self._view

    def refresh(self, loaded: Timeline | None = None) -> None:
        """Read the timeline again; keep the view only if nobody else has changed the table.

        Args:
            loaded: the timeline, when the caller has just read it.

        Raises:
            Refused: the table has become one of another version.
        """
        timeline = loaded or self.store.load()
        if self._timeline is None or timeline.instants != self._timeline.instants:
            check_same_version(self.storage, self.version)
            self._timeline, self._view = timeline, None

    def note_commit(self, instant: Instant, metadata: CommitMetadata, timeline: Timeline) -> None:
        """Carry our own commit into the view, without listing.

        What another writer completed meanwhile is read when it is asked for again.
        """
        known = set(self.timeline.instants)
        metadata = metadata.as_stored()
        self.store.note_commit(instant, metadata)
        others = [
            i
            for i in timeline.instants
            if i.requested_at != instant.requested_at and i not in known
        ]
        view = self._view
        self._timeline = timeline
        self._view = self._metadata = None
        if view is not None and not others:
            self._view = view.with_commit(instant, metadata)

    def note_request(self, instant: Instant, plan: CompactionPlan) -> None:
        """Carry a compaction that we just requested into the view, without listing."""
        self._timeline = self.timeline.with_instant(instant)
        if self._view is not None:
            self._view = self._view.with_compaction_plan(instant.requested_at, plan)

    def note_begun(self, inflight: Instant) -> None:
        """Carry on that we just took a planned service up."""
        self._timeline = self.timeline.with_instant(inflight)

    def note_clean(self, instant: Instant, plan: CleanPlan, timeline: Timeline) -> None:
        """Carry a clean that we just completed into the view, without listing."""
        self._note_gone(plan.paths, timeline, instant.requested_at)

    def note_archived(self, leftovers: Collection[str], timeline: Timeline) -> None:
        """Carry an archival that we just did into the view, without listing.

        Args:
            leftovers: paths of files that it deleted.
            timeline: what is left of it.
        """
        self._note_gone(leftovers, timeline)

    def newest_metadata(self) -> CommitMetadata | None:
        """Metadata of the newest completed commit that carries the table's schema.

        Columns may have come while a service was at work: its schema counts without any other.
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
        """Buckets in each partition, as the newest active commit says that records it.

        None if no commit does; commits of Apache Hudi do not.
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
    def is_schema_known(self) -> bool:
        """Whether a query can name columns: a commit shows them, or the table's creation did."""
        return self._known_avro_schema() is not None

    def scan(
        self,
        query: Query = LATEST,
        columns: Sequence[str] | None = None,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Scan:
        """Rows of the table; nothing of them is read yet.

        Args:
            query: which rows.
            columns: columns of the result, in this order; all of them, Hudi's own first, when None.
            where: a condition on rows, as an Arrow expression or in the words of
                ``lakemark.read.where``. It rules out partitions, files and row groups.
            record_keys: only rows of these. Of the latest rows the record index, where there is
                one, names the file groups that hold them, and no other is read.

        Raises:
            InvalidConfig: a column, condition, moment or span that is none.
            SnapshotChanged: others cleaned or rolled back each time that it was tried.
            CorruptData, Unsupported: as ``ScanPlanner.plan``.
        """
        planner = self._planner(
            is_filtered=where is not None or record_keys is not None,
            names_keys=record_keys is not None,
        )
        if isinstance(where, str):
            where = parse_where(where, planner.schema)
        wanted = None if record_keys is None else pa.array(record_keys, pa.string())
        return planner.plan(query, columns, where, wanted)

    def changes(self, begin: str = EARLIEST, end: str | None = None) -> CdcScan:
        """What each commit of a span did to each record; errors as for ``scan``.

        Args:
            begin: requested time after which the span begins.
            end: the last in it; None has no end.
        """
        return self._planner().changes(begin, end)

    def snapshot(
        self, columns: Sequence[str] | None = None, where: pc.Expression | str | None = None
    ) -> pa.RecordBatchReader:
        """The latest rows: base files with their logs merged in."""
        return self.scan(LATEST, columns, where).to_reader()

    def read_optimized(
        self, columns: Sequence[str] | None = None, where: pc.Expression | str | None = None
    ) -> pa.RecordBatchReader:
        """The rows of the base files alone: cheaper, and as old as the last compaction."""
        return self.scan(ReadOptimized(), columns, where).to_reader()

    def stored_rows(self) -> list[StoredRows]:
        """A few rows as their writers stored them, of a few file groups; none of an empty table.

        Raises:
            Unsupported: rows that do not hold the fields of their key or partition path.
            HudiError: a file cannot be read.
        """
        schema = self.schema
        if schema is None or not self.properties.populates_meta_columns:
            return []
        view = self.view()
        # Rows are not merged here, so it does not matter how that is done.
        reader = FileGroupReader(
            self.storage,
            schema,
            commit_time_merger(),
            view.visible_instants,
            merge_settings(self.properties).delete_marker,
        )
        return sample_rows(reader, view.latest_slices(), self.properties, self.location.url)

    def keep_metadata_table(self) -> str | None:
        """Make the metadata table anew unless it tells of all that is in the table.

        A change that finds it behind from here on raises ``MetadataTableBehind``: call this again.

        Returns:
            Why it was made; None when it was left as it is.

        Raises:
            Unsupported: it has partitions that are not written here.
        """
        self._metadata_writer.rebuild_at_start()
        schema = self.schema or pa.schema([])
        if self._metadata_writer.find_reason_to_rebuild(self.store.load(), schema) is None:
            return None
        with self.access.lock.hold(LOCK_WAIT_S) as lease:
            timeline = self.store.load()
            reason = self._metadata_writer.find_reason_to_rebuild(timeline, schema)
            if reason is not None:
                self._make_metadata_table(timeline, lease.check)
        return reason

    def rebuild_metadata_table(self) -> None:
        """Make the metadata table anew, whatever it holds."""
        with self.access.lock.hold(LOCK_WAIT_S) as lease:
            self._make_metadata_table(self.store.load(), lease.check)

    def metadata_differences(self, runner: Runner | None = None) -> list[Difference]:
        """What the metadata table says otherwise than the files; none when there is no such table.

        Raises:
            SnapshotChanged: others changed the table meanwhile; call again.
            CorruptData, Unsupported: a file cannot be read.
        """
        self.refresh()
        view, timeline = self.view(), self.timeline
        opener = self._metadata_writer.opener
        metadata = opener.open(self.properties, timeline, self.store.clock)
        if metadata is None:
            return []
        columns, latest = self._indexed_columns(), view.latest_slices()
        where = runner or LocalRunner()
        return find_differences(
            self.storage, metadata, timeline, self.version, columns, latest, where
        )

    def repeated_keys(self) -> RepeatedKeys:
        """Record keys that exist in more than one partition, exactly; reads all record keys.

        Raises:
            SnapshotChanged: others changed the table meanwhile; call again.
            InvalidConfig, CorruptData, Unsupported: the table cannot be read.
        """
        self.refresh()
        if self.properties.populates_meta_columns:
            scan = self.scan(columns=[RECORD_KEY] if self.schema else None)
            return find_repeated_keys(scan, self.bucket_count)
        record_keys = VirtualKeys(self.properties.record_key_fields)
        return find_repeated_keys(self.scan(), self.bucket_count, record_keys)

    @property
    def metadata_compacted_at(self) -> str | None:
        """When the metadata table was compacted last, as our own commits know, without a look."""
        return self._metadata_writer.compacted_at

    @property
    def metadata_timeline(self) -> Timeline | None:
        """The metadata table's own, as our own commits know it, without a look."""
        return self._metadata_writer.timeline

    def compact_metadata_table(self) -> None:
        """Compact the metadata table if that is due, and know its timeline from here on.

        Raises:
            MetadataTableBehind, Unsupported: a metadata table that cannot be continued.
        """
        with self.access.lock.hold(LOCK_WAIT_S) as lease:
            self._metadata_writer.compact(self.store.load(), lease.check)
            if self.access.sharing is not None:
                self.access.sharing.let_clocks_pass()

    def note_metadata_services(self, timeline: Timeline) -> None:
        """Carry on what was cleaned and archived of the metadata table itself."""
        self._metadata_writer.note_table_services(timeline)

    def drop_metadata_table(self) -> None:
        """Remove the metadata table, so that readers list storage again."""
        with self.access.lock.hold(LOCK_WAIT_S) as lease:
            properties = read_properties(self.storage)
            self.properties = drop_metadata_table(self.storage, properties, lease.check)
        self._forget_metadata()

    def _make_metadata_table(self, timeline: Timeline, check_lease: Callable[[], None]) -> None:
        self.store.clock.check()  # the table must not lose its metadata table and get no new one
        self.refresh(timeline)
        columns = self._indexed_columns()
        bare = drop_metadata_table(self.storage, read_properties(self.storage), check_lease)
        self.properties = build_metadata_table(
            self.storage, bare, timeline, columns, check_lease, self.store.clock
        )
        self._forget_metadata()

    def _indexed_columns(self) -> pa.Schema:
        """The columns of which statistics are kept; none before the first commit."""
        schema = self.schema or pa.schema([])
        return pa.schema([schema.field(name) for name in indexed_columns(schema, self.version)])

    def _forget_metadata(self) -> None:
        self._metadata_writer.forget()
        self._metadata = self._view = None

    def _note_gone(self, paths: Collection[str], timeline: Timeline, own: str = "") -> None:
        """Carry deleted files on, unless others than the instant ``own`` have come meanwhile."""
        known, view = set(self.timeline.instants), self._view
        others = [i for i in timeline.instants if i not in known and i.requested_at != own]
        self._timeline, self._view, self._metadata = timeline, None, None
        if view is not None and not others:
            self._view = replace(view, timeline=timeline).without_files(paths)

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
        """Statistics and indexes are looked at for those alone who need them."""
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

    def _metadata_with(self, kind: PartitionKind) -> MetadataTable | None:
        """The metadata table, if it has a partition of that kind and tells of the whole table.

        Where it does not, storage is listed, and no statistics or index rule anything out.
        """
        if self._metadata is None:
            timeline = self.timeline  # first, since it shows the zone
            opener = self._metadata_writer.opener
            self._metadata = opener.open(self.properties, timeline, self.store.clock)
        metadata = self._metadata
        return metadata if metadata is not None and metadata.usable_partitions(kind) else None

    def _statistics(self) -> FileStatistics | None:
        metadata = self._metadata_with(PartitionKind.COLUMN_STATS)
        return None if metadata is None else ColumnStatistics(metadata)

    def _key_locations(self) -> KeyLocations | None:
        metadata = self._metadata_with(PartitionKind.RECORD_INDEX)
        return None if metadata is None else RecordIndex(metadata)

    def _load_view(self) -> FileSystemView:
        for _ in range(_VIEW_ATTEMPTS - 1):
            with suppress(SnapshotChanged):
                return self._list_view()
            self._timeline = self.store.load()
        return self._list_view()

    def _list_view(self) -> FileSystemView:
        """The view as of ``timeline``, from the metadata table where there is one."""
        timeline = self.timeline
        # Others may have made or dropped it since.
        self.properties, self._metadata = read_properties(self.storage), None
        metadata = self._metadata_with(PartitionKind.FILES)
        lister: FileLister = (
            StorageFileLister(self.storage) if metadata is None else MetadataFileLister(metadata)
        )
        return load_view(self.store, timeline, lister, self.version)


def open_table(
    location: StorageLocation,
    mergers: Sequence[CustomMerger] = (),
    timezone: str | None = None,
) -> Table:
    """The table at a place.

    Args:
        location: of the table.
        mergers: of users, in order of preference; a table in mode ``CUSTOM`` is read with the first
            that has its strategy id.
        timezone: the IANA name of the zone of its instants, for a table whose timeline is in local
            time (``hoodie.table.timeline.timezone=LOCAL``).

    Raises:
        InvalidConfig: ``timezone`` names no time zone.
        TableNotFound: no table lies there.
        CorruptData: its properties are damaged, and so is their backup.
        Unsupported: a table of a kind that is not read here.
    """
    storage = open_storage(location)
    properties = read_properties(storage)
    check_allows(properties, Purpose.READ, location.url)
    return Table(storage, properties, mergers, timezone)


def create_table(location: StorageLocation, spec: TableSpec) -> Table:
    """Make an empty table at a place; errors as for ``create_on``."""
    return create_on(open_storage(location), spec)


def create_on(storage: Storage, spec: TableSpec) -> Table:
    """Make an empty table; its properties appear at once and whole.

    They are what makes it a table, so a crash leaves none, or one whose metadata table the next
    writer makes.

    Raises:
        InvalidConfig: something that is no table lies there.
        Unsupported: the store has no conditional puts.
        AlreadyExists: another writer made a table with other properties at the same moment.
    """
    check_empty(storage)
    check_conditional_puts(storage)
    properties = spec.to_properties()
    table = Table(storage, properties)
    table.store.make_folder()
    storage.create(PROPERTIES_PATH, properties.to_bytes())
    storage.make_durable()
    if spec.metadata_table:
        table.keep_metadata_table()
    return table


def check_empty(storage: Storage) -> None:
    """Pass when a table may be made there.

    Raises:
        InvalidConfig: something that is no table lies there.
    """
    folders, objects = storage.list_folder("")
    strangers = [f for f in folders if f != ".hoodie"] + [info.path for info in objects]
    if strangers:
        message = (
            f"{storage.location.url} is not empty and no Hudi table (it holds "
            f"{sorted(strangers)[0]!r}); name an empty folder, or an existing table"
        )
        raise InvalidConfig(message)
