"""Stored records encoded one by one: what a commit writes is few, and kernels cost by the call.

Of thousands of records ``statistics_records`` makes the same bytes faster.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa

from lakemark.codec.ordering_wrappers import Wrapper
from lakemark.codec.varint import zigzag
from lakemark.metadata.column_stats.records import as_stored, value_type_of, wrapper_of
from lakemark.metadata.index_definition import VERSION
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import around_payload
from lakemark.model.column_ranges import ColumnSize

_THERE, _NOTHING = b"\x02", b"\x00"

#: What a value is, its wrapper and how its content is written.
_Form: TypeAlias = tuple[bytes, bytes, Callable[..., bytes]]


def files_record(record_type: int, entries: Iterable[tuple[str, int, bool]]) -> bytes:
    """A map of files: name, size and whether it is gone of each."""
    listed = [_text(name) + zigzag(size) + bytes([gone]) for name, size, gone in entries]
    head = zigzag(len(listed)) if listed else b""
    before, after = around_payload(record_type, PartitionKind.FILES.payload)
    return b"".join([before, head, *listed, _NOTHING, after])


def statistics_encoder(
    record_type: int, data_type: pa.DataType, version: str = VERSION, *, is_tight: bool
) -> Callable[[str, str, pa.Array, int, int, ColumnSize], bytes]:
    """What makes a record of the statistics of one column of this type.

    Its arguments are what the record is of, the column, the smallest and the largest value in one
    array, how many nulls and values there are, and the column's size.
    """
    before, after = around_payload(record_type, PartitionKind.COLUMN_STATS.payload)
    value_type, wrapper, encode = _form(data_type, version)
    end = bytes([False, is_tight]) + value_type + after

    def record(
        of_what: str, column: str, bounds: pa.Array, nulls: int, values: int, size: ColumnSize
    ) -> bytes:
        bare = _bare(as_stored(bounds, version))
        wrapped = [_NOTHING if one is None else wrapper + encode(one) for one in bare]
        counts = _THERE + zigzag(values) + _THERE + zigzag(nulls)
        names = _THERE + _name(of_what) + _THERE + _name(column)
        sizes = [_THERE + zigzag(one) for one in size]
        return b"".join([before, names, *wrapped, counts, *sizes, end])

    return record


def _form(data_type: pa.DataType, version: str) -> _Form:
    wrapper = wrapper_of(data_type, version)
    if version != VERSION:
        return _NOTHING, zigzag(wrapper), _CONTENTS[wrapper]
    info = _NOTHING
    if pa.types.is_decimal(data_type):
        info = _THERE + _text(f"{data_type.precision},{data_type.scale}")
    described = _THERE + zigzag(value_type_of(data_type)) + info
    return described, zigzag(wrapper), _CONTENTS[wrapper]


def _bare(bounds: pa.Array) -> list[object]:
    """Values as their wrapper holds them."""
    kind = bounds.type
    if pa.types.is_temporal(kind):
        bounds = bounds.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    values: list[object] = bounds.to_pylist()
    if pa.types.is_decimal(kind):
        return [None if one is None else _unscaled(one, kind.scale) for one in values]
    return values


def _unscaled(value: object, scale: int) -> bytes:
    """Two's complement, big-endian, as short as can be."""
    assert isinstance(value, Decimal), value
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    number: int = int("".join(map(str, digits))) * 10 ** max(exponent + scale, 0)
    number = -number if sign else number
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(length, "big", signed=True)


def _bytes(value: bytes) -> bytes:
    return zigzag(len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


#: A file has a record for every column, and a column one for every file.
_name = lru_cache(maxsize=4096)(_text)


_CONTENTS: Mapping[Wrapper, Callable[..., bytes]] = {
    Wrapper.BOOLEAN: lambda value: bytes([value]),
    Wrapper.INT: zigzag,
    Wrapper.LONG: zigzag,
    Wrapper.FLOAT: struct.Struct("<f").pack,
    Wrapper.DOUBLE: struct.Struct("<d").pack,
    Wrapper.BYTES: _bytes,
    Wrapper.STRING: _text,
    Wrapper.DATE: zigzag,
    Wrapper.DECIMAL: _bytes,
}
