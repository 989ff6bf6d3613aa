"""Reads Avro's binary encoding from many rows at once: one cursor in each row, moved together.

No cursor ever leaves its row; bytes that would need it to are ``CorruptData``. Rows lie one
behind the other, so what the cursors point at is in ascending order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from table.codec.byte_strings import ByteStrings
from table.errors import CorruptData

_LONGEST_VARINT = 10


class Cursors:
    """Where the reader stands in each row.

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

    def pick(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Cursors:
        """Cursors of some rows alone, in the same order; ``put`` brings them back."""
        return Cursors(self._data, self.at[rows], self._ends[rows], self._path)

    def put(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp], picked: Cursors) -> None:
        """Move the cursors of ``rows`` to where those that were picked stand now."""
        self.at[rows] = picked.at

    def longs(self) -> npt.NDArray[np.int64]:
        """The next ``int`` or ``long`` of each row."""
        values = np.zeros(len(self), np.uint64)
        rows = np.arange(len(self))
        for place in range(_LONGEST_VARINT):
            at = self.at[rows]
            self._check(at < self._ends[rows], at, "an integer")
            digits = self._data[at]
            values[rows] |= (digits & np.uint64(0x7F)) << np.uint64(7 * place)
            self.at[rows] = at + 1
            rows = rows[digits >= 0x80]
            if not len(rows):
                sign: npt.NDArray[np.int64] = -(values & np.uint64(1)).view(np.int64)
                return (values >> np.uint64(1)).view(np.int64) ^ sign
        raise self.corrupt(int(self.at[rows[0]]), "an integer of ten bytes at most", "more")

    def fixed(self, width: int) -> npt.NDArray[np.uint8]:
        """The next ``width`` bytes of each row, as a matrix."""
        self._check(self.at + width <= self._ends, self.at, f"{width} bytes")
        cells = self._data[self.at[:, None] + np.arange(width)]
        self.at = self.at + width
        return cells

    def strings(self) -> pa.LargeBinaryArray:
        """The next ``bytes`` or ``string`` of each row."""
        lengths = self.longs()
        self._check(
            (lengths >= 0) & (lengths <= self._ends - self.at), self.at, "a string inside its row"
        )
        # Values and the gaps between them are all one column; every second entry is a value.
        bounds = np.empty(2 * len(self), np.int64)
        bounds[0::2], bounds[1::2] = self.at, self.at + lengths
        self.at = bounds[1::2].copy()
        with_gaps = ByteStrings(self._data, bounds if len(self) else np.zeros(1, np.int64))
        return pc.take(with_gaps.to_arrow(), pa.array(np.arange(0, len(bounds), 2)))

    def check(self, right: npt.NDArray[np.bool_], expected: str) -> None:
        """Raise ``CorruptData`` at the first row that is not ``right``."""
        self._check(right, self.at, expected)

    def check_finished(self) -> None:
        """Raise ``CorruptData`` unless every row was read to its end."""
        self._check(self.at == self._ends, self.at, "the end of the row")

    def bytes_left(self) -> npt.NDArray[np.int64]:
        """Bytes between each cursor and the end of its row."""
        return self._ends - self.at

    def corrupt(self, offset: int | None, expected: str, actual: str) -> CorruptData:
        """The error for bytes that are not what they should be."""
        return CorruptData(self._path, offset, expected, actual)

    def _check(
        self, right: npt.NDArray[np.bool_], at: npt.NDArray[np.int64], expected: str
    ) -> None:
        if not right.all():
            raise self.corrupt(int(at[np.argmin(right)]), expected, "something else")
