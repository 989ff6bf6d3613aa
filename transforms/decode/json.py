"""Decodes Kafka values that are JSON objects into columns.

A record is either read as its schema says, or rejected with the reason. The decoder guesses no
value. It changes a value only in two ways: a number becomes the nearest float or double, and a time
is cut to microseconds. It replaces a value by null only if the policy rescues the value. The result
for a record does not depend on the other records of the batch. Each column type accepts these JSON
values:

string             a string
int, bigint        an integer in range; 1.0 is not an integer
float, double      any number in range, NaN, Infinity and -Infinity; 1e39 does not fit float
boolean            true, false
decimal(p,s)       a number or a string, without rounding; rejected if it has more digits than fit
date               "yyyy-MM-dd"
timestamp          ISO-8601 text with ``T`` or a blank between date and time. Without a zone it is
                   UTC, and digits below the microsecond are cut off. An integer counts from 1970 in
                   ``epoch_unit``; nanoseconds are rounded down to microseconds. Years 1 to 9999,
                   also for dates
binary             Base64 with padding
array, struct      an array or object whose elements fit; null elements are kept; the timestamps of
                   an array must be all text or all integers
any type           null, or no field

The policy (``schema_policy``) decides about unknown fields, and about values that only fit a wider
type. A renamed field fills the column of its old name.

pyarrow reads the values in blocks (``json_block``). If a block contains a broken record, the
decoder reads the block in smaller parts. If a part fails, the decoder inspects its records one by
one (``json_inspection``), and reads the valid ones together. This is 5 times as fast as ``orjson``,
and as fast as ``pyarrow.json`` alone. But ``pyarrow.json`` guesses and rounds values, and cannot
name a broken record (``python -m benchmarks.codecs``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import Path, Proposal
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.json_decoding import JsonDecoding
from transforms.decode.json_inspection import LEAF_TYPES
from transforms.decode.json_policy import RecordPolicy


@dataclass(frozen=True, slots=True)
class JsonDecoder(ColumnDecoder):
    """Decodes columns of JSON objects."""

    @property
    def identity(self) -> str | None:
        """See ``ColumnDecoder``. It exists if records can neither change the columns nor stop."""
        policy = self.policy
        is_plain = self.unknown_fields == "ignore" and policy.wider_values == "reject"
        if not is_plain or policy.aliases or policy.row_paths or type(self) is not JsonDecoder:
            return None
        schema = self.rows_schema.to_string(show_field_metadata=False, show_schema_metadata=False)
        return f"json, timestamps in {self.epoch_unit}, rescue to {self.rescue_column}\n{schema}"

    def check_type(self, path: str, data_type: pa.DataType) -> None:
        """Check that JSON can be decoded to a column type."""
        _check_type(path, data_type)

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
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

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """See ``ColumnDecoder``."""
        return self._record_policy.propose_columns(_each(values))

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        return self._record_policy.find_wider_paths(_each(values))

    @property
    def _record_policy(self) -> RecordPolicy:
        return RecordPolicy(self.policy.with_aliases(self.schema), self.unknown_fields, self.policy)


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
