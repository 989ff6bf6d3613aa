"""``decode``: how the bytes of a record become columns. Each format has its own section."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

import pyarrow as pa
from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from lakemark.errors import InvalidConfig
from streamer.config.schema_registry import SchemaRegistryConfig
from streamer.config.section import Section
from transforms.decode.avro import AvroDecoder
from transforms.decode.avro_framing import (
    AvroFraming,
    ConfluentFraming,
    PlainFraming,
    WriterSchema,
    load_writer_schema,
)
from transforms.decode.decoder import ColumnDecoder, EpochUnit
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_differences import column_types
from transforms.decode.schema_policy import SchemaPolicy
from transforms.decode.stored_schema import StoredSchema
from transforms.schema_text import parse_schema

#: The type of each column (``string``, ``decimal(10,2)``, ``array<int>``, …), or ``infer``.
DeclaredSchema = Mapping[str, str] | Literal["infer"]

_JSON_SCHEMA = {
    "oneOf": [
        {"const": "infer"},
        {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
    ]
}


def _schema(given: object) -> DeclaredSchema:
    if given == "infer":
        return "infer"
    if isinstance(given, Mapping) and given:
        if not all(isinstance(name, str) for name in given):
            message = (
                "the name of each column must be text; quote a name that YAML reads as another type"
            )
            raise ValueError(message)
        if not all(isinstance(text, str) for text in given.values()):
            message = "the type of each column must be a text such as bigint or decimal(10,2)"
            raise ValueError(message)
        return dict(given)
    message = "expected infer, {avro: PATH} or a mapping of columns to types"
    raise ValueError(message)


def _shown(schema: DeclaredSchema) -> str | dict[str, str]:
    return schema if isinstance(schema, str) else dict(schema)


class DecodeConfig(Section, ABC):
    """Settings that all formats share."""

    columns: Annotated[
        DeclaredSchema,
        PlainValidator(_schema),
        PlainSerializer(_shown),
        WithJsonSchema(_JSON_SCHEMA),
        Field(alias="schema"),
    ] = "infer"
    """The columns of the records, in one of three forms.

    A mapping declares each column and its [type](#types-of-columns): ``{order_id: string, amount:
    "decimal(10,2)"}``. A decimal needs both precision and scale.

    ``{avro: PATH}`` takes the columns from an Avro schema file. PATH is a URL, or a path relative
    to the folder of the pipeline file. The schema is read when the pipeline file is loaded.

    ``infer`` uses the columns of the table. If there is no table yet, columns of Avro, Protocol
    Buffers and JSON Schema come from the newest schema of ``subject``; without a registry, from
    ``writer_schema`` or the type ``message``. Columns of plain JSON come from about 1,000 records,
    beginning at the offset where the first run starts. If fewer records follow, the last records
    before this offset are also used. Integers beyond 64 bits become ``decimal(38,0)``. A field
    becomes a timestamp if all of its values are ISO-8601 dates with a time, and either all or none
    of them have a UTC offset (``+02:00`` or ``Z``). Values without a UTC offset are read as UTC.
    Two kinds of fields do not become columns: fields that are null or empty in all of these
    records, and fields whose names begin with ``_hoodie_``. A warning lists them, and
    ``unknown_fields`` decides what happens to their values. See [How a schema is
    inferred](schema_evolution.md#how-a-schema-is-inferred)."""

    unknown_fields: Literal["ignore", "rescue", "evolve", "reject", "fail"] = "ignore"
    """What happens to fields without a column, including nested fields. ``ignore`` omits them,
    ``rescue`` keeps them as JSON in ``rescue_column``, ``evolve`` adds columns to the table,
    ``reject`` sends the record to the dead letters, ``fail`` stops the run."""

    wider_values: Literal["reject", "evolve", "rescue", "fail"] = "reject"
    """What happens to values that do not fit their column but would fit a wider type without loss:
    bigint or double for an int column, double for a float column. ``evolve`` widens the column,
    except for key, partition and ordering columns and for fields inside structs and arrays. The
    other choices work as for ``unknown_fields``. A value that fits no wider type, such as text in a
    column of numbers, always goes to the dead letters."""

    rescue_column: Annotated[str, Field(min_length=1)] | None = None
    """The column that keeps unknown fields or wider values as JSON, if ``unknown_fields`` or
    ``wider_values`` is ``rescue``."""

    aliases: Mapping[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Renamed fields, and the column that each of them fills: ``{customer_name: customer}``. A
    record that has different values under both names goes to the dead letters."""

    timestamp_unit: Literal["s", "ms", "us", "ns"] = "ms"
    """The unit of integers in timestamp columns; they count from 1970-01-01T00:00:00Z. Nanoseconds
    are rounded down to microseconds, also before 1970."""

    tombstones: Literal["delete", "ignore"] = "delete"
    """What happens to a record without a value (a tombstone). ``delete`` deletes the row that its
    Kafka key names. If the Kafka key is missing or malformed, or lacks a field of the record key or
    of the partition, the record goes to the dead letters. ``ignore`` only counts such records,
    whatever their keys are."""

    tombstone_key: Literal["raw", "json", "avro", "protobuf"] | None = None
    """How the Kafka key of a tombstone names the row to delete. ``raw``: the text of the key is the
    record key. ``json``: the key is a JSON object with the fields of the record key and of the
    partition. ``avro``, for Avro values only: the key is an Avro record with these fields or, if
    there is a single field, the bare value of this field. ``protobuf``, for Protocol Buffers with a
    registry only: the key is a message with these fields. Default: ``raw`` if the table has one key
    field and no partitions, otherwise ``json``. If a partition field is null in the key, the row is
    in the default partition. If a partition field is missing, the tombstone goes to the dead
    letters. With ``table.partition_change: move``, only the fields of the record key are read, and
    the row is deleted in any partition; then a partitioned table may also have ``raw`` keys."""

    tombstone_ordering: Annotated[str, Field(min_length=1)] = "none"
    """The ordering value of a tombstone. With ``none``, a tombstone has no ordering value and
    always deletes. With ``record_timestamp``, the value is the timestamp of the Kafka record (in
    ``timestamp_unit`` if the ordering column holds integers). Any other text is the name of a field
    of the Kafka key. A tombstone with an ordering value does not delete a newer row. If its
    ordering value is missing, the tombstone goes to the dead letters. With any setting but
    ``none``, the table must have exactly one ordering column."""

    @property
    def change_position(self) -> str | None:
        """The column with the position of each change in the log of the database, if any."""
        return None

    @property
    def deletes_may_be_keys(self) -> bool:
        """Whether the event of a deleted row may contain only the primary key of the row."""
        return False

    @property
    def sent_for_unavailable(self) -> str | None:
        """The text that the source sends for a value that an update did not change, if any."""
        return None

    def policy(self) -> SchemaPolicy:
        """Return the policy for records that do not fit the schema."""
        return SchemaPolicy(self.unknown_fields, self.wider_values, dict(self.aliases))

    def declared(self) -> pa.Schema | None:
        """Return the declared columns, and those of the event; None if they are inferred.

        Raises:
            InvalidConfig: a type or a name is not valid.
        """
        if isinstance(self.columns, str):
            return None
        return self.with_event_columns(parse_schema(self.columns))

    @property
    def declared_names(self) -> frozenset[str] | None:
        """The names of the declared columns; None if the columns are inferred."""
        return None if isinstance(self.columns, str) else frozenset(self.columns)

    @property
    def event_columns(self) -> pa.Schema:
        """The columns that the event around each row adds."""
        return pa.schema([])

    def with_event_columns(self, columns: pa.Schema) -> pa.Schema:
        """Return columns of the rows, with the missing columns of the event after them."""
        missing = [one for one in self.event_columns if one.name not in columns.names]
        return pa.schema([*columns, *missing])

    @property
    def infers_columns(self) -> bool:
        """Whether the columns of a new table can be inferred from records."""
        return True

    @property
    def needs_keys(self) -> bool:
        """Whether decoding a value needs the key of its Kafka record."""
        return False

    def shared_arguments(self) -> tuple[str | None, EpochUnit, SchemaPolicy]:
        """Return the arguments that a decoder of any format has after its columns."""
        return self.rescue_column, self.timestamp_unit, self.policy()

    @abstractmethod
    def decoder(self, columns: pa.Schema, key_columns: Sequence[str] = ()) -> ColumnDecoder:
        """Return the decoder of the values.

        Args:
            columns: the columns of the values, and those of the event.
            key_columns: the columns of the record key and the partition, see ``Envelope``.

        Raises:
            ConfigError: a secret cannot be found.
            InvalidConfig: a column is not supported.
        """

    def for_some_columns(self) -> Self:
        """Return the settings to decode some columns only, and to ignore all other fields."""
        return self.model_copy(
            update={
                "unknown_fields": "ignore",
                "wider_values": "reject",
                "rescue_column": None,
                "aliases": {},
            }
        )

    def newest_columns(self, topic: str) -> pa.Schema | None:
        """Return the columns for a new table that the newest schema of the values has.

        Returns:
            None if values have no schema, so that their columns are inferred from records.

        Raises:
            InvalidConfig: the schema cannot be converted to columns.
            RegistryError: the registry does not return the schema.
        """
        return None


class JsonDecodeConfig(DecodeConfig):
    """How values become columns. With ``format: json``, each value is one JSON object.

    The settings of this section apply to all formats.
    """

    format: Literal["json"] = "json"
    """The format of the values."""

    def decoder(self, columns: pa.Schema, key_columns: Sequence[str] = ()) -> ColumnDecoder:
        """See ``DecodeConfig``."""
        return JsonDecoder(columns, *self.shared_arguments())


class RegistryDecodeConfig(DecodeConfig):
    """Settings of values whose schemas may be in a registry."""

    schema_registry: SchemaRegistryConfig | None = None
    """The registry that contains the schemas of the values."""

    subject: Annotated[str, Field(min_length=1)] | None = None
    """The subject whose newest schema gives a new table its columns. Default: ``<topic>-value``."""

    def subject_of(self, topic: str) -> str:
        """Return the subject whose newest schema gives a new table its columns."""
        return self.subject or f"{topic}-value"


class WriterSchemaDecodeConfig(RegistryDecodeConfig):
    """Settings of values that cannot be decoded without the schema with which they were written."""

    unknown_schema: Literal["reject", "fail"] = "reject"
    """What happens to records whose schema id the registry does not know: ``reject`` sends
    them to the dead letters, ``fail`` stops the run."""

    record_limit_bytes: Annotated[int, Field(ge=1)] = 64 << 20
    """How many bytes of memory the columns of one decoded record may take. A larger record goes to
    the dead letters. The reason for the limit: a null in an array of Avro, or a message without
    fields in Protocol Buffers, takes one or two bytes, but in memory it takes as much as any other
    value of the array. So a small record can become very large."""


class AvroDecodeConfig(WriterSchemaDecodeConfig):
    """Avro values. Each value is one Avro record.

    These settings are added to those of ``decode``.
    """

    format: Literal["avro"]
    """The format of the values."""

    wire_format: Literal["confluent", "plain"] = "confluent"
    """``confluent``: each value begins with the id of its schema in the registry. ``plain``: the
    value has no prefix, and ``writer_schema`` is the schema of all values."""

    writer_schema: Annotated[str, Field(min_length=1)] | None = None
    """The schema of ``plain`` values: its JSON, or ``{file: PATH}``. PATH is a URL, or a path
    relative to the folder of the pipeline file. The file is read when the pipeline file is
    loaded."""

    key_schema: Annotated[str, Field(min_length=1)] | None = None
    """The schema of the Kafka keys of tombstones, if ``wire_format`` is ``plain`` and
    ``tombstone_key`` is ``avro``. It is given in the same form as ``writer_schema``."""

    def decoder(self, columns: pa.Schema, key_columns: Sequence[str] = ()) -> ColumnDecoder:
        """See ``DecodeConfig``."""
        return AvroDecoder(
            columns,
            *self.shared_arguments(),
            framing=self.framing(),
            record_limit_bytes=self.record_limit_bytes,
        )

    def framing(self) -> AvroFraming:
        """Return how to find the schema of a value.

        Raises:
            ConfigError: a secret cannot be found.
        """
        if self.schema_registry is not None:
            return ConfluentFraming(self.schema_registry.registry(), self.unknown_schema)
        key = None if self.key_schema is None else StoredSchema(self.key_schema)
        return PlainFraming(StoredSchema(self.writer_schema or ""), key)

    def newest_columns(self, topic: str) -> pa.Schema:
        """See ``DecodeConfig``."""
        return column_types(self.newest_schema(topic).root.arrow)

    def newest_schema(self, topic: str) -> WriterSchema:
        """Return the schema from which a new table gets its columns.

        Raises:
            InvalidConfig: the schema cannot be converted to columns.
            RegistryError: the registry does not return the schema.
        """
        if self.schema_registry is not None:
            return newest_in_registry(self.schema_registry, self.subject_of(topic))
        return usable_schema("decode.writer_schema", StoredSchema(self.writer_schema or ""))


def newest_in_registry(
    registry: SchemaRegistryConfig, subject: str, *, typed_times: bool = False
) -> WriterSchema:
    """Return the newest schema of a subject.

    Raises:
        InvalidConfig: the schema cannot be converted to columns.
        RegistryError: the registry does not return the schema.
    """
    stored = registry.registry().latest(subject)
    return usable_schema(f"the newest schema of subject {subject}", stored, typed_times=typed_times)


def usable_schema(name: str, stored: StoredSchema, *, typed_times: bool = False) -> WriterSchema:
    """Return a schema, prepared for decoding.

    Raises:
        InvalidConfig: the schema cannot be converted to columns.
    """
    schema = load_writer_schema(name, stored, None, typed_times=typed_times)
    if isinstance(schema, str):
        raise InvalidConfig(schema)
    return schema
