"""Kafka values that are JSON objects, decoded into columns.

A record is read as its schema says or it is rejected with the reason; no value is guessed, rounded
or turned into null, and a record's fate does not depend on the records beside it:

string             a string
int, bigint        an integer in range; 1.0 is not one
float, double      any number in range, NaN, Infinity and -Infinity; 1e39 does not fit float
boolean            true, false
decimal(p,s)       a number or a string, exactly; one with more digits than fit is rejected
date               "yyyy-MM-dd"
timestamp          ISO-8601 text, ``T`` or blank between date and time; without a zone it is UTC,
                   digits below the microsecond are cut off. An integer counts from 1970 in
                   ``epoch_unit``; a nanosecond becomes the microsecond that it lies in. Years 1 to
                   9999, dates too
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

from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import Path, Proposal
from transforms.decode.decoded import Decoded
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.json_decoding import JsonDecoding
from transforms.decode.json_policy import Judge
from transforms.decode.json_record import LEAF_TYPES


@dataclass(frozen=True, slots=True)
class JsonDecoder(ColumnDecoder):
    """Decodes columns of JSON objects."""

    @classmethod
    def check_type(cls, path: str, data_type: pa.DataType) -> None:
        """Pass when JSON is decoded to a type."""
        _check_type(path, data_type)

    def decode(self, values: pa.Array | pa.ChunkedArray) -> Decoded:
        """See ``ColumnDecoder``."""
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
        """See ``ColumnDecoder``."""
        return self._judge.asked_by(_each(values))

    def wider_in(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        return self._judge.wider_in(_each(values))

    @property
    def _judge(self) -> Judge:
        return Judge(self.policy.with_aliases(self.schema), self.unknown_fields, self.policy)


def _each(values: pa.Array | pa.ChunkedArray) -> Iterator[bytes]:
    return (value.as_py() for value in values)


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
