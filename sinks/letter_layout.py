"""How dead letters are written: their columns, and the partition of each.

A dead-letter table has a partition for each day on which records were rejected, in UTC. Tables that
an earlier version of lakemark created have no partitions, and stay so.

A record may be rejected twice: if the run dies after the dead letters of a batch were committed,
and before the batch itself, then the next start reads the records again, perhaps on another day. A
second dead letter in another partition would be replayed, too. So such a record keeps the time at
which it was rejected first (``sinks.hudi.rejection_times``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.partition_field import PartitionField
from lakemark.config.table_properties import MergeMode, TableProperties
from lakemark.config.table_spec import TableSpec
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.changes import CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_columns
from transforms.rejects import REJECTS_SCHEMA, Rejects

KEY_FIELDS = ("topic", "partition", "offset")

#: One file group in each partition, because rejects are few and readers usually read all of them.
INDEX = BucketIndex(1, KEY_FIELDS)

#: When a record was rejected, and the day of this time, which partitions the table.
REJECTED_AT, REJECTED_ON = "rejected_at", "rejected_on"

#: The columns of ``LetterLayout.earlier``.
EARLIER_COLUMNS = [RECORD_KEY, "timestamp", REJECTED_AT]

_DAY = PartitionField.parse(f"day({REJECTED_AT}) as {REJECTED_ON}")
_WITHOUT_DAYS = KeyGenerator(KeyGeneratorConfig(KEY_FIELDS))
_BY_DAY = KeyGenerator(
    KeyGeneratorConfig(KEY_FIELDS, (REJECTED_ON,), hive_style=True, expressions=(_DAY,))
)


def dead_letter_spec(name: str, *, by_day: bool = True) -> TableSpec:
    """Return the specification of a pipeline's dead-letter table.

    Args:
        name: the name of the table.
        by_day: whether the table has partitions.
    """
    return TableSpec(
        name=name,
        record_key=KEY_FIELDS,
        merge_mode=MergeMode.COMMIT_TIME,
        partition_by=(str(_DAY),) if by_day else (),
        hive_style=by_day,
    )


@dataclass(frozen=True, kw_only=True)
class LetterLayout:
    """How the dead letters of a batch are written. Can be pickled.

    Attributes:
        by_day: whether the table has partitions.
        rejected_at: when the records are rejected; None if the letters have this time already.
        earlier: records that were rejected before: ``EARLIER_COLUMNS`` of their letters.
    """

    by_day: bool
    rejected_at: datetime | None = None
    earlier: pa.Table | None = None

    @classmethod
    def of(cls, properties: TableProperties) -> LetterLayout:
        """Return the layout of an existing table."""
        return cls(by_day=REJECTED_ON in properties.partition_fields)

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table, without meta columns."""
        return with_day(REJECTS_SCHEMA) if self.by_day else REJECTS_SCHEMA

    def to_changes(self, rejects: Rejects) -> pa.Table:
        """Return rejects as upserts of the table, in the layout of ``model.changes``."""
        generator = _BY_DAY if self.by_day else _WITHOUT_DAYS
        rows, count = rejects.rows, len(rejects)
        record_keys = generator.record_keys(rows)
        rows = self._with_times(rows, record_keys)
        if self.by_day:
            rows = rows.append_column(REJECTED_ON, pa.nulls(count, pa.string()))
            rows = generator.compute_expressions(rows)
        paths = generator.partition_paths(rows)
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        columns |= {RECORD_KEY: record_keys, PARTITION_PATH: paths}
        columns[CHANGE_KIND_FIELD.name] = pa.array(np.full(count, ChangeKind.UPSERT, np.int8))
        schema = with_meta_columns(self.columns).append(CHANGE_KIND_FIELD)
        nulls = pa.nulls(count, pa.string())
        return pa.table([columns.get(field.name, nulls) for field in schema], schema=schema)

    def _with_times(self, rows: pa.Table, record_keys: pa.Array) -> pa.Table:
        """Set the time of rejection of the rows that have none."""
        times = rows.column(REJECTED_AT)
        if self.earlier is not None and self.earlier.num_rows:
            known = _identities(self.earlier.column(RECORD_KEY), self.earlier.column("timestamp"))
            found = pc.index_in(_identities(record_keys, rows.column("timestamp")), value_set=known)
            times = pc.coalesce(times, self.earlier.column(REJECTED_AT).take(found))
        if self.rejected_at is not None:
            times = pc.fill_null(times, pa.scalar(self.rejected_at, times.type))
        return rows.set_column(rows.schema.get_field_index(REJECTED_AT), REJECTED_AT, times)


def _identities(record_keys: pa.Array, timestamps: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return what tells records apart, also those of a topic that was deleted and created again."""
    times = timestamps.cast(pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(
        record_keys, times, "@", null_handling="replace", null_replacement=""
    )


#: The layout of letters that are not written, or whose table has no partitions.
WITHOUT_DAYS = LetterLayout(by_day=False)


def with_day(columns: pa.Schema) -> pa.Schema:
    """Return columns followed by the day of the rejection."""
    return columns.append(pa.field(REJECTED_ON, pa.string()))


def day_of(path: str) -> datetime | None:
    """Return the beginning of the day of a partition; None if the path names no day.

    Args:
        path: the path of a partition: ``rejected_on=2026-11-29``.
    """
    name, _, value = path.partition("=")
    try:
        day = datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day if name == REJECTED_ON else None
