"""Byte strings in one buffer, the form in which codecs read a column of strings or bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


class ByteStrings(NamedTuple):
    """``n`` byte strings in one buffer.

    Attributes:
        data: bytes of all strings, uint8.
        offsets: ``n + 1`` offsets, int64; string ``i`` is ``data[offsets[i]:offsets[i + 1]]``.
            The first offset need not be 0. A null of a column may have bytes, which have no
            meaning.
    """

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of bytes in each string."""
        return np.diff(self.offsets)

    def to_arrow(self) -> pa.LargeBinaryArray:
        """Return the strings as a column that shares their memory."""
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self.offsets) - 1, buffers)

    def chunks(self, max_bytes: int) -> Iterator[tuple[slice, ByteStrings]]:
        """Yield consecutive strings in chunks of at most ``max_bytes``, with their rows.

        A string that is longer than ``max_bytes`` is a chunk of its own.
        """
        first, count = 0, len(self.offsets) - 1
        while first < count:
            limit = self.offsets[first] + max_bytes
            end = int(np.searchsorted(self.offsets, limit, side="right")) - 1
            end = min(max(end, first + 1), count)
            offsets = self.offsets[first : end + 1]
            yield (
                slice(first, end),
                ByteStrings(self.data[offsets[0] : offsets[-1]], offsets - offsets[0]),
            )
            first = end


def byte_ranges(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    is_null: npt.NDArray[np.bool_] | None = None,
) -> pa.LargeBinaryArray:
    """Return parts of a buffer as a column.

    Args:
        data: contains the parts.
        starts: the position of each part; any position for a part of no bytes.
        lengths: how many bytes each part has.
        is_null: which cells are null; None if none is.
    """
    reach = np.maximum.accumulate(np.where(lengths > 0, starts + lengths, 0))
    starts = np.where(lengths > 0, starts, reach)
    if not np.all(starts[1:] >= reach[:-1]):
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        column = ByteStrings(gather(data, starts, lengths), offsets).to_arrow()
        return column if is_null is None else pc.if_else(pa.array(~is_null), column, None)
    # First build a column of the parts and the gaps between them, which needs no copy. Then take
    # every second string: the parts.
    bounds = np.zeros(max(1, 2 * len(starts)), np.int64)
    if len(starts):
        bounds[0::2], bounds[1::2] = starts, starts + lengths
    with_gaps = ByteStrings(data, bounds).to_arrow()
    return with_gaps.take(pa.array(np.arange(0, 2 * len(starts), 2), mask=is_null))


def gather(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """Return the bytes of parts of a buffer, one part after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    gathered: npt.NDArray[np.uint8] = data[
        np.repeat(starts - ends + lengths, lengths) + np.arange(total)
    ]
    return gathered


def byte_strings(values: pa.Array | pa.ChunkedArray) -> ByteStrings:
    """Return the bytes of a column of strings or binary values, without copying them.

    The column may be a slice of another column. Two kinds of columns are copied: a chunked array of
    several chunks is combined, and other types, such as views, are cast.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not _has_offsets(values.type):
        values = values.cast(pa.large_binary())
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, offsets, data = values.buffers()
    if len(values) == 0 or offsets is None:
        return ByteStrings(np.empty(0, np.uint8), np.zeros(len(values) + 1, np.int64))
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32)
    return ByteStrings(
        np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8),
        ends[values.offset : values.offset + len(values) + 1].astype(np.int64),
    )


def _has_offsets(arrow: pa.DataType) -> bool:
    return any(
        check(arrow)
        for check in (
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_large_string,
            pa.types.is_large_binary,
        )
    )
