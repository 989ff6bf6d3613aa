"""Encodes and parses the entries of a data block: keys and their values.

The fields of an entry, with their sizes in bytes::

    4  total size of the fields from the size of the key to the kind of entry, n + 12
    4  size of the value, m
    2  size of the key, n
    n  key
    1  size of the column family, 0
    8  timestamp, always the largest one
    1  kind of entry, 4 (put)
    m  value
    1  version, 0

Whole columns are encoded at once, which is 9 times as fast as a loop in Python
(``python -m benchmarks.codecs``). No Python library writes HFiles.
Source: ``HFileDataBlock``, ``KeyValue`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import ByteStrings, byte_strings
from lakemark.codec.hfile.block import Block
from lakemark.codec.hfile.entry_starts import (
    AFTER_KEY,
    KEY_PREFIX_BYTES,
    KEY_SUFFIX_BYTES,
    LENGTHS,
    VERSION_BYTES,
    Offsets,
    entry_starts,
    int_at,
    short_at,
)
from lakemark.errors import CorruptData

_PUT = 4
_BEFORE_KEY = np.dtype([("stored", ">i4"), ("value", ">i4"), ("key", ">u2")])
#: The longest key of a new entry, in bytes: Apache Hudi reads the size as a signed number.
MAX_KEY_BYTES = (1 << 15) - 1
#: The longest key that fits. If a file has such keys, the next version of the file keeps them.
_MAX_KEPT_KEY_BYTES = (1 << 16) - 1

_AFTER_KEY = pa.scalar(AFTER_KEY, pa.large_binary())
_AFTER_VALUE = pa.scalar(bytes(VERSION_BYTES), pa.large_binary())


class Entries(NamedTuple):
    """Entries of an HFile as two columns.

    Attributes:
        keys: binary column, in ascending order of the bytes.
        values: binary column; value ``i`` belongs to key ``i``.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray


def encode_entries(entries: Entries) -> memoryview:
    """Return the content of a data block with these entries, at least one.

    Callers check the lengths of new keys (``MAX_KEY_BYTES``).
    """
    keys, values = byte_strings(entries.keys), byte_strings(entries.values)
    assert keys.lengths.max() <= _MAX_KEPT_KEY_BYTES, "a key whose size does not fit"
    stored = pc.binary_join_element_wise(
        _before_keys(keys.lengths, values.lengths),
        keys.to_arrow(),
        _AFTER_KEY,
        values.to_arrow(),
        _AFTER_VALUE,
        pa.scalar(b"", pa.large_binary()),
    )
    content = byte_strings(stored)
    return content.data[content.offsets[0] : content.offsets[-1]].data


def _before_keys(key_bytes: Offsets, value_bytes: Offsets) -> pa.LargeBinaryArray:
    lengths = np.empty(len(key_bytes), _BEFORE_KEY)
    lengths["stored"] = key_bytes + (KEY_PREFIX_BYTES + KEY_SUFFIX_BYTES)
    lengths["value"], lengths["key"] = value_bytes, key_bytes
    offsets = np.arange(0, lengths.nbytes + 1, _BEFORE_KEY.itemsize)
    return ByteStrings(lengths.view(np.uint8), offsets).to_arrow()


@dataclass(frozen=True, slots=True, eq=False)
class StoredEntries:
    """The entries of some data blocks, of which ``take`` copies those that are needed.

    Attributes:
        data: the contents of the blocks.
        key_starts: the position of each key in ``data``.
        key_ends: the end of each key.
        value_ends: the end of each value, which begins after the key and the fields that follow it.
    """

    data: npt.NDArray[np.uint8]
    key_starts: Offsets
    key_ends: Offsets
    value_ends: Offsets

    def keys(self) -> pa.BinaryArray:
        """Return all keys, in stored order."""
        return _slices(self.data, self.key_starts, self.key_ends)

    def take(self, keys: pa.BinaryArray, rows: npt.NDArray[np.bool_] | None = None) -> Entries:
        """Return some of the entries.

        Args:
            keys: all keys.
            rows: which entries to return; None for all of them.
        """
        value_starts = self.key_ends + KEY_SUFFIX_BYTES
        if rows is None:
            return Entries(keys, _slices(self.data, value_starts, self.value_ends))
        values = _slices(self.data, value_starts[rows], self.value_ends[rows])
        return Entries(keys.filter(pa.array(rows)), values)


def parse_entries(blocks: Sequence[Block]) -> StoredEntries:
    """Return the entries of some blocks, in stored order.

    The blocks are parsed together, because a call of NumPy or Arrow costs more than the few entries
    of a block.

    Args:
        blocks: at least one block; their contents have less than two gigabytes together.

    Raises:
        CorruptData: the content of a block is not a list of such entries.
    """
    contents = [block.content for block in blocks]
    data = np.frombuffer(contents[0] if len(blocks) == 1 else b"".join(contents), np.uint8)
    starts = entry_starts(blocks, data)
    first, last = starts[:-1], starts[1:]
    key_starts = first + (LENGTHS.size + KEY_PREFIX_BYTES)
    key_bytes = short_at(data, key_starts - KEY_PREFIX_BYTES)
    key_ends, value_ends = key_starts + key_bytes, last - VERSION_BYTES
    is_right = int_at(data, first) == key_bytes + (KEY_PREFIX_BYTES + KEY_SUFFIX_BYTES)
    if is_right.all():
        is_right = (
            (data[key_ends] == 0)
            & (data[key_ends + (KEY_SUFFIX_BYTES - 1)] == _PUT)
            & (data[value_ends] == 0)
        )
    if not is_right.all():
        raise _another_entry(blocks, int(first[np.argmin(is_right)]))
    return StoredEntries(data, key_starts, key_ends, value_ends)


def _another_entry(blocks: Sequence[Block], at: int) -> CorruptData:
    """Return the error for an entry at this position in the contents of the blocks."""
    for block in blocks:
        if at < len(block.content):
            break
        at -= len(block.content)
    return block.corrupt(
        expected="entries that Hudi writes", actual=f"a different one at byte {at}"
    )


def _slices(data: npt.NDArray[np.uint8], starts: Offsets, ends: Offsets) -> pa.BinaryArray:
    """Return ``data[starts[i]:ends[i]]`` for each ``i``.

    Offsets have 32 bits, because a block has less than two gigabytes.
    """
    bounds = np.zeros(2 * len(starts) + 1, np.int32)
    # First build a column of the slices and the gaps between them, which needs no copy. Then take
    # every second row: the slices.
    bounds[0:-1:2], bounds[1::2] = starts, ends
    bounds[-1] = bounds[-2] if len(starts) else 0
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    with_gaps = pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    return with_gaps.take(pa.array(np.arange(0, len(bounds) - 1, 2)))
