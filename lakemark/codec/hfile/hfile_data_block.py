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

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import ByteStrings, byte_strings
from lakemark.codec.hfile.block import Block

_LENGTHS = struct.Struct(">ii")
_PUT = 4
#: Number of bytes before and after the key that count towards the total size in the first field.
_KEY_PREFIX_BYTES, _KEY_SUFFIX_BYTES = 2, 10
_VERSION_BYTES = 1
_BEFORE_KEY = np.dtype([("stored", ">i4"), ("value", ">i4"), ("key", ">u2")])
#: The longest key of a new entry, in bytes: Apache Hudi reads the size as a signed number.
MAX_KEY_BYTES = (1 << 15) - 1
#: The longest key that fits. If a file has such keys, the next version of the file keeps them.
_MAX_KEPT_KEY_BYTES = (1 << 16) - 1

#: The bytes after the key: size of the column family, timestamp, and kind of entry.
_AFTER_KEY = pa.scalar(struct.pack(">bqb", 0, 2**63 - 1, _PUT), pa.large_binary())
_AFTER_VALUE = pa.scalar(bytes(_VERSION_BYTES), pa.large_binary())

_Offsets = npt.NDArray[np.int64]


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


def _before_keys(key_bytes: _Offsets, value_bytes: _Offsets) -> pa.LargeBinaryArray:
    lengths = np.empty(len(key_bytes), _BEFORE_KEY)
    lengths["stored"] = key_bytes + (_KEY_PREFIX_BYTES + _KEY_SUFFIX_BYTES)
    lengths["value"], lengths["key"] = value_bytes, key_bytes
    offsets = np.arange(0, lengths.nbytes + 1, _BEFORE_KEY.itemsize)
    return ByteStrings(lengths.view(np.uint8), offsets).to_arrow()


def parse_entries(block: Block) -> Entries:
    """Return the entries of a block, in stored order.

    Raises:
        CorruptData: the content of the block is not a list of such entries.
    """
    starts = _entry_starts(block)
    data = np.frombuffer(block.content, np.uint8)
    first, last = starts[:-1], starts[1:]
    key_start = first + (_LENGTHS.size + _KEY_PREFIX_BYTES)
    key_bytes = _short_at(data, key_start - _KEY_PREFIX_BYTES)
    value_start = key_start + key_bytes + _KEY_SUFFIX_BYTES
    stored_key_bytes = _int_at(data, first)
    is_right = stored_key_bytes == key_bytes + (_KEY_PREFIX_BYTES + _KEY_SUFFIX_BYTES)
    if is_right.all():
        is_right = (
            (data[key_start + key_bytes] == 0)
            & (data[value_start - 1] == _PUT)
            & (data[last - _VERSION_BYTES] == 0)
        )
    if not is_right.all():
        wrong = int(first[np.argmin(is_right)])
        raise block.corrupt(
            expected="entries that Hudi writes", actual=f"a different one at byte {wrong}"
        )
    return Entries(
        _slices(data, key_start, key_start + key_bytes),
        _slices(data, value_start, last - _VERSION_BYTES),
    )


def _entry_starts(block: Block) -> _Offsets:
    """Return the position of each entry, and of the end of the last one.

    The position of an entry follows from the lengths in the entry before it. So only this step
    loops over the entries one by one.
    """
    content, at, starts = block.content, 0, [0]
    size_bytes, read_lengths = len(content), _LENGTHS.unpack_from
    smallest_key = _KEY_PREFIX_BYTES + _KEY_SUFFIX_BYTES
    while at < size_bytes:
        key_bytes, value_bytes = read_lengths(content, at) if at + 8 <= size_bytes else (-1, -1)
        at += _LENGTHS.size + key_bytes + value_bytes + _VERSION_BYTES
        if key_bytes < smallest_key or value_bytes < 0 or at > size_bytes:
            raise block.corrupt(
                expected="entries that fill the block", actual=f"one at byte {starts[-1]}"
            )
        starts.append(at)
    return np.array(starts, np.int64)


def _short_at(data: npt.NDArray[np.uint8], at: _Offsets) -> _Offsets:
    return (data[at].astype(np.int64) << 8) | data[at + 1]


def _int_at(data: npt.NDArray[np.uint8], at: _Offsets) -> _Offsets:
    return (_short_at(data, at) << 16) | _short_at(data, at + 2)


def _slices(data: npt.NDArray[np.uint8], starts: _Offsets, ends: _Offsets) -> pa.BinaryArray:
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
