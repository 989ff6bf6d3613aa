"""Opens a table and hands out its parts; holds no logic of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from table.config import keys
from table.config.table_properties import BACKUP_PATH, PROPERTIES_PATH, TableProperties
from table.config.table_spec import TableSpec
from table.errors import InvalidConfig, TableNotFound
from table.merge.record_merger import RecordMerger, merger_for
from table.model.action import Action
from table.model.commit_metadata import CommitMetadata
from table.model.compaction_plan import CompactionPlan
from table.model.instant import Instant
from table.model.meta_columns import with_meta_columns
from table.read import query
from table.read.file_group_reader import FileGroupReader
from table.schema import avro
from table.storage import Storage, StorageLocation, open_storage
from table.storage.probe import check_conditional_puts
from table.storage.storage import NotFound
from table.timeline.lock import open_lock
from table.timeline.timeline import Timeline
from table.timeline.timeline_store import TimelineStore
from table.transaction.access import TableAccess
from table.view.file_lister import StorageFileLister
from table.view.file_system_view import FileSystemView

#: A query of ``table.read.query``.
Query = Callable[[FileSystemView, FileGroupReader, Sequence[str] | None], Iterator[pa.RecordBatch]]

_METADATA_FOLDER = ".hoodie/metadata"
_COMMITS = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


class HudiTable:
    """One open table: its properties, and its timeline and view as of the last ``refresh``."""

    def __init__(self, storage: Storage, properties: TableProperties) -> None:
        self.storage = storage
        self.properties = properties
        self.store = TimelineStore(storage)
        self.access = TableAccess(storage, self.store, open_lock(storage))
        self._timeline: Timeline | None = None
        self._view: FileSystemView | None = None
        self._noted: tuple[Instant, CommitMetadata] | None = None

    @property
    def location(self) -> StorageLocation:
        """Where the table lies."""
        return self.storage.location

    @property
    def merger(self) -> RecordMerger:
        """The table's record merger."""
        return merger_for(self.properties.merge_mode, self.properties.ordering_fields)

    @property
    def timeline(self) -> Timeline:
        """The active timeline as last read."""
        if self._timeline is None:
            self._timeline = self.store.load()
        return self._timeline

    def view(self) -> FileSystemView:
        """File slices as of ``timeline``; lists the data folders at the first call only."""
        if self._view is None:
            timeline = self.timeline
            plans = {
                i.requested_at: self.store.read_compaction_plan(i.requested_at)
                for i in timeline.pending(Action.COMPACTION)
            }
            replaced = {
                i.requested_at: self.store.read_commit(i)
                for i in timeline.completed(Action.REPLACE_COMMIT)
            }
            files = StorageFileLister(self.storage).list_files()
            self._view = FileSystemView.of(files, timeline, plans, replaced)
        return self._view

    def refresh(self, loaded: Timeline | None = None) -> None:
        """Read the timeline again; keep the view only if nobody else has changed the table.

        Args:
            loaded: the timeline, when the caller has just read it.
        """
        timeline = loaded or self.store.load()
        if self._timeline is None or timeline.instants != self._timeline.instants:
            self._timeline, self._view = timeline, None

    def note_commit(self, instant: Instant, metadata: CommitMetadata, timeline: Timeline) -> None:
        """Carry our own commit into the view, without listing.

        What another writer completed meanwhile is read when it is asked for again.
        """
        known = self.timeline
        self._noted = instant, metadata
        others = [
            i
            for i in timeline.instants
            if i.requested_at != instant.requested_at and known.find(i.requested_at) != i
        ]
        view = self._view
        self._timeline = timeline
        self._view = None
        if view is not None and not others:
            self._view = view.with_commit(instant, metadata)

    def note_request(self, instant: Instant, plan: CompactionPlan) -> None:
        """Carry a compaction that we just requested into the view, without listing."""
        self._timeline = self.timeline.with_instant(instant)
        if self._view is not None:
            self._view = self._view.with_compaction_plan(instant.requested_at, plan)

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        """Metadata of a completed commit; of our own newest without a request."""
        if self._noted is not None and self._noted[0] == instant:
            return self._noted[1]
        return self.store.read_commit(instant)

    def newest_metadata(self) -> CommitMetadata | None:
        """Metadata of the newest completed commit that carries a schema."""
        for instant in reversed(self.timeline.completed(*_COMMITS)):
            metadata = self.commit_metadata(instant)
            if metadata.extra_metadata.get(keys.SCHEMA):
                return metadata
        return None

    @property
    def schema(self) -> pa.Schema | None:
        """The table's columns, meta columns first; None before the first commit."""
        metadata = self.newest_metadata()
        if metadata is None:
            return None
        parsed: dict[str, Any] = json.loads(metadata.extra_metadata[keys.SCHEMA])
        return with_meta_columns(avro.to_arrow(parsed))

    def snapshot(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """The latest rows: base files with their logs merged in."""
        return self._query(query.snapshot, columns, filter)

    def read_optimized(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """The rows of the base files alone: cheaper, and as old as the last compaction."""
        return self._query(query.read_optimized, columns, filter)

    def drop_metadata_table(self) -> None:
        """Remove the metadata table, so that readers list storage again.

        The properties go first: a half-removed ``files`` partition that readers still trust would
        hide rows.
        """
        self.properties = self.properties.without_metadata_table()
        self.storage.put(BACKUP_PATH, self.properties.to_bytes())
        self.storage.put(PROPERTIES_PATH, self.properties.to_bytes())
        self.storage.delete([BACKUP_PATH])
        self.storage.delete([info.path for info in self.storage.list_tree(_METADATA_FOLDER)])

    def _query(
        self, run: Query, columns: Sequence[str] | None, filter: pc.Expression | None
    ) -> pa.RecordBatchReader:
        schema = self.schema
        if schema is None:
            return pa.RecordBatchReader.from_batches(with_meta_columns(pa.schema([])), [])
        reader = FileGroupReader(self.storage, schema, self.merger)
        names = schema.names if columns is None else list(columns)
        # A condition may name columns that are not asked for.
        batches = run(self.view(), reader, names if filter is None else None)
        chosen = pa.schema([schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(chosen, _filtered(batches, names, filter))


def _filtered(
    batches: Iterator[pa.RecordBatch], names: Sequence[str], filter: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if filter is None:
            yield batch
        else:
            rows = pa.Table.from_batches([batch]).filter(filter).select(names)
            yield from rows.combine_chunks().to_batches()


def open_table(location: StorageLocation) -> HudiTable:
    """The table at a place.

    Raises:
        TableNotFound: no table lies there.
        CorruptData: its properties are damaged, and so is their backup.
    """
    storage = open_storage(location)
    return HudiTable(storage, _read_properties(storage))


def create_table(location: StorageLocation, spec: TableSpec) -> HudiTable:
    """Make an empty table; its properties appear at once and whole.

    Raises:
        InvalidConfig: something that is no table lies there.
        Unsupported: the store has no conditional puts.
        AlreadyExists: another writer made a table with other properties at the same moment.
    """
    storage = open_storage(location)
    folders, objects = storage.list_folder("")
    strangers = [f for f in folders if f != ".hoodie"] + [info.path for info in objects]
    if strangers:
        message = (
            f"{location.url} is not empty and no Hudi table (it holds {sorted(strangers)[0]!r}); "
            "name an empty folder, or an existing table"
        )
        raise InvalidConfig(message)
    check_conditional_puts(storage)
    properties = spec.to_properties()
    storage.create(PROPERTIES_PATH, properties.to_bytes())
    return HudiTable(storage, properties)


def _read_properties(storage: Storage) -> TableProperties:
    """The properties; a writer that died while it replaced them left a backup."""
    for path in (PROPERTIES_PATH, BACKUP_PATH):
        try:
            return TableProperties.parse(storage.read(path), path)
        except NotFound:
            continue
    message = f"no Hudi table at {storage.location.url} (no {PROPERTIES_PATH})"
    raise TableNotFound(message)
