"""A table on local disk that the real writer writes commit by commit, without Spark and Kafka.

Each commit opens a new writer, like a process that has just started. Every read opens the table
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import BucketIndex
from lakemark.merge.custom.load import load_merger
from lakemark.merge.merge_stream import MergeStream
from lakemark.model.changes import CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import META_COLUMNS, PARTITION_PATH, RECORD_KEY, with_meta_columns
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation, open_storage
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import Bucket
from tests.tables import by_bucket

Row: TypeAlias = Mapping[str, Any]

KEY = "id"


@dataclass(frozen=True)
class WrittenTable:
    """A table without partitions, with one bucket.

    Attributes:
        path: the folder of the table.
        schema: the table's columns without Hudi's own; ``id`` is the record key.
        merger_class: class of its custom merger in mode ``CUSTOM``.
        log_format: format of the data blocks of its logs.
    """

    path: Path
    schema: pa.Schema
    merger_class: str | None = None
    log_format: str = "parquet"

    @classmethod
    def create(
        cls,
        path: Path,
        schema: pa.Schema,
        properties: TableProperties,
        merger_class: str | None = None,
    ) -> WrittenTable:
        """Create an empty table with these properties."""
        storage = open_storage(StorageLocation(str(path)))
        storage.create(PROPERTIES_PATH, properties.to_bytes())
        return cls(path, schema, merger_class)

    def open(self) -> OpenTable:
        """Open the table as a process does that has just started."""
        mergers = [load_merger(self.merger_class)] if self.merger_class else []
        return open_table(StorageLocation(str(self.path)), mergers=mergers)

    def upsert(self, *rows: Row) -> Commit:
        """Commit data rows; a column that a row lacks is null."""
        return self.commit(changes_of(self.schema, [(row, ChangeKind.UPSERT) for row in rows]))

    def upsert_parts(self, *rows: Row) -> Commit:
        """Commit partial rows; each has only the columns that it names."""
        changes = changes_of(self.schema, [(row, ChangeKind.UPSERT) for row in rows])
        return self.commit(with_written(changes, [[*row] for row in rows]))

    def delete(self, *rows: Row, kind: ChangeKind = ChangeKind.DELETE) -> Commit:
        """Commit deletes; each row has the key, and the ordering value if there is one."""
        return self.commit(changes_of(self.schema, [(row, kind) for row in rows]))

    def commit(self, *arriving: pa.Table) -> Commit:
        """Write changes as one commit; they may arrive in several tables."""
        writer = self._writer()
        context, assignment = writer.begin(), writer.assigner.assign_file_groups()
        parts: dict[Bucket, list[pa.Table]] = {}
        for changes in arriving:
            for bucket, part in by_bucket(changes, writer.settings.index):
                parts.setdefault(bucket, []).append(part)
        written = (
            write_file_group(context, assignment.task(bucket), some)
            for bucket, some in parts.items()
        )
        stats = [stat for of_bucket in written for stat in of_bucket]
        instant = writer.commit(stats, {})
        return Commit(instant.requested_at, stats)

    def compact(self) -> bool:
        """Compact file groups with logs; return whether there were any."""
        return bool(self._writer().compact_if_due(CompactionPolicy(1), LocalRunner(1)))

    def rows(self, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Read the live rows in the order of their keys; by default, the table's own columns."""
        names = list(columns or self.schema.names)
        table = self.open()
        if table.schema is None:
            return []
        read: pa.Table = (
            table.scan(columns=[*dict.fromkeys([RECORD_KEY, *names])]).to_reader().read_all()
        )
        return read.sort_by(RECORD_KEY).select(names).to_pylist()  # type: ignore[no-any-return]

    def merge(self) -> MergeStream:
        """Merge the only file slice as a compaction does."""
        (file_slice,) = self.open().view().latest_slices()
        return self.open().scan().reader.merge(file_slice)

    def _writer(self) -> TableWriter:
        settings = WriterSettings(
            BucketIndex(1, (KEY,)), log_format=self.log_format, merger_class=self.merger_class
        )
        return TableWriter(self.open(), self.schema, settings)


@dataclass(frozen=True)
class Commit:
    """The result of a commit."""

    time: str
    stats: list[WriteStat]

    @property
    def records(self) -> int:
        """How many records it wrote to its files, without deletes."""
        return sum(stat.num_writes for stat in self.stats)


def changes_of(schema: pa.Schema, kinded: Sequence[tuple[Row, ChangeKind]]) -> pa.Table:
    """Convert rows, oldest first, to the layout of changes."""
    rows = [{RECORD_KEY: row[KEY], PARTITION_PATH: "", **row} for row, _ in kinded]
    kinds = pa.array([int(kind) for _, kind in kinded], pa.int8())
    table = pa.Table.from_pylist(rows, with_meta_columns(schema))
    return table.append_column(CHANGE_KIND_FIELD, kinds)


def with_written(changes: pa.Table, written: Sequence[Sequence[str] | None]) -> pa.Table:
    """Record for each change which columns were written; None means all columns."""
    names = [name for name in changes.column_names if name != CHANGE_KIND_FIELD.name]
    bits = [
        np.packbits(
            [own is None or name in own or name in META_COLUMNS for name in names],
            bitorder="little",
        ).tobytes()
        for own in written
    ]
    return changes.append_column(WRITTEN_COLUMNS, pa.array(bits, pa.binary(-(-len(names) // 8))))
