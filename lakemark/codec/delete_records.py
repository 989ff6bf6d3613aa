"""Encodes and decodes the records of a delete block: ``HoodieDeleteRecordList`` in Avro binary.

The schema is not stored. The list is a sequence of Avro array blocks::

    long          number of records in the block; the list ends with 0
    each record   record key and partition path, nullable strings; then the ordering value in a
                  wrapper (``ordering_wrappers``)

Hudi compares a delete with another record only if both ordering values have the same Java class.
If the classes differ, or if the ordering value of the delete is the integer 0, the delete wins.

Source: ``HoodieDeleteBlock`` (version 3) of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_binary import Mask, Piece, join, only, strings, varint
from lakemark.codec.avro_cursors import Cursors
from lakemark.codec.ordering_wrappers import CONTENT, OrderingValues, Wrapper, unwrap, wrap
from lakemark.errors import CorruptData


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """The records of a delete block, in stored order.

    Attributes:
        record_keys: string column.
        partition_paths: string column.
        ordering: the values of each ordering field. A record with fewer values has ``NULL`` in the
            last fields.
        commit_time: flags deletes that always win, because their ordering value is the integer 0
            or null.
        is_array: flags records whose ordering values are stored as an array.
    """

    record_keys: pa.Array
    partition_paths: pa.Array
    ordering: list[OrderingValues]
    commit_time: Mask
    is_array: Mask

    def ordering_as(self, columns: Sequence[pa.DataType]) -> tuple[list[pa.Array], Mask]:
        """Convert the ordering values to columns of the given types.

        Returns:
            The columns, and a mask of the deletes that win against any other record. These are the
            commit-time deletes, and the deletes whose values have another Java class than the
            columns. Their values in the columns are null.

        Raises:
            InvalidConfig: records cannot be ordered by one of the types.
            CorruptData: a value does not fit the type of its column.
        """
        count = len(self.record_keys)
        unconditional = self.commit_time | (self.is_array != (len(columns) > 1))
        absent = OrderingValues(np.zeros(count, np.int8), {})
        fields = [*self.ordering, *[absent] * len(columns)][: len(columns)]
        try:
            typed = [field.as_type(column) for field, column in zip(fields, columns, strict=True)]
        except pa.ArrowInvalid as error:
            location, expected = "delete block", f"ordering values of {columns}"
            raise CorruptData(location, None, expected, str(error)) from error
        for _, mismatch in typed:
            unconditional = unconditional | mismatch
        hidden = pa.array(unconditional)
        arrays = [pc.if_else(hidden, pa.scalar(None, kind.type), kind) for kind, _ in typed]
        return arrays, unconditional


def encode(
    record_keys: pa.Array,
    partition_paths: pa.Array,
    ordering: Sequence[pa.Array] | None,
    commit_time: npt.NDArray[np.bool_] | None = None,
) -> bytes:
    """Return the body of a delete block, without the version and the length that precede it.

    Args:
        record_keys: string column.
        partition_paths: string column.
        ordering: the ordering columns; None if all deletes win against any other record.
        commit_time: flags deletes that win against any other record although there are ordering
            columns.

    Raises:
        InvalidConfig: records cannot be ordered by the type of an ordering column.
        InvalidRecords: a decimal has more than 15 digits before or after the point.
    """
    count = len(record_keys)
    if count == 0:
        return b"\x00"
    is_default = np.full(count, not ordering)
    if commit_time is not None:
        is_default |= commit_time
    pieces = [*_nullable_strings(record_keys), *_nullable_strings(partition_paths)]
    pieces += wrap(ordering or (), is_default)
    head = join([varint(np.array([count]))]).data.tobytes()
    return head + join(pieces).data.tobytes() + b"\x00"


def decode(data: bytes, path: str) -> DeleteRecords:
    """Return the records in the body of a delete block.

    Raises:
        CorruptData: ``data`` is not a ``HoodieDeleteRecordList``.
    """
    starts, ends = _bounds(data, path)
    cursors = Cursors(np.frombuffer(data, np.uint8), starts, ends, path)
    try:
        keys, paths = _read_nullable_strings(cursors), _read_nullable_strings(cursors)
        ordering, is_array = unwrap(cursors)
    except pa.ArrowInvalid as error:
        raise CorruptData(path, None, "delete records", str(error)) from error
    cursors.check_finished()
    return DeleteRecords(keys, paths, ordering, ~is_array & ordering[0].is_default, is_array)


def _nullable_strings(column: pa.Array) -> list[Piece]:
    valid = np.asarray(column.is_valid())
    return [varint(valid.astype(np.int64)), *(only(piece, valid) for piece in strings(column))]


def _read_nullable_strings(cursors: Cursors) -> pa.Array:
    branches = cursors.longs()
    valid: Mask = branches == 1
    cursors.check(valid | (branches == 0), "a string, or null")
    picked = cursors.pick(valid)
    column = picked.strings().cast(pa.string())
    cursors.put(valid, picked)
    return column.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


# --- Finds the position of each record, by stepping over the records one by one.


def _bounds(data: bytes, path: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    try:
        while (block := _long(data, at))[0]:
            count, at = block
            # After a negative number of records, the size of the block in bytes follows.
            at = at if count > 0 else _after_long(data, at)
            for _ in range(abs(count)):
                starts.append(at)
                at = _after_record(data, at)
                ends.append(at)
    except (IndexError, KeyError, OverflowError) as error:
        raise CorruptData(path, at, "a list of delete records", repr(error)) from error
    if block[1] != len(data):
        raise CorruptData(path, block[1], "the end of the delete records", "more bytes")
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Return the ``long`` at a position, and the position after it."""
    digit = data[at]
    if digit < 0x80:
        return (digit >> 1) ^ -(digit & 1), at + 1
    value, shift = digit & 0x7F, 7
    while digit >= 0x80 and shift < 70:
        at += 1
        digit = data[at]
        value |= (digit & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), at + 1


