"""Raw Kafka records into changes of the table, and into rejects for those that are none.

A batch goes in as one table: ``key`` and ``value`` (binary), ``partition`` (int32), ``offset``
(int64), ``timestamp``, and optionally ``topic``. Invariants:

- each record becomes exactly one change or one reject;
- changes are in order of partition and offset (then topic), whatever the order of the batch;
- the columns of the result depend on the configuration alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from table.errors import InvalidConfig
from table.keygen.key_generator import KeyGenerator
from table.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, ChangeKind
from table.model.meta_columns import IS_DELETED, PARTITION_PATH, RECORD_KEY, with_meta_columns
from table.schema.field_path import column_at
from transforms.decode.decoded import Indices
from transforms.decode.json import JsonDecoder
from transforms.rejects import Rejects, Stage
from transforms.schema_text import check_columns
from transforms.tombstone_keys import TombstoneKey, TombstoneKeys

KafkaColumn = Literal["topic", "partition", "offset", "timestamp", "key"]

_KAFKA_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "key": pa.binary(),
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a batch asks of the table.

    Attributes:
        changes: layout of ``table.model.changes``, with ``_hoodie_record_key`` and
            ``_hoodie_partition_path`` filled and the other meta columns null.
        rejects: the records that ask for nothing that can be done.
    """

    changes: pa.Table
    rejects: Rejects


@dataclass(frozen=True)
class ToChanges:
    """Turns batches of raw Kafka records into changes; holds only its configuration, so it pickles.

    A null value with a key is a tombstone: it deletes, whatever the time of what it meets. A row
    whose ``_hoodie_is_deleted`` is true deletes by its ordering value, or, as in Apache Hudi, like
    a tombstone when it has none. That field is read whether it is declared or not, and is a column
    of the table only if it is.

    Attributes:
        decoder: of the values; its schema is the declared one.
        key_generator: makes record keys and partition paths.
        ordering_fields: event-time order; a row that lacks one of them is rejected. Empty for
            commit-time order.
        tombstone_key: how a Kafka key names the record, see ``TombstoneKeys``; None rejects
            tombstones.
        kafka_columns: what Kafka tells beside the value that becomes a column, after the others.
        kafka_prefix: of the names of those columns.
        topic: of batches that have no ``topic`` column.

    Raises:
        InvalidConfig: names or types that a table cannot have, two columns of one name, a field
            that is no column, or a raw tombstone key where the key has more than one part.
    """

    decoder: JsonDecoder
    key_generator: KeyGenerator
    ordering_fields: tuple[str, ...] = ()
    tombstone_key: TombstoneKey | None = None
    kafka_columns: tuple[KafkaColumn, ...] = ()
    kafka_prefix: str = "_kafka_"
    topic: str | None = None

    def __post_init__(self) -> None:
        names = [*self.decoder.rows_schema.names, *self._kafka_names]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            message = f"column {repeated[0]!r} is there twice; rename it"
            raise InvalidConfig(message)
        flag = self.decoder.schema.get_field_index(IS_DELETED)
        if flag >= 0 and self.decoder.schema.field(flag).type != pa.bool_():
            message = f"column {IS_DELETED!r} marks deletes; declare it as boolean"
            raise InvalidConfig(message)
        nothing = self.table_schema.empty_table()
        for name in self.ordering_fields:
            column_at(nothing, name)
        self.key_generator.record_keys(nothing)
        self.key_generator.partition_paths(nothing)
        if self.tombstone_key is not None:
            TombstoneKeys.of(self.tombstone_key, self.decoder, self.key_generator.config)

    @property
    def table_schema(self) -> pa.Schema:
        """The user's columns: declared ones, the rescue column, Kafka's."""
        types = [_KAFKA_TYPES[name] for name in self.kafka_columns]
        kafka = map(pa.field, self._kafka_names, types)
        return check_columns(pa.schema([*self.decoder.rows_schema, *kafka]))

    def __call__(self, records: pa.Table) -> Prepared:
        """Sort a batch of records into changes and rejects; never fails on what is in them."""
        batch = _Batch(self, in_order_of_arrival(records))
        batch.read_values()
        batch.read_tombstones()
        return batch.finish()

    @property
    def _kafka_names(self) -> list[str]:
        return [self.kafka_prefix + name for name in self.kafka_columns]

    @property
    def value_decoder(self) -> JsonDecoder:
        """The decoder, made to read the flag of deleted rows too."""
        if IS_DELETED in self.decoder.schema.names:
            return self.decoder
        flag = pa.field(IS_DELETED, pa.bool_())
        return replace(self.decoder, schema=self.decoder.schema.append(flag))


