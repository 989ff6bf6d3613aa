"""``decode``: how a record's bytes become columns; one section for each format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)

from streamer.config import settings
from streamer.config.masking import SecretGiven
from streamer.config.section import Section
from streamer.config.settings import Setting, Settings
from table.errors import InvalidConfig
from transforms.decode.avro_framing import (
    ConfluentFraming,
    Framing,
    PlainFraming,
    WriterSchema,
    writer_schema,
)
from transforms.decode.avro_references import StoredSchema
from transforms.decode.registry import RegistryAccess, SchemaRegistry
from transforms.decode.schema_policy import SchemaPolicy
from transforms.schema_text import parse_schema

#: Column to type (``string``, ``decimal(10,2)``, ``array<int>``, …), or look at the data.
DeclaredSchema = Mapping[str, str] | Literal["infer"]

#: Where what a registry asks of its clients stands in the pipeline file, and what it is called.
ACCESS_PATH = "decode.schema_registry.access"
_ACCESS_NAMES = tuple(member.name for member in fields(RegistryAccess))

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
            message = "the name of each column is a text; quote those that YAML takes for another"
            raise ValueError(message)
        if not all(isinstance(text, str) for text in given.values()):
            message = "the type of each column is a text such as bigint or decimal(10,2)"
            raise ValueError(message)
        return dict(given)
    message = "expected infer, {avro: PATH} or a mapping of columns to types"
    raise ValueError(message)


def _shown(schema: DeclaredSchema) -> str | dict[str, str]:
    return schema if isinstance(schema, str) else dict(schema)


class DecodeConfig(Section):
    """What the formats have in common."""

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

    ``infer`` uses the columns of the table. If there is no table yet, Avro columns come from the
    newest schema of the writers. JSON columns come from about 1,000 records, beginning at the
    offset where the first run starts (or, if there are none yet, from the last records before it).
    Integers beyond 64 bits become ``decimal(38,0)``. A field becomes a timestamp if all of its
    values are ISO-8601 dates with a time, and all or none have an offset (without one they are
    UTC). Fields that are null or empty in all of these records, and fields whose names begin with
    ``_hoodie_``, do not become columns: a warning lists them, and ``unknown_fields`` decides what
    happens to their values. See [How a schema is
    inferred](schema_evolution.md#how-a-schema-is-inferred)."""

    unknown_fields: Literal["ignore", "rescue", "evolve", "reject", "fail"] = "ignore"
    """What happens to fields that no column is declared for, nested ones included: they are left
    out (``ignore``), kept as JSON in ``rescue_column`` (``rescue``), become columns of the table
    (``evolve``), or their record goes to the dead letters (``reject``) or stops the run
    (``fail``)."""

    wider_values: Literal["reject", "evolve", "rescue", "fail"] = "reject"
    """What happens to values that do not fit their column and would fit a wider type without loss:
    bigint or double for int, double for float. ``evolve`` makes the column wider, but none of key,
    partition or ordering, and nothing inside structs and arrays; the others as for
    ``unknown_fields``. What fits no wider type, such as text for a number, always goes to the dead
    letters."""

    rescue_column: Annotated[str, Field(min_length=1)] | None = None
    """Column that takes unknown fields or wider values, as JSON; with ``rescue`` for one of
    them."""

    aliases: Mapping[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Fields that were renamed, and the column that each fills: ``{customer_name: customer}``. A
    record that has both names with different values goes to the dead letters."""

    timestamp_unit: Literal["s", "ms", "us", "ns"] = "ms"
    """What a number stands for where a timestamp is expected."""

    tombstones: Literal["delete", "ignore"] = "delete"
    """What a record without value does: it deletes the row that its Kafka key names, and goes to
    the dead letters if the key names none (``delete``); or it is counted and passed over, whatever
    its key (``ignore``)."""

    tombstone_key: Literal["raw", "json", "avro"] | None = None
    """How the Kafka key of a record without value names the row to delete: ``raw``, its text is
    the record key; ``json``, an object with the record key's and the partition's fields; ``avro``,
    where the values are Avro too, a record of these fields, or the value of the only one. Left out:
    ``raw`` with one key field and no partitions, else ``json``. A field of the partition that is
    null in the key names the default partition; a field that is missing is an error."""

    tombstone_ordering: Annotated[str, Field(min_length=1)] = "none"
    """What a record without value is ordered by: ``none``, it deletes whatever it meets;
    ``record_timestamp``, the time of the Kafka record, in ``timestamp_unit`` where the ordering
    column is an integer; or the name of a field of its key. It then loses to newer rows. The
    table must be ordered by one column."""

    def policy(self) -> SchemaPolicy:
        """What happens to records that the schema does not hold."""
        return SchemaPolicy(self.unknown_fields, self.wider_values, dict(self.aliases))

    def declared(self) -> pa.Schema | None:
        """The declared columns, or None when they are inferred."""
        return None if isinstance(self.columns, str) else parse_schema(self.columns)


class JsonDecodeConfig(DecodeConfig):
    """JSON values, one object in each record."""

    format: Literal["json"] = "json"
    """What the values are."""


def _access(given: Mapping[str, Setting]) -> Mapping[str, Setting]:
    unknown = sorted(set(given) - set(_ACCESS_NAMES))
    if unknown:
        message = f"{unknown[0]} is not one of {', '.join(_ACCESS_NAMES)}"
        raise ValueError(message)
    if {"user", "token"} <= set(given):
        message = "user and token are two ways to sign in; leave one of them out"
        raise ValueError(message)
    for name, other in (("password", "user"), ("key_file", "certificate_file")):
        if name in given and other not in given:
            message = f"{name} has no meaning without {other}"
            raise ValueError(message)
    return given


def _without_user(url: object) -> object:
    if isinstance(url, str) and "@" in url:
        message = f"expected a url without user, password or token; give them in {ACCESS_PATH}"
        raise SecretGiven(message)
    return url


class SchemaRegistryConfig(Section):
    """A schema registry with Confluent's REST interface. Spark's executors ask it too."""

    url: Annotated[str, Field(pattern=r"^https?://[^@?#]+$"), BeforeValidator(_without_user)]
    """Where it answers, such as ``https://registry:8081``. A url with a user, a password or a
    token in it is refused: these belong in ``access``."""

    access: Annotated[Settings, AfterValidator(_access)]
    """What it asks of its clients: ``user`` and ``password``, or ``token``; ``ca_file`` with the
    certificates to trust, ``certificate_file`` and ``key_file`` with the client's own (PEM, at the
    same paths on every executor)."""

    patience_s: Annotated[float, Field(ge=0)] = 30.0
    """How long a registry that does not answer is asked again before the run stops."""

    def registry(self) -> SchemaRegistry:
        """The registry, with its secrets.

        Raises:
            ConfigError: a secret cannot be found.
        """
        found = settings.resolve(self.access, ACCESS_PATH)
        return SchemaRegistry(self.url, RegistryAccess(**found), self.patience_s)


class AvroDecodeConfig(DecodeConfig):
    """Avro values, one record in each."""

    format: Literal["avro"]
    """What the values are."""

    wire_format: Literal["confluent", "plain"] = "confluent"
    """``confluent``, the id of a schema of the registry before each value; ``plain``, the value
    alone."""

    schema_registry: SchemaRegistryConfig | None = None
    """Where the schemas of ``confluent`` values are."""

    subject: Annotated[str, Field(min_length=1)] | None = None
    """Whose newest schema the columns of a new table come from. Left out: ``<topic>-value``."""

    unknown_schema: Literal["dead_letter", "stop"] = "dead_letter"
    """What happens to records with an id that the registry does not know: they go to the dead
    letters, or the run stops."""

    writer_schema: Annotated[str, Field(min_length=1)] | None = None
    """The schema that ``plain`` values are written with: its JSON, or ``{file: PATH}`` (url, or
    path from the folder of the pipeline file), which is replaced by it when the file is loaded."""

    key_schema: Annotated[str, Field(min_length=1)] | None = None
    """The same for the Kafka keys of tombstones, where ``tombstone_key`` is ``avro``."""

    record_limit_bytes: Annotated[int, Field(ge=1)] = 64 << 20
    """How large the columns of one record may be in memory. A null in an array is one byte, and as
    large in its columns as the values are that it stands beside, so a small record may become a
    very large one. Larger ones go to the dead letters."""

    def framing(self) -> Framing:
        """How values say which schema they were written with.

        Raises:
            ConfigError: a secret cannot be found.
        """
        if self.schema_registry is not None:
            return ConfluentFraming(self.schema_registry.registry(), self.unknown_schema)
        key = None if self.key_schema is None else StoredSchema(self.key_schema)
        return PlainFraming(StoredSchema(self.writer_schema or ""), key)

    def newest_schema(self, topic: str) -> WriterSchema:
        """What the columns of a new table come from.

        Args:
            topic: that the values are in.

        Raises:
            InvalidConfig: a schema that can be no columns.
            RegistryError: it cannot be had.
        """
        name, stored = "decode.writer_schema", StoredSchema(self.writer_schema or "")
        if self.schema_registry is not None:
            subject = self.subject or f"{topic}-value"
            stored = self.schema_registry.registry().newest(subject)
            name = f"the newest schema of subject {subject}"
        schema = writer_schema(name, stored, None)
        if isinstance(schema, str):
            raise InvalidConfig(schema)
        return schema


#: One of the formats' sections.
AnyDecodeConfig = Annotated[JsonDecodeConfig | AvroDecodeConfig, Field(discriminator="format")]
