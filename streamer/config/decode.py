"""``decode``: how a record's bytes become columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from streamer.config.section import Section
from transforms.decode.schema_policy import SchemaPolicy
from transforms.schema_text import parse_schema

#: Column to type (``string``, ``decimal(10,2)``, ``array<int>``, …), or look at the data.
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
    """JSON values, one object in each record."""

    kind: Literal["json"] = "json"
    """What the values are."""

    columns: Annotated[
        DeclaredSchema,
        PlainValidator(_schema),
        PlainSerializer(_shown),
        WithJsonSchema(_JSON_SCHEMA),
        Field(alias="schema"),
    ] = "infer"
    """The columns: ``{order_id: string, amount: "decimal(10,2)"}``; ``infer`` them from the first
    batch; or ``{avro: PATH}``, the record of a schema file (url, or path from the folder of the
    pipeline file), which is replaced by its columns when the file is loaded."""

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

    tombstone_key: Literal["raw", "json"] | None = None
    """How the Kafka key of a record without value names the row to delete: ``raw``, its text is
    the record key; ``json``, an object with the record key's and the partition's fields. Left out:
    ``raw`` with one key field and no partitions, else ``json``."""

    tombstone_ordering: Annotated[str, Field(min_length=1)] = "none"
    """What a record without value is ordered by: ``none``, it deletes whatever it meets;
    ``record_timestamp``, the time of the Kafka record, in ``timestamp_unit`` where the ordering
    column is an integer; or the name of a field of its JSON key. It then loses to newer rows. The
    table must be ordered by one column."""

    def policy(self) -> SchemaPolicy:
        """What happens to records that the schema does not hold."""
        return SchemaPolicy(self.unknown_fields, self.wider_values, dict(self.aliases))

    def declared(self) -> pa.Schema | None:
        """The declared columns, or None when they are inferred."""
        return None if isinstance(self.columns, str) else parse_schema(self.columns)