def in_order_of_arrival(records: pa.Table) -> pa.Table:
    """Records by partition, offset and, where there is more than one, topic."""
    partitions, offsets = (records.column(name).to_numpy() for name in ("partition", "offset"))
    step = np.diff(partitions)
    if np.all((step > 0) | ((step == 0) & (np.diff(offsets) > 0))):
        return records
    names = [name for name in ("partition", "offset", "topic") if name in records.column_names]
    order = pc.sort_indices(
        records.select(names), sort_keys=[(name, "ascending") for name in names]
    )
    return records.take(order)


class _Batch:
    """One batch on its way: ``records`` in order, and what has become of them so far."""

    def __init__(self, config: ToChanges, records: pa.Table) -> None:
        self._config, self._records = config, records
        self._table_schema = config.table_schema
        self._is_tombstone = _mask(records.column("value").is_null())
        self._changes: list[pa.Table] = []
        self._arrivals: list[Indices] = []
        self._rejects: list[Rejects] = []

    def read_values(self) -> None:
        """Make changes of the records that have a value."""
        arrivals = np.flatnonzero(~self._is_tombstone)
        values = self._records.column("value")
        if len(arrivals) < len(values):
            values = values.filter(pa.array(~self._is_tombstone))
        decoded = self._config.value_decoder.decode(values)
        self._reject(arrivals[decoded.rejected], decoded.reasons, Stage.DECODE)
        rows, arrivals = decoded.rows, arrivals[decoded.accepted]
        is_deleted = _mask(rows.column(IS_DELETED).fill_null(value=False))
        self._add(self._as_rows(rows, arrivals), arrivals, is_deleted)

    def read_tombstones(self) -> None:
        """Make deletes of the records that have a key and no value."""
        arrivals = np.flatnonzero(self._is_tombstone)
        if not len(arrivals):
            return
        config = self._config
        if config.tombstone_key is None:
            reason = "the value is null, and no tombstone key is configured to delete by"
            self._reject(arrivals, [reason] * len(arrivals), Stage.KEY)
            return
        keys = TombstoneKeys.of(config.tombstone_key, config.decoder, config.key_generator.config)
        decoded = keys.decode(self._records.column("key").take(pa.array(arrivals)))
        self._reject(arrivals[decoded.rejected], decoded.reasons, Stage.KEY)
        arrivals = arrivals[decoded.accepted]
        rows = self._as_rows(decoded.rows, arrivals)
        rows, arrivals = self._reject_without_partition(rows, arrivals)
        self._add(rows, arrivals, np.ones(len(arrivals), np.bool_), have_values=False)

    def finish(self) -> Prepared:
        changes = pa.concat_tables(self._changes)
        if len(self._changes) > 1:
            order = np.argsort(np.concatenate(self._arrivals))
            changes = changes.take(pa.array(order))
        return Prepared(changes, Rejects.concat(self._rejects))

    def _as_rows(self, decoded: pa.Table, arrivals: Indices) -> pa.Table:
        """The table's columns: decoded ones where there are any, Kafka's, and nulls."""
        columns = {name: decoded.column(name) for name in decoded.column_names}
        if self._config.kafka_columns:
            columns |= self._kafka_columns(arrivals)
        return pa.table(
            [
                columns[field.name]
                if field.name in columns
                else pa.nulls(decoded.num_rows, field.type)
                for field in self._table_schema
            ],
            schema=self._table_schema,
        )

    def _kafka_columns(self, arrivals: Indices) -> dict[str, pa.ChunkedArray]:
        records = self._records
        if "topic" not in records.column_names:
            topics = pa.repeat(pa.scalar(self._config.topic, pa.string()), records.num_rows)
            records = records.append_column("topic", topics)
        wanted = records.select(self._config.kafka_columns)
        if len(arrivals) < records.num_rows:
            wanted = wanted.take(pa.array(arrivals))
        return {
            self._config.kafka_prefix + name: wanted.column(name).cast(_KAFKA_TYPES[name])
            for name in wanted.column_names
        }

    def _reject_without_partition(
        self, rows: pa.Table, arrivals: Indices
    ) -> tuple[pa.Table, Indices]:
        """A null partition field is a partition of its own for a row, and an omission in a key."""
        for name in self._config.key_generator.config.partition_fields:
            lacks = _mask(column_at(rows, name).is_null())
            reason = f"Kafka key: it names no {name!r}, which the partition is made of"
            rows, arrivals = self._drop(rows, arrivals, lacks, reason, Stage.PARTITION)
        return rows, arrivals

    def _add(self, rows: pa.Table, arrivals: Indices, is_deleted: Mask, have_values: bool) -> None:
        raise NotImplementedError
