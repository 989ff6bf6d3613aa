"""lakemark on one table, without Spark and Kafka, for comparison with Apache Hudi.

``LakemarkWriter`` has the operations that the tests call on the Apache side, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lakemark.config.table_properties import MergeMode, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import TableNotFound
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.file_slice import FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_columns
from lakemark.operations.create import create_table
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write_checks import check_stored_rows
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.compaction import request_compaction
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation
from lakemark.timeline.timeline import Timeline
from lakemark.write.file_group_write import write_file_group
from tests.interop.oracle import ApacheTable
from tests.tables import by_bucket


def read_snapshot(path: Path) -> pa.Table:
    """Read all columns of the newest snapshot, meta columns included."""
    return open_table(StorageLocation(str(path))).scan().to_reader().read_all()


@dataclass(frozen=True, slots=True)
class LakemarkWriter:
    """Writes one table with the settings of its ``ApacheTable``.

    Attributes:
        writer: lakemark's writer.
        keys: generates record keys and partition paths.
        schema: the table's columns without meta columns.
        ordering: the ordering columns, whose values a delete has in addition to its key.
    """

    writer: TableWriter
    keys: KeyGenerator
    schema: pa.Schema
    ordering: tuple[str, ...]

    @classmethod
    def open(
        cls, path: Path, twin: ApacheTable, schema: pa.Schema, timezone: str | None = None
    ) -> LakemarkWriter:
        """Open the table at ``path``, or create it; ``timezone`` as for ``open_table``."""
        index = BucketIndex(twin.bucket_count, tuple(twin.record_key))
        settings = WriterSettings(index, log_format=twin.log_format)
        writer = TableWriter(_open_or_create(path, twin, timezone), schema, settings)
        keys = check_stored_rows(writer.table, index)
        return cls(writer, keys, schema, tuple(twin.ordering))

    def upsert(self, rows: pa.Table) -> Instant:
        """Commit data rows."""
        return self.begin(self.changes(rows, ChangeKind.UPSERT))()

    def delete(self, rows: pa.Table, kind: ChangeKind = ChangeKind.DELETE) -> Instant:
        """Commit deletes, each with the ordering value of its row."""
        return self.begin(self.changes(self._without_content(rows), kind))()

    def begin_upsert(self, rows: pa.Table) -> Callable[[], Instant]:
        """Write the files of a commit, and return a function that publishes it later."""
        return self.begin(self.changes(rows, ChangeKind.UPSERT))

    def begin(self, changes: pa.Table) -> Callable[[], Instant]:
        """Request an instant and write its files; the caller publishes."""
        context, assignment = self.writer.begin(), self.writer.assigner.assign_file_groups()
        written = [
            write_file_group(context, assignment.task(bucket), [part])
            for bucket, part in by_bucket(changes, self.writer.settings.index)
        ]
        return lambda: self.writer.commit([stat for stats in written for stat in stats], {})

    def plan_compaction(self) -> Instant:
        """Request a compaction of all slices that have logs, without executing it."""
        table = self.writer.table

        def slices_at(timeline: Timeline) -> Sequence[FileSlice]:
            table.refresh(timeline)
            return [s for s in table.view().slices_for_writing() if s.logs]

        requested = request_compaction(table.context, slices_at)
        assert requested is not None, "no file slice has logs"
        table.refresh()
        return requested[0]

    def compact(self) -> list[Instant]:
        """Execute all pending compactions; then plan and execute one of all slices with logs."""
        policy = CompactionPolicy(after_commits=1)
        return [instant for instant, _ in self.writer.compact_if_due(policy, LocalRunner(2))]

    def _without_content(self, rows: pa.Table) -> pa.Table:
        kept = {*self.keys.config.record_key_fields, *self.keys.config.partition_fields}
        kept |= set(self.ordering)
        columns = [
            rows[f.name] if f.name in kept else pa.nulls(rows.num_rows, f.type) for f in self.schema
        ]
        return pa.table(columns, schema=self.schema)

    def changes(self, rows: pa.Table, kind: ChangeKind) -> pa.Table:
        """Convert rows to the layout of changes."""
        rows = rows.cast(self.schema)
        columns = {name: rows[name] for name in self.schema.names}
        columns |= {RECORD_KEY: self.keys.record_keys(rows)}
        columns |= {PARTITION_PATH: self.keys.partition_paths(rows)}
        columns |= {CHANGE_KIND: pa.array([kind.value] * rows.num_rows, pa.int8())}
        schema = with_meta_columns(self.schema).append(CHANGE_KIND_FIELD)
        arrays = [columns.get(f.name, pa.nulls(rows.num_rows, f.type)) for f in schema]
        return pa.table(arrays, schema=schema)


def _open_or_create(path: Path, twin: ApacheTable, timezone: str | None) -> OpenTable:
    location = StorageLocation(str(path))
    try:
        return open_table(location, timezone=timezone)
    except TableNotFound:
        mode = MergeMode.EVENT_TIME if twin.ordering else MergeMode.COMMIT_TIME
        spec = TableSpec(
            name=twin.name,
            record_key=tuple(twin.record_key),
            table_type=TableType(twin.table_type),
            partition_by=tuple(twin.partition),
            ordering=tuple(twin.ordering),
            merge_mode=mode,
            meta_columns=twin.extra.get("hoodie.populate.meta.fields") != "false",
            version=FormatVersion(twin.version),
        )
        return create_table(location, spec)
