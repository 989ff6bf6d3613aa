"""Parses blocks of JSON values to typed columns, with the JSON reader of pyarrow.

The values of a block are joined by newlines and parsed as one buffer. The result is valid if it has
as many rows as there are values. The reason is that each value starts with ``{`` and ends with
``}``. A JSON string cannot contain a newline, and ``}`` newline ``{`` cannot occur inside an
object. So if the buffer can be parsed, each value contains at least one whole document.

Some types are not read correctly by pyarrow. They are read as another type and then converted:

- dates and Base64 are read as text
- ``float`` is read as ``double``, because pyarrow would read 1e39 as infinity
- decimals are read as wider decimals (``decimal_texts.type_to_parse``)
- timestamps are read in the form in which the records contain them
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from transforms.decode.decimal_texts import type_to_parse
from transforms.decode.decoder import EpochUnit
from transforms.decode.timestamps import find_out_of_range, to_microseconds


class TimestampForm(Enum):
    """The form that the values of one timestamp column have in the records."""

    #: ISO 8601 with at most six digits after the second, which pyarrow can parse.
    ISO = "iso"
    #: ISO 8601. Some records have more than six digits, which are cut off.
    LONG_FRACTION = "long fraction"
    #: An integer that counts from 1970 in the declared unit.
    EPOCH = "epoch"


#: One form for each timestamp of a schema, including nested timestamps, depth first.
Forms = tuple[TimestampForm, ...]


@dataclass(frozen=True)
class BlockReader:
    """Reads blocks of values that each start with ``{`` and end with ``}``.

    Attributes:
        schema: the columns to read; other fields of the records are skipped.
        epoch_unit: the unit of timestamps that are integers.
    """

    schema: pa.Schema
    epoch_unit: EpochUnit

    def read(self, values: pa.Array, forms: Forms) -> pa.Table:
        """Read one row for each value.

        Raises:
            ValueError: a value is not exactly one JSON object, or does not fit its column.
        """
        return self._convert(self.parse(values, forms, "ignore"), forms)

    def convert_inferred(self, parsed: pa.Table, values: pa.Array, forms: Forms) -> pa.Table:
        """Return the rows that ``read`` would return, from a table that ``parse`` has inferred."""
        known = parsed.select(self.schema.names)
        if known.schema.types == self._read_schema(forms).types:
            return self._convert(known, forms)
        return self.read(values, forms)

    def parse(
        self, values: pa.Array, forms: Forms, unknown_fields: Literal["ignore", "infer"]
    ) -> pa.Table:
        """Parse columns in pyarrow's types. With "infer", other fields follow these columns.

        Raises:
            ValueError: a value is not exactly one JSON object, or does not fit its column.
        """
        buffer = _join_lines(values)
        table = pj.read_json(
            pa.BufferReader(buffer),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(buffer) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=self._read_schema(forms), unexpected_field_behavior=unknown_fields
            ),
        )
        if table.num_rows != len(values):
            message = f"{len(values)} values hold {table.num_rows} JSON objects"
            raise ValueError(message)
        return table

    def _read_schema(self, forms: Forms) -> pa.Schema:
        remaining = iter(forms)
        return pa.schema(
            [pa.field(field.name, _read_type(field.type, remaining)) for field in self.schema]
        )

    def _convert(self, table: pa.Table, forms: Forms) -> pa.Table:
        remaining = iter(forms)
        columns = [
            self._to_column(_as_array(table.column(i)), field.type, remaining)
            for i, field in enumerate(self.schema)
        ]
        return pa.table(columns, schema=self.schema)

    def _to_column(
        self, read: pa.Array, wanted: pa.DataType, forms: Iterator[TimestampForm]
    ) -> pa.Array:
        if pa.types.is_timestamp(wanted):
            return _check_range(self._to_timestamps(read, next(forms)))
        if pa.types.is_struct(wanted):
            children = [self._to_column(read.field(i), f.type, forms) for i, f in enumerate(wanted)]
            return pa.StructArray.from_arrays(children, fields=list(wanted), mask=read.is_null())
        if pa.types.is_list(wanted):
            elements = self._to_column(read.values, wanted.value_type, forms)
            return pa.ListArray.from_arrays(
                read.offsets,
                elements,
                type=wanted,
                mask=read.is_null() if read.null_count else None,
            )
        if pa.types.is_date32(wanted):
            return _check_range(read.cast(wanted))
        if pa.types.is_float32(wanted):
            return _to_float(read)
        if pa.types.is_decimal(wanted):
            return read.cast(wanted)
        return decode_base64(read) if pa.types.is_binary(wanted) else read

    def _to_timestamps(self, read: pa.Array, form: TimestampForm) -> pa.Array:
        if form is TimestampForm.ISO:
            return read
        if form is TimestampForm.LONG_FRACTION:
            return _parse_long_fractions(read)
        return to_microseconds(read.view(pa.timestamp(self.epoch_unit, "UTC")))


def count_timestamps(data_type: pa.DataType) -> int:
    """Count the timestamps in a type, including nested timestamps."""
    if pa.types.is_struct(data_type):
        return sum(count_timestamps(field.type) for field in data_type)
    if pa.types.is_list(data_type):
        return count_timestamps(data_type.value_type)
    return int(pa.types.is_timestamp(data_type))


_TIMESTAMP = pa.timestamp("us", "UTC")
_READ_AS = {
    TimestampForm.ISO: _TIMESTAMP,
    TimestampForm.LONG_FRACTION: pa.string(),
    TimestampForm.EPOCH: pa.int64(),
}


def _read_type(wanted: pa.DataType, forms: Iterator[TimestampForm]) -> pa.DataType:
    """Return the type in which pyarrow reads a column; it may differ from the column's type."""
    if pa.types.is_timestamp(wanted):
        return _READ_AS[next(forms)]
    if pa.types.is_struct(wanted):
        return pa.struct([pa.field(f.name, _read_type(f.type, forms)) for f in wanted])
    if pa.types.is_list(wanted):
        return pa.list_(_read_type(wanted.value_type, forms))
    if pa.types.is_date32(wanted) or pa.types.is_binary(wanted):
        return pa.string()
    if pa.types.is_decimal(wanted):
        return type_to_parse(wanted)
    return pa.float64() if pa.types.is_float32(wanted) else wanted


