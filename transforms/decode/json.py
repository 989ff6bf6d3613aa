"""Kafka values that are JSON objects, decoded into columns.

A record is read as its schema says or it is rejected with the reason; no value is guessed, rounded
or turned into null, and a record's fate does not depend on the records beside it:

string             a string
int, bigint        an integer in range; 1.0 is not one
float, double      any number, NaN, Infinity and -Infinity; 1e39 is no float
boolean            true, false
decimal(p,s)       a number or a string, exactly; one with more digits than fit is rejected
date               "yyyy-MM-dd"
timestamp          ISO-8601 text, ``T`` or blank between date and time; without a zone it is UTC,
                   digits below the microsecond are cut off. An integer counts from 1970 in
                   ``epoch_unit``. Years 1 to 9999, dates too
binary             Base64 with padding
array, struct      as their elements; null elements stay, and the timestamps of an array are all
                   text or all integers
any of them        null, or absent

What the schema does not hold goes by the policy (``schema_policy``): unknown fields, and values
that a wider type would hold. Fields that were renamed fill the columns they had before.

Blocks of values go through pyarrow (``json_block``). A block with a broken record is read leaf by
leaf; the records of a leaf that does not read are inspected one by one (``json_record``), and those
found good are read together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from table.errors import InvalidConfig
from table.schema.evolution import Path, Proposal
from transforms.decode.decoded import Decoded
from transforms.decode.json_block import EpochUnit
from transforms.decode.json_decoding import JsonDecoding
from transforms.decode.json_judge import Judge
from transforms.decode.json_record import LEAF_TYPES
from transforms.decode.schema_policy import SchemaPolicy, UnknownFields

_STRICT = SchemaPolicy()


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """Decodes columns of JSON objects; holds only its configuration, so it pickles.

    Attributes:
        schema: columns to fill.
        rescue_column: name of a string column, after the others, that keeps what the policy
            rescues of a record as one JSON object (null when there is nothing).
        epoch_unit: unit of timestamps that are integers.
        policy: what happens to unknown fields and wider values; and the aliases of columns.

    Raises:
        InvalidConfig: a type that JSON is not decoded to, a rescue column named as another, an
            alias that is a column or stands for none.
    """

    schema: pa.Schema
    rescue_column: str | None = None
    epoch_unit: EpochUnit = "ms"
    policy: SchemaPolicy = _STRICT

    def __post_init__(self) -> None:
        for field in self.schema:
            _check_type(field.name, field.type)
        if self.rescue_column in self.schema.names:
            message = f"rescue column {self.rescue_column!r} is a declared column; rename it"
            raise InvalidConfig(message)
        self.policy.with_aliases(self.schema)

    @property
    def unknown_fields(self) -> UnknownFields:
        """What happens to unknown fields."""
        default: UnknownFields = "ignore" if self.rescue_column is None else "rescue"
        return self.policy.unknown_fields or default

    @property
    def rows_schema(self) -> pa.Schema:
        """Schema of decoded rows: the declared columns, then the rescue column if there is one."""
        if self.rescue_column is None:
            return self.schema
        return self.schema.append(pa.field(self.rescue_column, pa.string()))

    def decode(self, values: pa.Array | pa.ChunkedArray) -> Decoded:
        """Decode a ``binary`` column; never fails on what is in it.

        Null values are rejected like empty ones.
        """
        if values.type != pa.binary():
            values = values.cast(pa.binary())
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        decoding = JsonDecoding(self)
        start = 0
        for chunk in chunks:
            decoding.add(chunk, start)
            start += len(chunk)
        return decoding.finish()

    def asked_by(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """What the schema must become to hold values that ask, see ``Decoded.asking``.

        Of more columns than a table should have, enough to see that.
        """
        return self._judge.asked_by(_each(values))

    def wider_in(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """The places where values hold numbers that would fit a wider type than their column's."""
        return self._judge.wider_in(_each(values))

    @property
    def _judge(self) -> Judge:
        return Judge(self.policy.with_aliases(self.schema), self.unknown_fields, self.policy)


def _each(values: pa.Array | pa.ChunkedArray) -> Iterator[bytes]:
    return (value.as_py() for value in values)


def is_decodable(data_type: pa.DataType) -> bool:
    """Whether JSON is decoded to a type."""
    try:
        _check_type("", data_type)
    except InvalidConfig:
        return False
    return True


def _check_type(path: str, data_type: pa.DataType) -> None:
    if pa.types.is_struct(data_type) and data_type.num_fields:
        for field in data_type:
            _check_type(f"{path}.{field.name}", field.type)
    elif pa.types.is_list(data_type):
        _check_type(f"{path}[]", data_type.value_type)
    elif not (
        data_type in LEAF_TYPES
        or data_type == pa.timestamp("us", "UTC")
        or pa.types.is_decimal128(data_type)
    ):
        message = f"column {path!r}: JSON is not decoded to {data_type}"
        raise InvalidConfig(message)
