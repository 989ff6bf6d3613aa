"""Finds where the entries of data blocks begin.

The position of an entry follows from the lengths in the entry before it, so a search needs a loop
over the entries. But the ten bytes after each key are the same in all entries. They are searched in
all blocks at once, and the keys before them have few lengths. A result of this search is used only
if each entry ends where the next one begins, so it is the result of the loop. Otherwise the loop
runs, which also finds what is wrong with a damaged block. The search takes a third of the time of
the loop.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lakemark.codec.hfile.block import Block

Offsets = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

#: The bytes after the key: size of the column family, timestamp, and kind of entry.
AFTER_KEY = struct.pack(">bqb", 0, 2**63 - 1, 4)
LENGTHS = struct.Struct(">ii")
#: Number of bytes before and after the key that count towards the total size in the first field.
KEY_PREFIX_BYTES, KEY_SUFFIX_BYTES = 2, len(AFTER_KEY)
VERSION_BYTES = 1

_BEFORE_KEY_BYTES = LENGTHS.size + KEY_PREFIX_BYTES
#: Bytes of ``AFTER_KEY`` that are searched one after the other, the rarest first. They suffice:
#: a wrong position is found when the lengths are compared.
_SEARCHED = (1, 2, 9, 0, 8)
#: If keys have more different lengths, the loop costs less.
_MOST_KEY_LENGTHS = 32


def entry_starts(blocks: Sequence[Block], data: Bytes) -> Offsets:
    """Return the position of each entry in the contents of some blocks, and of the last one's end.

    Args:
        blocks: at least one block.
        data: the contents of the blocks, one after the other.

    Raises:
        CorruptData: the content of a block is not a list of entries.
    """
    ends = np.cumsum([len(block.content) for block in blocks])
    found = _search(data)
    # No entry may begin in one block and end in the next one.
    if found is not None and np.array_equal(found[np.searchsorted(found, ends)], ends):
        return found
    parts = [_walk(block) for block in blocks]
    before = ends - [len(block.content) for block in blocks]
    moved = [part + start for part, start in zip(parts, before, strict=True)]
    return np.concatenate([*moved, ends[-1:]])


def short_at(data: Bytes, at: Offsets) -> Offsets:
    """Return the unsigned integers of two bytes at these positions."""
    return (data[at].astype(np.int64) << 8) | data[at + 1]


def int_at(data: Bytes, at: Offsets) -> Offsets:
    """Return the unsigned integers of four bytes at these positions."""
    return (short_at(data, at) << 16) | short_at(data, at + 2)


def _search(data: Bytes) -> Offsets | None:
    """Return the starts of all entries, and the end of the last one; None if it is uncertain."""
    key_ends = _key_ends(data)
    starts = _starts_before(data, key_ends)
    if starts is None:
        return None
    value_bytes = int_at(data, starts + LENGTHS.size // 2)
    ends = key_ends + (KEY_SUFFIX_BYTES + VERSION_BYTES) + value_bytes
    found = np.append(starts, len(data))
    return found if found[0] == 0 and np.array_equal(ends, found[1:]) else None


def _key_ends(data: Bytes) -> Offsets:
    """Return the positions that look like the end of a key."""
    first = _SEARCHED[0]
    found = np.flatnonzero(data == AFTER_KEY[first]) - first
    found = found[(found >= _BEFORE_KEY_BYTES) & (found < len(data) - KEY_SUFFIX_BYTES)]
    for at in _SEARCHED[1:]:
        found = found[data[found + at] == AFTER_KEY[at]]
    return found


def _starts_before(data: Bytes, key_ends: Offsets) -> Offsets | None:
    """Return the start of the entry of each key; None if the lengths of keys contradict it."""
    starts = np.full(len(key_ends), -1)
    rest = np.arange(len(key_ends))
    for _ in range(_MOST_KEY_LENGTHS):
        if not len(rest):
            break
        # All keys before the first of the rest have a start.
        key_bytes = _key_bytes_of(data, key_ends, starts, int(rest[0]))
        at = key_ends[rest] - (key_bytes + _BEFORE_KEY_BYTES)
        fits = short_at(data, np.maximum(at, 0) + LENGTHS.size) == key_bytes
        fits &= at >= 0
        if not fits[0]:
            return None
        starts[rest[fits]] = at[fits]
        rest = rest[~fits]
    return None if len(rest) else starts


def _key_bytes_of(data: Bytes, key_ends: Offsets, starts: Offsets, row: int) -> int:
    """Return the length of a key, given the start of the entry before it."""
    at = 0
    if row:
        (value_bytes,) = int_at(data, starts[row - 1 : row] + LENGTHS.size // 2)
        at = int(key_ends[row - 1] + KEY_SUFFIX_BYTES + value_bytes) + VERSION_BYTES
    return int.from_bytes(data[at + LENGTHS.size : at + _BEFORE_KEY_BYTES].tobytes())


def _walk(block: Block) -> Offsets:
    """Return the position of each entry in the content of a block, from entry to entry."""
    content, at, starts = block.content, 0, list[int]()
    size_bytes, read_lengths = len(content), LENGTHS.unpack_from
    smallest_key = KEY_PREFIX_BYTES + KEY_SUFFIX_BYTES
    while at < size_bytes:
        starts.append(at)
        fits = at + LENGTHS.size <= size_bytes
        key_bytes, value_bytes = read_lengths(content, at) if fits else (-1, -1)
        at += LENGTHS.size + key_bytes + value_bytes + VERSION_BYTES
        if key_bytes < smallest_key or value_bytes < 0 or at > size_bytes:
            raise block.corrupt(
                expected="entries that fill the block", actual=f"one at byte {starts[-1]}"
            )
    return np.array(starts, np.int64)
