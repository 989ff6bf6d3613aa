"""Raw Kafka records into changes of the table, and into rejects for those that are none.

A batch goes in as one table: ``key`` and ``value`` (binary), ``partition`` (int32), ``offset``
(int64), ``timestamp``, and optionally ``topic``. Invariants:

- each record becomes exactly one change or one reject;
- changes are in order of partition and offset (then topic), whatever the order of the batch;
- the columns of the result depend on the configuration alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from transforms.kafka_records import (
    KafkaColumn,
    in_order_of_arrival,
    kafka_columns,
    kafka_fields,
)
from transforms.rejects import Rejects, Stage
from transforms.schema_text import check_columns
from transforms.tombstone_keys import TombstoneKey, TombstoneKeys

Mask = npt.NDArray[np.bool_]


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
        kafka = kafka_fields(self.kafka_columns, self.kafka_prefix)
        return check_columns(pa.schema([*self.decoder.rows_schema, *kafka]))

    def __call__(self, records: pa.Table) -> Prepared:
        """Sort a batch of records into changes and rejects; never fails on what is in them."""
        batch = _Batch(self, in_order_of_arrival(records))
        batch.read_values()
        batch.read_tombstones()
        return batch.finish()

    @property
    def value_decoder(self) -> JsonDecoder:
        """The decoder, made to read the flag of deleted rows too."""
        columns = list(self.table_schema)[: len(self.decoder.schema)]
        if IS_DELETED not in self.decoder.schema.names:
            columns.append(pa.field(IS_DELETED, pa.bool_()))
        return replace(self.decoder, schema=pa.schema(columns))


@dataclass(frozen=True, slots=True)
class _Fault:
    """What is wrong with some rows."""

    rows: Mask
    reason: str
    stage: Stage


class _Batch:
    """One batch on its way: ``records`` in order, and what has become of them so far."""

    def __init__(self, config: ToChanges, records: pa.Table) -> None:
        self._config, self._records = config, records
        self._table_schema = config.table_schema
        self._is_tombstone = _to_mask(records.column("value").is_null())
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
        arrivals = arrivals[decoded.accepted]
        rows = self._to_rows(decoded.rows, arrivals)
        is_deleted = _to_mask(pc.fill_null(decoded.rows.column(IS_DELETED), fill_value=False))
        unordered = self._lacks_ordering(rows)
        kinds = np.full(len(arrivals), ChangeKind.UPSERT, np.int8)
        kinds[is_deleted] = ChangeKind.DELETE
        kinds[is_deleted & unordered] = ChangeKind.COMMIT_TIME_DELETE
        self._add(rows, arrivals, kinds, [self._disorder(unordered & ~is_deleted)])

    def read_tombstones(self) -> None:
        """Make deletes of the records that have no value."""
        arrivals = np.flatnonzero(self._is_tombstone)
        config = self._config
        if not len(arrivals):
            return
        if config.tombstone_key is None:
            reason = "the value is null, and no tombstone key is configured to delete by"
            self._reject(arrivals, [reason] * len(arrivals), Stage.KEY)
            return
        keys = TombstoneKeys.of(config.tombstone_key, config.decoder, config.key_generator.config)
        decoded = keys.decode(self._records.column("key").take(pa.array(arrivals)))
        self._reject(arrivals[decoded.rejected], decoded.reasons, Stage.KEY)
        arrivals = arrivals[decoded.accepted]
        rows = self._to_rows(decoded.rows, arrivals)
        kinds = np.full(len(arrivals), ChangeKind.COMMIT_TIME_DELETE, np.int8)
        self._add(rows, arrivals, kinds, self._omissions(rows))

    def finish(self) -> Prepared:
        """Changes and rejects, each in order of arrival."""
        changes = pa.concat_tables(self._changes)
        if len(self._changes) > 1:
            order = np.argsort(np.concatenate(self._arrivals))
            changes = changes.take(pa.array(order))
        return Prepared(changes, Rejects.concat(self._rejects))

    def _to_rows(self, decoded: pa.Table, arrivals: Indices) -> pa.Table:
        """The table's columns: decoded ones where there are any, Kafka's, nulls for the others."""
        config = self._config
        columns = {name: decoded.column(name) for name in decoded.column_names}
        names = [config.kafka_prefix + name for name in config.kafka_columns]
        told = kafka_columns(self._records, arrivals, config.kafka_columns, config.topic)
        columns |= dict(zip(names, told, strict=True))
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(len(arrivals), field.type)
            for field in self._table_schema
        ]
        return pa.table(arrays, schema=self._table_schema)

    def _lacks_ordering(self, rows: pa.Table) -> Mask:
        """Rows without an ordering value; all of them when the table is not ordered by any."""
        fields = self._config.ordering_fields
        lacks = np.full(rows.num_rows, not fields, np.bool_)
        for name in fields:
            lacks |= _to_mask(pc.is_null(column_at(rows, name), nan_is_null=True))
        return lacks

    def _disorder(self, rows: Mask) -> _Fault:
        fields = ", ".join(self._config.ordering_fields)
        is_fault = rows if fields else np.zeros_like(rows)
        return _Fault(is_fault, f"the ordering value ({fields}) is null", Stage.ORDERING)

    def _omissions(self, rows: pa.Table) -> list[_Fault]:
        """Partition fields that a key leaves out: null names a partition only in a row."""
        return [
            _Fault(
                _to_mask(column_at(rows, name).is_null()),
                f"Kafka key: it does not say {name!r}, which the partition is made of",
                Stage.PARTITION,
            )
            for name in self._config.key_generator.config.partition_fields
        ]

    def _add(
        self, rows: pa.Table, arrivals: Indices, kinds: npt.NDArray[np.int8], faults: list[_Fault]
    ) -> None:
        """Keep the rows that have a key and a partition and none of ``faults``."""
        generator = self._config.key_generator
        keys, paths = generator.record_keys(rows), generator.partition_paths(rows)
        fields = generator.config
        no_key = f"the record key ({', '.join(fields.record_key_fields)}) is null or empty"
        no_path = f"the value of {', '.join(fields.partition_fields)} cannot name a partition"
        good = np.ones(len(arrivals), np.bool_)
        for fault in (
            _Fault(_to_mask(keys.is_null()), no_key, Stage.KEY),
            *faults,
            _Fault(_to_mask(paths.is_null()), no_path, Stage.PARTITION),
        ):
            found = np.flatnonzero(fault.rows & good)
            self._reject(arrivals[found], [fault.reason] * len(found), fault.stage)
            good[found] = False
        changes = self._to_changes(rows, keys, paths, kinds)
        self._changes.append(changes if good.all() else changes.filter(pa.array(good)))
        self._arrivals.append(arrivals[good])

    def _to_changes(
        self, rows: pa.Table, keys: pa.Array, paths: pa.Array, kinds: npt.NDArray[np.int8]
    ) -> pa.Table:
        schema = with_meta_columns(self._table_schema).append(CHANGE_KIND_FIELD)
        rows = self._blank_deletes(rows, kinds)
        columns = {name: rows.column(name) for name in rows.column_names}
        columns |= {RECORD_KEY: keys, PARTITION_PATH: paths, CHANGE_KIND: pa.array(kinds)}
        nulls = pa.nulls(rows.num_rows, pa.string())
        return pa.table([columns.get(field.name, nulls) for field in schema], schema=schema)

    def _blank_deletes(self, rows: pa.Table, kinds: npt.NDArray[np.int8]) -> pa.Table:
        """Null in all columns of deletes but those that order them."""
        if not kinds.any():
            return rows
        stays = pa.array(kinds == ChangeKind.UPSERT)
        ordering = {name.partition(".")[0] for name in self._config.ordering_fields}
        blanked = [
            column if name in ordering else pc.if_else(stays, column, pa.scalar(None, column.type))
            for name, column in zip(rows.column_names, rows.columns, strict=True)
        ]
        return pa.table(blanked, schema=rows.schema)

    def _reject(self, indices: Indices, reasons: Sequence[str], stage: Stage) -> None:
        if len(indices):
            rejects = Rejects.of(self._records, indices, reasons, stage, self._config.topic)
            self._rejects.append(rejects)


def _to_mask(booleans: pa.Array | pa.ChunkedArray) -> Mask:
    if isinstance(booleans, pa.ChunkedArray):
        booleans = booleans.combine_chunks()
    mask: Mask = booleans.to_numpy(zero_copy_only=False)
    return mask
