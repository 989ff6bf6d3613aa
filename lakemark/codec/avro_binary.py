"""Encodes whole columns of values in Avro's binary encoding.

An encoded column is a list of *pieces*. Each piece has some bytes for each row, and row ``i`` is
encoded by its bytes in all pieces, in the order of the pieces. A piece is either ``Digits`` (a
matrix with a few bytes for each row) or a column of byte strings, which may share the memory of
other objects. ``join`` copies all pieces into one buffer.

The bytes in the row of a null are undefined; ``only`` removes them.
Source: Avro 1.11, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import ByteStrings, byte_strings

Mask: TypeAlias = npt.NDArray[np.bool_]

#: Size of an unscaled value in Arrow's 128-bit decimals.
UNSCALED_BYTES = 16


class Digits(NamedTuple):
    """A few bytes for each row ``i``: those ``cells[i, j]`` for which ``used[i, j]`` is true."""

    cells: npt.NDArray[np.uint8]
    used: Mask


Piece: TypeAlias = Digits | pa.LargeBinaryArray


def constant(value: bytes, row_count: int) -> Digits:
    """Return the same bytes for each row."""
    cells = np.broadcast_to(np.frombuffer(value, np.uint8), (row_count, len(value)))
    return Digits(cells, np.ones(cells.shape, np.bool_))


def varint(values: npt.NDArray[np.signedinteger]) -> Digits:
    """Encode integers as ``int`` or ``long``.

    A value is zigzag-encoded first. Then each byte has seven bits of it, lowest first. The high bit
    is set in all bytes but the last.

    Args:
        values: at most 64 bits wide.
    """
    signed = values.astype(np.int64, copy=False)
    rest = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    width = max(1, -(-int(rest.max(initial=0)).bit_length() // 7))
    if width == 1:  # such as the lengths of most strings
        short = rest.astype(np.uint8).reshape(-1, 1)
        return Digits(short, np.ones(short.shape, np.bool_))
    cells = np.empty((len(rest), width), np.uint8)
    used = np.ones((len(rest), width), np.bool_)
    for index in range(width):
        used[:, index] = (rest != 0) if index else True
        cells[:, index] = rest & np.uint64(0x7F)
        rest = rest >> np.uint64(7)
        cells[:, index] |= (rest != 0).view(np.uint8) << 7
    return Digits(cells, used)


def scalars(column: pa.Array) -> Digits:
    """Encode booleans and floats in a fixed width; integers, dates and times as varints."""
    if pa.types.is_boolean(column.type):
        return _cells(column.cast(pa.uint8()), 1)
    if pa.types.is_floating(column.type):
        return _cells(column, column.type.bit_width // 8)
    dtype = np.dtype(f"<i{column.type.bit_width // 8}")
    return varint(_cells(column, dtype.itemsize).cells.view(dtype).reshape(-1))


def strings(column: pa.Array) -> list[Piece]:
    """Encode ``string`` and ``bytes``: the length, then the bytes; the length of a null is 0."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar("", column.type))
    values = byte_strings(column)
    return [varint(values.lengths), values.to_arrow()]


def decimals(column: pa.Array) -> list[Piece]:
    """Encode decimals as ``bytes`` of the unscaled value.

    The value is in two's complement, big-endian, with as few bytes as possible.
    """
    cells = _cells(column, UNSCALED_BYTES).cells[:, ::-1]
    sign = (cells[:, 0] >> 7) * np.uint8(0xFF)
    said = cells != sign[:, None]
    # Leading bytes that only repeat the sign are dropped. One of them stays if the next byte has
    # another highest bit, because that bit would otherwise be read as the sign.
    said[:, :-1] |= (cells[:, 1:] ^ sign[:, None]) >= 0x80
    said[:, -1] = True
    used = np.logical_or.accumulate(said, axis=1)
    return [varint(used.sum(axis=1)), Digits(cells, used)]


def fixed_decimals(column: pa.Array, size_bytes: int) -> Digits:
    """Encode decimals as ``fixed``: the unscaled value in two's complement, big-endian."""
    cells = _cells(column, UNSCALED_BYTES).cells[:, ::-1]
    sign = (cells[:, :1] >> 7) * np.uint8(0xFF)
    missing = max(0, size_bytes - UNSCALED_BYTES)
    padded = np.hstack([np.repeat(sign, missing, axis=1), cells])[:, -size_bytes:]
    return Digits(padded, np.ones(padded.shape, np.bool_))


def decimals_from(cells: npt.NDArray[np.uint8], arrow: pa.DataType) -> pa.Array:
    """Return a column of decimals.

    Args:
        cells: one unscaled value in each row, in two's complement, big-endian.
        arrow: type of the column.

    Raises:
        pyarrow.ArrowInvalid: a value has more digits than the type.
    """
    sign = (cells[:, :1] >> 7) * np.uint8(0xFF)
    spare = max(0, cells.shape[1] - UNSCALED_BYTES)
    missing = max(0, UNSCALED_BYTES - cells.shape[1])
    if (cells[:, :spare] != sign).any():
        message = f"a decimal of more than {UNSCALED_BYTES} bytes"
        raise pa.ArrowInvalid(message)
    kept = np.hstack([np.repeat(sign, missing, axis=1), cells[:, spare:]])
    little_endian = np.ascontiguousarray(kept[:, ::-1])
    column = pa.Array.from_buffers(arrow, len(kept), [None, pa.py_buffer(little_endian)])
    column.validate(full=True)
    return column


def fixed(column: pa.Array) -> Digits:
    """Encode ``fixed``: the bytes of each value, unchanged."""
    return _cells(column, column.type.byte_width)


def only(piece: Piece, rows: Mask) -> Piece:
    """Return the piece with bytes only in the rows for which ``rows`` is true."""
    if rows.all():
        return piece
    if isinstance(piece, Digits):
        return Digits(piece.cells, piece.used & rows[:, None])
    return pc.if_else(pa.array(rows), piece, pa.scalar(b"", pa.large_binary()))


def join(pieces: Sequence[Piece]) -> ByteStrings:
    """Join the bytes of all pieces, row by row."""
    columns: list[pa.LargeBinaryArray] = []
    run: list[Digits] = []
    for piece in pieces:
        if isinstance(piece, Digits):
            run.append(piece)
            continue
        columns += [_pack(run), piece] if run else [piece]
        run = []
    columns += [_pack(run)] if run else []
    if len(columns) == 1:
        return byte_strings(columns[0])
    separator = pa.scalar(b"", pa.large_binary())
    return byte_strings(pc.binary_join_element_wise(*columns, separator))


def _pack(run: Sequence[Digits]) -> pa.LargeBinaryArray:
    cells = np.hstack([digits.cells for digits in run])
    used = np.hstack([digits.used for digits in run])
    if used.all():
        ends = np.arange(len(cells) + 1, dtype=np.int64) * cells.shape[1]
        return ByteStrings(cells.reshape(-1), ends).to_arrow()
    offsets = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(np.count_nonzero(used, axis=1), out=offsets[1:])
    return ByteStrings(cells[used], offsets).to_arrow()


def _cells(column: pa.Array, width: int) -> Digits:
    """Return the bytes of the values in Arrow's memory; ``width`` bytes for each value."""
    data = column.buffers()[1]
    if data is None:
        cells = np.zeros((len(column), width), np.uint8)
    else:
        start, end = column.offset * width, (column.offset + len(column)) * width
        cells = np.frombuffer(data, np.uint8)[start:end].reshape(len(column), width)
    return Digits(cells, np.ones(cells.shape, np.bool_))
