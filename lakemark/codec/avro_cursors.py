"""Reads Avro's binary encoding from many rows at once, with one cursor in each row.

Each read moves all cursors. A cursor never leaves its row: if a value would end after its row,
``CorruptData`` is raised. Rows follow each other in the data, so the positions of the cursors are
in ascending order.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.avro_walk import LONGEST_DECIMAL
from lakemark.codec.byte_strings import byte_ranges, byte_strings
from lakemark.errors import CorruptData

Rows: TypeAlias = npt.NDArray[np.intp]

_LONGEST_VARINT = 10


class Cursors:
    """Position of the reader in each row.

    Attributes:
        at: position of each cursor in the data, int64.
    """

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        path: str,
    ) -> None:
        self._data, self.at, self._ends, self._path = data, starts, ends, path

    def __len__(self) -> int:
        return len(self.at)

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes of all rows."""
        return self._data

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """The position after the last byte of each row."""
        return self._ends

    @property
    def path(self) -> str:
        """File that contains the data, for errors."""
        return self._path

    def pick(self, rows: npt.NDArray[np.bool_] | Rows) -> Cursors:
        """Return the cursors of some rows, in the same order; ``put`` writes them back."""
        return Cursors(self._data, self.at[rows], self._ends[rows], self._path)

    def put(self, rows: npt.NDArray[np.bool_] | Rows, picked: Cursors) -> None:
        """Move the cursors of ``rows`` to the positions of the ``picked`` cursors."""
        self.at[rows] = picked.at

    def longs(self) -> npt.NDArray[np.int64]:
        """Read the next ``int`` or ``long`` of each row."""
        values = np.zeros(len(self), np.uint64)
        rows = np.arange(len(self))
        for index in range(_LONGEST_VARINT):
            at = self.at[rows]
            self._check(at < self._ends[rows], at, "an integer")
            digits = self._data[at]
            values[rows] |= (digits.astype(np.uint64) & np.uint64(0x7F)) << np.uint64(7 * index)
            self.at[rows] = at + 1
            rows = rows[digits >= 0x80]
            if not len(rows):
                sign: npt.NDArray[np.int64] = -(values & np.uint64(1)).view(np.int64)
                return (values >> np.uint64(1)).view(np.int64) ^ sign
        raise self.corrupt(int(self.at[rows[0]]), "an integer of ten bytes at most", "more")

    def integers(self, arrow: pa.DataType) -> pa.Array:
        """Read the next ``int`` or ``long`` of each row as a column.

        Args:
            arrow: type of the column, of 32 or 64 bits.
        """
        values = self.longs()
        if arrow.bit_width == 64:
            return pa.array(values).view(arrow)
        narrow = values.astype(np.int32)
        self._check(narrow == values, self.at, "an integer of 32 bits")
        return pa.array(narrow).view(arrow)

    def booleans(self) -> npt.NDArray[np.bool_]:
        """Read the next ``boolean`` of each row."""
        cells = self.fixed(1).reshape(-1)
        self._check(cells <= 1, self.at, "a boolean, 0 or 1")
        return cells.astype(np.bool_)

    def fixed_values(self, arrow: pa.DataType) -> pa.Array:
        """Read the next ``float``, ``double`` or ``fixed`` of each row."""
        cells = self.fixed(arrow.bit_width // 8)
        return pa.Array.from_buffers(arrow, len(cells), [None, pa.py_buffer(cells)])

    def decimals(self) -> npt.NDArray[np.uint8]:
        """Read the next decimal of each row, which is encoded as ``bytes``.

        Returns:
            The unscaled values, big-endian, sign-extended to the width of the longest one.
        """
        values = byte_strings(self.strings())
        longest = int(values.lengths.max(initial=0))
        self._check((values.lengths > 0) & (values.lengths <= LONGEST_DECIMAL), self.at, "digits")
        back = np.arange(longest, 0, -1)
        at = np.maximum(values.offsets[1:, None] - back, values.offsets[:-1, None])
        cells = values.data[at]
        sign = (cells[:, :1] >> 7) * np.uint8(0xFF)
        widened: npt.NDArray[np.uint8] = np.where(back > values.lengths[:, None], sign, cells)
        return widened

    def fixed(self, width: int) -> npt.NDArray[np.uint8]:
        """Read the next ``width`` bytes of each row, as a matrix."""
        self._check(self.at + width <= self._ends, self.at, f"{width} bytes")
        cells: npt.NDArray[np.uint8] = self._data[self.at[:, None] + np.arange(width)]
        self.at = self.at + width
        return cells

    def strings(self) -> pa.LargeBinaryArray:
        """Read the next ``bytes`` or ``string`` of each row."""
        lengths = self.longs()
        self._check(
            (lengths >= 0) & (lengths <= self._ends - self.at), self.at, "a string inside its row"
        )
        starts, self.at = self.at, self.at + lengths
        return byte_ranges(self._data, starts, lengths)

    def next_items(self, rows: Rows, left: npt.NDArray[np.int64]) -> Rows:
        """Return the rows whose array has another item, after one item of each row was read.

        Args:
            rows: rows of which an item was read.
            left: for each row, the number of unread items in the current block; updated here.
        """
        left[rows] -= 1
        more = rows[left[rows] > 0]
        return np.sort(np.append(more, self.next_block(rows[left[rows] == 0], left)))

    def next_block(self, rows: Rows, left: npt.NDArray[np.int64]) -> Rows:
        """Read the header of the next block in each of ``rows``; return the rows that have a block.

        Args:
            rows: rows whose cursor is at the header of a block.
            left: receives, for each of ``rows``, the number of items in the block.
        """
        picked = self.pick(rows)
        counts = picked.longs()
        has_size = counts < 0
        sized = picked.pick(has_size)
        sized.longs()  # size of the block in bytes, for readers that skip the block
        picked.put(has_size, sized)
        counts = np.abs(counts)
        # Each item takes at least one byte (``avro_bounds``), so a larger count is corrupt.
        picked.check((counts >= 0) & (counts <= picked._ends - picked.at), "items in their row")
        self.put(rows, picked)
        left[rows] = counts
        return rows[counts > 0]

    def check(self, right: npt.NDArray[np.bool_], expected: str) -> None:
        """Raise ``CorruptData`` for the first row in which ``right`` is false, if there is one."""
        self._check(right, self.at, expected)

    def check_finished(self) -> None:
        """Raise ``CorruptData`` unless every row was read to its end."""
        self._check(self.at == self._ends, self.at, "the end of the row")

    def corrupt(self, offset: int | None, expected: str, actual: str) -> CorruptData:
        """Return the error to raise for unexpected bytes at ``offset`` of the data."""
        return CorruptData(self._path, offset, expected, actual)

    def _check(
        self, right: npt.NDArray[np.bool_], at: npt.NDArray[np.int64], expected: str
    ) -> None:
        if not right.all():
            raise self.corrupt(int(at[np.argmin(right)]), expected, "something else")
