"""Raw Kafka records into changes of the table, and into rejects for those that are none.

A batch goes in as one table: ``key`` and ``value`` (binary), ``partition`` (int32), ``offset``
(int64), ``timestamp``, and optionally ``topic``. Invariants:

- each record becomes exactly one change or one reject, but for tombstones that are ignored;
- changes are in order of partition and offset (then topic), whatever the order of the batch;
- the columns of the result depend on the configuration alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.model.changes import CHANGE_KIND_FIELD, DeleteMarker
from lakemark.model.meta_columns import with_meta_columns
from lakemark.model.written_columns import written_field
from lakemark.schema.field_path import column_at, top_column
from lakemark.schema.table_columns import check_columns
from lakemark.write.delete_marks import DeleteMarks
from transforms.change_batch import ChangeBatch, Prepared
from transforms.decode.decoder import ColumnDecoder
from transforms.kafka_records import KafkaColumn, in_order_of_arrival, kafka_fields
from transforms.tombstone_keys import TombstoneKey, TombstoneKeys
from transforms.tombstone_ordering import TombstoneOrdering
from transforms.written_fields import WrittenFields

__all__ = ["Prepared", "ToChanges"]


@dataclass(frozen=True)
class ToChanges:
    """Turns batches of raw Kafka records into changes; holds only its configuration, so it pickles.

    A null value with a key is a tombstone: it deletes, whatever the time of what it meets, or by an
    ordering value of its own (``tombstone_ordering``). A row that is marked as deleted (see
    ``lakemark.write.delete_marks``) deletes by its ordering value, or, as in Apache Hudi, like a
    tombstone when it has none. A mark is a column of the table only if it is declared.

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
        delete_marker: marks deletes among the rows, besides Hudi's own columns.
        tombstone_ordering: orders tombstones, see ``transforms.tombstone_ordering``; None makes
            them unconditional.
        fills_absent_fields: whether a column stays as it is in the table where a record has no
            field for it; changes then have ``WRITTEN_COLUMNS``. If not, it becomes null.
        ignores_tombstones: whether null values are counted and passed over, whatever their key.
        logs_deletes: whether deletes are stored in logs, as in merge-on-read tables; one with an
            ordering value that a log cannot store is then rejected.
        columns: the table's, where it has more of them than the records, or another order: these
            are null. None is a table of the records' own columns.

    Raises:
        InvalidConfig: names or types that a table cannot have, two columns of one name, a field
            that is no column, a raw tombstone key where the key has more than one part, tombstones
            that cannot be ordered so, or columns that mark deletes in a table of partial rows.
    """

    decoder: ColumnDecoder
    key_generator: KeyGenerator
    ordering_fields: tuple[str, ...] = ()
    tombstone_key: TombstoneKey | None = None
    kafka_columns: tuple[KafkaColumn, ...] = ()
    kafka_prefix: str = "_kafka_"
    topic: str | None = None
    delete_marker: DeleteMarker | None = None
    tombstone_ordering: str | None = None
    fills_absent_fields: bool = False
    ignores_tombstones: bool = False
    logs_deletes: bool = False
    columns: pa.Schema | None = None

    def __post_init__(self) -> None:
        marks = self.delete_marks
        if self.fills_absent_fields and marks.kept:
            message = (
                f"columns {', '.join(marks.kept)} mark deletes, and Apache Hudi cannot "
                "read partial rows in a table that has such; leave them undeclared, or let absent "
                "fields be null"
            )
            raise InvalidConfig(message)
        nothing = self.table_schema.empty_table()
        for name in self.ordering_fields:
            column_at(nothing, name)
        self.key_generator.record_keys(nothing)
        self.key_generator.partition_paths(nothing)
        _ = self.tombstone_keys

    @property
    def table_schema(self) -> pa.Schema:
        """The user's columns: declared ones, the rescue column, Kafka's."""
        if self.columns is not None:
            return self.columns
        kafka = kafka_fields(self.kafka_columns, self.kafka_prefix)
        return check_columns(pa.schema([*self.decoder.rows_schema, *kafka]))

    def onto(self, columns: pa.Schema) -> ToChanges:
        """The same for a table that has these columns.

        Records fill those that they filled before, in the type that they have now, and where
        unknown fields evolve the table every other one that they can be decoded to.

        Args:
            columns: of the table; those of ``table_schema`` are among them.
        """
        own = set(self.table_schema.names) - set(self.decoder.schema.names)
        fills_all = self.decoder.unknown_fields == "evolve"
        fields = [
            field
            for field in columns
            if field.name in self.decoder.schema.names
            or (fills_all and field.name not in own and self.decoder.is_decodable(field.type))
        ]
        decoder = replace(self.decoder, schema=pa.schema(fields))
        return replace(self, decoder=decoder, columns=columns)

    def on_trial(self, columns: pa.Schema) -> ToChanges:
        """The same for wider columns, asking for no others whatever the records hold."""
        policy = replace(self.decoder.policy, unknown_fields="ignore", wider_values="reject")
        decoder = replace(self.decoder, policy=policy)
        return replace(self, decoder=decoder).onto(columns)

    def __call__(self, records: pa.Table) -> Prepared:
        """Sort a batch of records into changes and rejects; never fails on what is in them."""
        batch = ChangeBatch(self, in_order_of_arrival(records))
        batch.read_values()
        batch.read_tombstones()
        return batch.finish()

    @property
    def changes_schema(self) -> pa.Schema:
        """Of the tables of changes."""
        schema = with_meta_columns(self.table_schema)
        written = [written_field(len(schema))] if self.fills_absent_fields else []
        return pa.schema([*schema, CHANGE_KIND_FIELD, *written])

    @property
    def value_decoder(self) -> ColumnDecoder:
        """The decoder, made to read the marks of deleted rows too."""
        filled, keys = self.decoder.schema.names, self.key_generator.config
        table_schema = self.table_schema
        settled = {*keys.record_key_fields, *keys.partition_fields, *self.ordering_fields}
        if self.delete_marker is not None:
            settled.add(self.delete_marker.field)
        policy = replace(
            self.decoder.policy,
            settled=frozenset(settled),
            taken=frozenset(table_schema.names) - set(filled),
        )
        columns = [table_schema.field(name) for name in filled]
        schema = pa.schema([*columns, *self.delete_marks.undeclared])
        return replace(self.decoder, schema=schema, policy=policy)

    @property
    def delete_marks(self) -> DeleteMarks:
        """What marks a row as deleted."""
        return DeleteMarks(self.decoder.schema, self.delete_marker)

    @property
    def tombstones_order(self) -> TombstoneOrdering | None:
        """What orders tombstones, if anything does."""
        if self.tombstone_ordering is None:
            return None
        fields, unit = self.ordering_fields, self.decoder.epoch_unit
        return TombstoneOrdering.of(self.tombstone_ordering, self.decoder.schema, fields, unit)

    @property
    def tombstone_keys(self) -> TombstoneKeys | None:
        """How tombstones name their records, if they may."""
        order = self.tombstones_order
        if self.tombstone_key is None or self.ignores_tombstones:
            return None
        keys = self.key_generator.config
        besides = order.key_field if order else None
        return TombstoneKeys.of(self.tombstone_key, self.decoder, keys, besides)

    @property
    def _unfilled(self) -> frozenset[str]:
        """Columns of the table that nothing here has a value for."""
        kafka = {self.kafka_prefix + name for name in self.kafka_columns}
        return frozenset(self.table_schema.names) - {*self.decoder.rows_schema.names, *kafka}

    @property
    def written_fields(self) -> WrittenFields:
        """What records must and may leave out."""
        keys = self.key_generator.config
        needed = (*keys.record_key_fields, *keys.partition_fields, *self.ordering_fields)
        return WrittenFields(
            tuple(self.table_schema.names),
            frozenset(self.decoder.schema.names),
            self.decoder.rescue_column,
            frozenset(top_column(name, self.table_schema) for name in needed),
            self._unfilled,
            self.decoder.policy.aliases,
        )
