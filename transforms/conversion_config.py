"""How records become changes of a table: the configuration of ``RecordConverter``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.keygen.partition_expressions import with_expression_columns
from lakemark.model.changes import CHANGE_KIND_FIELD, DeleteMarker
from lakemark.model.meta_columns import IS_DELETED, OPERATION, with_meta_columns
from lakemark.model.written_columns import written_field
from lakemark.schema.field_path import column_at, top_column
from lakemark.schema.table_columns import check_columns
from lakemark.write.delete_marks import DeleteMarks
from transforms.batch_checks import BatchCheck
from transforms.change_event_rules import ChangeEventRules
from transforms.decode.decoder import ColumnDecoder
from transforms.expectations import Rule
from transforms.raw_records import HeaderColumn, KafkaColumn, kafka_fields
from transforms.steps.chain import TransformChain
from transforms.tombstone_keys import TombstoneKey, TombstoneKeyDecoder
from transforms.tombstone_ordering import TombstoneOrdering
from transforms.written_fields import WrittenFields

NO_EVENT_RULES = ChangeEventRules()


@dataclass(frozen=True)
class ConversionConfig:
    """How Kafka records become changes of one table. Can be pickled.

    A record with a null value and a key is a tombstone. It deletes the row regardless of event
    time, unless ``tombstone_ordering`` gives it an ordering value. A record may also mark its row
    as deleted (see ``lakemark.write.delete_marks``). Such a delete uses its ordering value; if it
    has none, it deletes regardless of event time, as in Apache Hudi. The table has a column for the
    mark only if the schema declares this column.

    Attributes:
        decoder: decodes the values; its schema is the declared schema.
        key_generator: generates record keys and partition paths. Without record key fields, the
            changes have null record keys, and the sink generates them.
        ordering_fields: the fields of the event-time order. A row without a value for one of them
            is rejected. Empty for commit-time order.
        tombstone_key: the encoding of Kafka keys, see ``TombstoneKeyDecoder``; None rejects
            tombstones.
        kafka_columns: metadata of the Kafka records that become columns, after all other columns.
        kafka_prefix: the prefix of the names of these columns.
        topic: the topic of batches that have no ``topic`` column.
        delete_marker: a column and a value that mark deletes, in addition to Hudi's own columns.
        tombstone_ordering: the source of the ordering values of tombstones, see
            ``transforms.tombstone_ordering``; None makes tombstones unconditional.
        keeps_absent_fields: whether a field that a record lacks keeps its value in the table;
            changes then have ``WRITTEN_COLUMNS``. If false, the column becomes null.
        ignores_tombstones: whether null values are counted and skipped, regardless of their keys.
        logs_deletes: whether deletes are stored in logs, as in merge-on-read tables. If so, a
            delete is rejected if a log cannot store its ordering value.
        deletes_by_key: whether a delete finds its row in any partition, by the record key alone.
            Then a delete needs no partition, and its partition path is not used.
        inserts_only: whether deletes are rejected, because the stream only inserts rows.
        refuses_unordered_deletes: whether deletes without an ordering value are rejected, because
            they would also delete a newer row of their key.
        rejects_unindexable_paths: whether a record is rejected if its partition path has a dot or
            is too long, because the table has a partitioned record index
            (``lakemark.metadata.partition_shards``).
        columns: the columns of the table, if their number or order differs from that of the
            records' columns. Columns that records do not fill are null. None means the records'
            own columns.
        chain: the steps between decoding and record keys; None if there are none. With a chain,
            key, partition, ordering and delete marks are columns of its output.
        rules: the rules that judge the rows, in order.
        checks: the checks that judge whole batches, in order.
        event_rules: what change events of a database must contain.
        header_columns: headers of the Kafka records that become columns, after ``kafka_columns``.

    Raises:
        InvalidConfig: a name or type is not valid in a table; two columns have the same name; a
            field is not a column; the tombstone key is raw, but record keys have several parts;
            tombstones cannot be ordered as configured; the table has partial rows and also columns
            that mark deletes; a setting cannot be combined with a chain; or there are no record key
            fields, but the stream does not only insert rows.
        InvalidRule: a rule or a check does not fit the columns of the table.
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
    keeps_absent_fields: bool = False
    ignores_tombstones: bool = False
    logs_deletes: bool = False
    deletes_by_key: bool = False
    inserts_only: bool = False
    refuses_unordered_deletes: bool = False
    rejects_unindexable_paths: bool = False
    columns: pa.Schema | None = None
    chain: TransformChain | None = None
    rules: tuple[Rule, ...] = ()
    checks: tuple[BatchCheck, ...] = ()
    event_rules: ChangeEventRules = NO_EVENT_RULES
    header_columns: tuple[HeaderColumn, ...] = ()

    def __post_init__(self) -> None:
        if self.chain is not None:
            self._check_chain(self.chain)
        marks = self.delete_marks
        if self.keeps_absent_fields and marks.declared_marks:
            message = (
                f"columns {', '.join(marks.declared_marks)} mark deletes, but Apache Hudi cannot "
                "read partial rows in a table with such columns; do not declare them, or remove "
                "table.partial_update: absent_fields"
            )
            raise InvalidConfig(message)
        empty = self.table_schema.empty_table()
        for name in self.ordering_fields:
            column_at(empty, name)
        if not self.has_automatic_keys:
            self.key_generator.record_keys(empty)
        self.key_generator.partition_paths(empty)
        _ = self.tombstone_keys
        for rule in self.rules:
            rule.check(self.table_schema, self.required_columns)
        for check in self.checks:
            check.check(self.table_schema)

    @property
    def required_columns(self) -> frozenset[str]:
        """The columns that decide where a row is written, which row wins, or what is deleted."""
        keys, schema = self.key_generator.config, self.table_schema
        marker = () if self.delete_marker is None else (self.delete_marker.field,)
        names = (
            *keys.record_key_fields,
            *keys.partition_columns,
            *(one.stored_column for one in keys.expressions),
            *self.ordering_fields,
            *marker,
        )
        return frozenset(top_column(name, schema) for name in (*names, IS_DELETED, OPERATION))

    def _check_chain(self, chain: TransformChain) -> None:
        """Check the settings that depend on the columns of the records, which a chain changes.

        Raises:
            InvalidConfig: a setting cannot be combined with a chain.
        """
        policy = self.decoder.policy
        if self.keeps_absent_fields:
            message = "partial_update: absent_fields cannot be combined with transform"
            raise InvalidConfig(message)
        if (
            "evolve" in (policy.unknown_fields, policy.wider_values)
            or policy.wider_values == "fail"
        ):
            message = (
                "transform cannot be combined with unknown_fields: evolve, or with wider_values: "
                "evolve or fail"
            )
            raise InvalidConfig(message)
        if OPERATION in chain.input_schema.names and OPERATION not in chain.schema.names:
            message = (
                f"transform removes column {OPERATION!r}, which marks deletes; keep it, or do not "
                "declare it"
            )
            raise InvalidConfig(message)
        if self.delete_marker is not None:
            column_at(chain.schema.empty_table(), self.delete_marker.field)
        if self.columns is not None:
            self._check_castable(chain.schema, self.columns)

    def _check_castable(self, given: pa.Schema, columns: pa.Schema) -> None:
        """Check that the table's columns can hold the values, if another writer widened them."""
        for field in given:
            stored = columns.field(field.name).type
            try:
                pa.nulls(0, field.type).cast(stored)
            except pa.ArrowException:
                message = (
                    f"column {field.name!r} is {field.type} after transform, but {stored} in the "
                    "table; add a step that casts it"
                )
                raise InvalidConfig(message) from None

    @property
    def has_automatic_keys(self) -> bool:
        """Whether inserted rows get their record keys only when their batch is written."""
        return self.inserts_only and self.key_generator.config.has_automatic_keys

    @property
    def row_schema(self) -> pa.Schema:
        """The columns of the rows that records become: decoded, and then transformed."""
        return self.decoder.rows_schema if self.chain is None else self.chain.schema

    @property
    def table_schema(self) -> pa.Schema:
        """The columns without meta columns.

        They are the declared columns, the rescue column, Kafka metadata and partition expressions.
        """
        if self.columns is not None:
            return self.columns
        kafka = kafka_fields(self.kafka_columns, self.kafka_prefix)
        headers = [one.field for one in self.header_columns]
        columns = pa.schema([*self.row_schema, *kafka, *headers])
        expressions = self.key_generator.config.expressions
        return check_columns(with_expression_columns(columns, expressions))

    def for_table(self, columns: pa.Schema) -> Self:
        """Return the configuration for a table that has these columns.

        Records fill the same columns as before, but with the types of ``columns``. If unknown
        fields evolve the table, records also fill every other column that the decoder supports.

        Args:
            columns: the columns of the table; they include the columns of ``table_schema``.
        """
        if self.chain is not None:
            return replace(self, columns=columns)
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

    def for_fixed_columns(self, columns: pa.Schema) -> Self:
        """Return a configuration for wider columns that never requests a schema change."""
        policy = replace(self.decoder.policy, unknown_fields="ignore", wider_values="reject")
        decoder = replace(self.decoder, policy=policy)
        return replace(self, decoder=decoder).for_table(columns)

    @property
    def changes_schema(self) -> pa.Schema:
        """The schema of the converted changes."""
        schema = with_meta_columns(self.table_schema)
        written = [written_field(len(schema))] if self.keeps_absent_fields else []
        return pa.schema([*schema, CHANGE_KIND_FIELD, *written])

    @property
    def value_decoder(self) -> ColumnDecoder:
        """The decoder, extended so that it also reads delete marks that are not declared."""
        if self.chain is not None:
            return self._decoder_before_chain
        filled_names, keys = self.decoder.schema.names, self.key_generator.config
        table_schema = self.table_schema
        fixed_types = {*keys.record_key_fields, *keys.partition_columns, *self.ordering_fields}
        if self.delete_marker is not None:
            fixed_types.add(self.delete_marker.field)
        policy = replace(
            self.decoder.policy,
            fixed_types=frozenset(fixed_types),
            reserved_names=frozenset(table_schema.names) - set(filled_names),
        )
        columns = [table_schema.field(name) for name in filled_names]
        schema = pa.schema([*columns, *self.delete_marks.undeclared_fields])
        return replace(self.decoder, schema=schema, policy=policy)

    @property
    def _decoder_before_chain(self) -> ColumnDecoder:
        """The decoder, extended so that it also reads Hudi's own mark if it is not declared."""
        schema = self.decoder.schema
        if IS_DELETED not in schema.names:
            schema = schema.append(pa.field(IS_DELETED, pa.bool_()))
        return replace(self.decoder, schema=schema)

    @property
    def delete_marks(self) -> DeleteMarks:
        """The marks by which records mark their rows as deleted."""
        return DeleteMarks(self._declared, self.delete_marker)

    @property
    def _declared(self) -> pa.Schema:
        """The columns from which marks and ordering values are read."""
        return self.decoder.schema if self.chain is None else self.chain.schema

    @property
    def tombstone_order(self) -> TombstoneOrdering | None:
        """The source of the ordering values of tombstones; None if tombstones have none."""
        if self.tombstone_ordering is None:
            return None
        fields, unit = self.ordering_fields, self.decoder.epoch_unit
        return TombstoneOrdering.for_table(self.tombstone_ordering, self._declared, fields, unit)

    @property
    def tombstone_keys(self) -> TombstoneKeyDecoder | None:
        """The decoder of tombstone keys; None if tombstones are rejected or ignored."""
        order = self.tombstone_order
        if self.tombstone_key is None or self.ignores_tombstones or self.inserts_only:
            return None
        ordering_field = order.key_field if order else None
        keys = self.key_generator.config
        names = keys.record_key_fields
        if not self.deletes_by_key:
            names = (*names, *keys.partition_columns)
        fields = tuple(dict.fromkeys(one for name in names for one in self.key_sources(name)))
        if ordering_field is not None and self.chain is not None:
            self._check_ordering_of_keys(ordering_field, fields)
        return TombstoneKeyDecoder.for_table(
            self.tombstone_key, self.decoder, fields, ordering_field
        )

    def _check_ordering_of_keys(self, ordering: pa.Field, fields: Sequence[str]) -> None:
        """Check that one field of a Kafka key need not have two types.

        Raises:
            InvalidConfig: the ordering value of tombstones is a field of the record key whose type
                the chain changes.
        """
        schema = self.decoder.schema
        for name in fields:
            top = top_column(name, schema)
            if top == ordering.name and schema.field(top).type != ordering.type:
                message = (
                    f"tombstones are ordered by {ordering.name!r}, which is {ordering.type} after "
                    f"transform, but in the key it is {schema.field(top).type}; use "
                    "tombstone_ordering: record_timestamp"
                )
                raise InvalidConfig(message)

    def key_sources(self, column: str) -> Sequence[str]:
        """Return the fields of a tombstone's key from which a column is computed.

        Args:
            column: a column of the record key or of the partition.

        Raises:
            InvalidStep: the column depends on the whole record.
        """
        return (column,) if self.chain is None else self.chain.key_sources(column)

    @property
    def _never_written(self) -> frozenset[str]:
        """Columns of the table that records never write, and that are not computed."""
        computed = {one.stored_column for one in self.key_generator.config.expressions}
        kafka = {self.kafka_prefix + name for name in self.kafka_columns}
        return frozenset(self.table_schema.names) - {
            *self.decoder.rows_schema.names,
            *kafka,
            *(one.name for one in self.header_columns),
            *computed,
        }

    @property
    def written_fields(self) -> WrittenFields:
        """An object that finds the columns that each record writes."""
        keys = self.key_generator.config
        required = (*keys.record_key_fields, *keys.partition_columns, *self.ordering_fields)
        return WrittenFields(
            columns=tuple(self.table_schema.names),
            declared=frozenset(self.decoder.schema.names),
            rescue_column=self.decoder.rescue_column,
            always_written=frozenset(top_column(name, self.table_schema) for name in required),
            never_written=self._never_written,
            aliases=self.decoder.policy.aliases,
        )