def _after_record(data: bytes, at: int) -> int:
    for _ in range(2):
        at = _AFTER_STRING[data[at]](data, at + 1)
    return _AFTER_WRAPPER[data[at]](data, at + 1)


def _after_array(data: bytes, at: int) -> int:
    if data[at] == 0:
        return at + 1
    at += 1
    while (block := _long(data, at))[0]:
        count, at = block
        at = at if count > 0 else _after_long(data, at)
        for _ in range(abs(count)):
            at = _AFTER_ITEM[data[at]](data, at + 1)
    return block[1]


def _after_string(data: bytes, at: int) -> int:
    digit = data[at]
    if digit < 0x80:
        length, at = digit >> 1, at + 1
    else:
        length, at = _long(data, at)
    if length < 0:
        raise IndexError(length)
    return at + length


def _after_long(data: bytes, at: int) -> int:
    while data[at] >= 0x80:
        at += 1
    return at + 1


def _after(wrapper: Wrapper) -> Callable[[bytes, int], int]:
    """Return the function that steps over the content of a wrapper."""
    content = CONTENT[wrapper]
    if wrapper in (Wrapper.STRING, Wrapper.BYTES, Wrapper.DECIMAL):
        return _after_string
    if pa.types.is_boolean(content):
        return lambda _, at: at + 1
    if pa.types.is_floating(content):
        width = content.bit_width // 8
        return lambda _, at: at + width
    return _after_long


#: Functions that step over a value, by the byte that encodes the branch of the value's union.
#: The byte is twice the branch, because of the zigzag encoding.
_Steps: TypeAlias = dict[int, Callable[[bytes, int], int]]

_AFTER_STRING: _Steps = {0: lambda _, at: at, 2: _after_string}
_AFTER_ITEM: _Steps = {
    2 * Wrapper.NULL: lambda _, at: at,
    **{2 * wrapper: _after(wrapper) for wrapper in CONTENT if wrapper < Wrapper.ARRAY},
    2 * Wrapper.ARRAY: _after(Wrapper.LOCAL_DATE),
}
_AFTER_WRAPPER: _Steps = _AFTER_ITEM | {2 * Wrapper.ARRAY: _after_array}