def _join_lines(values: pa.Array) -> pa.Buffer:
    lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return pc.binary_join(lines, b"\n")[0].as_buffer()


def _as_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _to_float(doubles: pa.Array) -> pa.Array:
    """Round to the nearest ``float``.

    Raises:
        ValueError: a number would become infinity.
    """
    floats = doubles.cast(pa.float32(), safe=False)
    if pc.any(pc.and_(pc.is_inf(floats), pc.is_finite(doubles))).as_py():
        message = "a number does not fit float"
        raise ValueError(message)
    return floats


def _parse_long_fractions(texts: pa.Array) -> pa.Array:
    """Parse ISO-8601 texts. Digits below the microsecond are cut off, as in Spark."""
    cut = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    is_zoned = pc.match_substring_regex(cut, r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$")
    zoned = pc.if_else(is_zoned, cut, None).cast(_TIMESTAMP)
    naive = pc.if_else(is_zoned, None, cut).cast(pa.timestamp("us"))
    return pc.coalesce(zoned, pc.assume_timezone(naive, "UTC"))


def _check_range(times: pa.Array) -> pa.Array:
    """Return ``times``, after checking that all are in the years 1 to 9999.

    Raises:
        ValueError: a time is outside these years.
    """
    if find_out_of_range(times) is not None:
        message = "a date or timestamp lies outside the years 1 to 9999"
        raise ValueError(message)
    return times


def decode_base64(texts: pa.Array) -> pa.Array:
    """Decode a column of Base64 texts (RFC 4648, section 4, with padding). Null remains null.

    Raises:
        ValueError: a value is not Base64.
    """
    values = texts.to_pylist()
    decoded = [None if text is None else a2b_base64(text, strict_mode=True) for text in values]
    return pa.array(decoded, pa.binary())
