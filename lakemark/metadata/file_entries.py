"""Decodes the map of files in a record of the ``files`` partition.

A map has an entry for each file of a partition, so a few records may contain very many entries. A
loop finds the start and the end of each entry; then all entries are decoded together.

    map      blocks, then a count of 0
    block    long count, then that many entries; if the count is negative, its absolute value is the
             number of entries, and the size of the block in bytes (long) follows the count
    entry    string name, long size, boolean deleted

Source: ``HoodieMetadataFileInfo`` of Apache Hudi 1.2.0; Avro 1.11, "Binary Encoding".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakemark.codec.avro_cursors import Cursors
from lakemark.errors import CorruptData

ENTRY = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("is_deleted", pa.bool_(), nullable=False),
    ]
)
FILE_ENTRIES = pa.list_(ENTRY)

#: The stored fields of an entry's value, in their order.
STORED_FIELDS = (("size", "long"), ("isDeleted", "boolean"))

_LONGEST_VARINT_BITS = 64


def read_file_entries(cursors: Cursors) -> pa.ListArray:
    """Read the next map of each row, as a list of ``ENTRY``.

    Raises:
        CorruptData: the bytes of a row are not a map of files.
        pyarrow.ArrowException: a name is not UTF-8.
    """
    walk = _Walk(cursors)
    offsets = [0]
    for row, (start, end) in enumerate(
        zip(cursors.at.tolist(), cursors.ends.tolist(), strict=True)
    ):
        cursors.at[row] = walk.map(start, end)
        offsets.append(len(walk.starts))
    entries = Cursors(
        cursors.data, np.array(walk.starts, np.int64), np.array(walk.ends, np.int64), cursors.path
    )
    names = entries.strings().cast(pa.string())
    sizes, deleted = entries.integers(pa.int64()), pa.array(entries.booleans())
    entries.check(np.asarray(sizes) >= 0, "a file's size, not negative")
    entries.check_finished()
    values = pa.StructArray.from_arrays([names, sizes, deleted], fields=list(ENTRY))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=FILE_ENTRIES)


class _Walk:
    """Steps over maps, and records where each entry begins and ends."""

    def __init__(self, cursors: Cursors) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._data, self._path = cursors.data.data, cursors.path

    def map(self, at: int, end: int) -> int:
        """Step over the map that begins at ``at``, and return where the map ends.

        The map must end at or before ``end``.
        """
        count, at = self._long(at, end)
        while count:
            if count < 0:
                _, at = self._long(at, end)
            at = self._entries(abs(count), at, end)
            count, at = self._long(at, end)
        return at

    def _entries(self, count: int, at: int, end: int) -> int:
        """Step over entries, and return where the last one ends.

        Integers of the usual lengths are read here, because calls would take most of the time.
        """
        data, starts, ends = self._data, self.starts, self.ends
        for _ in range(count):
            starts.append(at)
            if at + 1 < end and data[at] >= 0x80 > data[at + 1] and not data[at] & 1:
                length = (data[at] & 0x7F | data[at + 1] << 7) >> 1
                at += 2
            else:
                length, at = self._long(at, end)
            if not 0 <= length <= end - at:
                raise self._corrupt(at, "a file's name inside its record")
            at += length
            if at < end and data[at] < 0x80:
                at += 1
            elif at + 1 < end and data[at + 1] < 0x80:
                at += 2
            elif at + 2 < end and data[at + 2] < 0x80:
                at += 3
            else:
                _, at = self._long(at, end)
            if at >= end:
                raise self._corrupt(at, "a file's flag inside its record")
            at += 1
            ends.append(at)
        return at

    def _long(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, _LONGEST_VARINT_BITS, 7):
            if at >= end:
                break
            digit = self._data[at]
            at += 1
            value |= (digit & 0x7F) << shift
            if digit < 0x80:
                return (value >> 1) ^ -(value & 1), at
        raise self._corrupt(at, "an integer inside its record")

    def _corrupt(self, at: int, expected: str) -> CorruptData:
        return CorruptData(self._path, at, expected, "something else")
