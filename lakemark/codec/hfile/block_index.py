"""The index: where blocks begin, and the first key of each.

Root index, an entry for each block of the next level::

    8  offset
    4  size in the file, header included
       Hadoop VInt: bytes of the key
    n  key

Leaf and intermediate index::

    4  count
    4  x (count + 1): where each entry begins, behind this table
       entries: 8 offset, 4 size, key

A key of data is stored as in ``data_block``: 2 bytes length, the key, and what HBase adds; that of
a meta block is its name alone. Source: ``HFileRootIndexBlock``, ``HFileLeafIndexBlock``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise

from lakemark.codec.hfile.block import HEADER_BYTES, Block

_LOCATION = struct.Struct(">qi")
_SHORT = struct.Struct(">H")
_COUNT_BYTES = 4


@dataclass(frozen=True, slots=True)
class BlockLocation:
    """Position and size of a block."""

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """Blocks in the order of their keys.

    Attributes:
        first_keys: for each block a key that no key of it is smaller than, while all keys of the
            blocks before are; the first key itself, or one that HBase generated.
        locations: locations of the blocks, in ascending order.
    """

    first_keys: list[bytes]
    locations: list[BlockLocation]


def encode_root_index(index: BlockIndex, *, of_data: bool) -> bytes:
    """Content of the root index, or with ``of_data`` false of the index of meta blocks."""
    entries = []
    for key, location in zip(index.first_keys, index.locations, strict=True):
        stored = _SHORT.pack(len(key)) + key if of_data else key
        entries += [
            _LOCATION.pack(location.offset, location.size_bytes),
            _vint(len(stored)),
            stored,
        ]
    return b"".join(entries)


def parse_root_index(block: Block, count: int, *, of_data: bool) -> BlockIndex:
    """The root index, or with ``of_data`` false the index of meta blocks, of ``count`` entries.

    Raises:
        CorruptData: the block has other content.
    """
    content, at = block.content, 0
    keys: list[bytes] = []
    locations: list[BlockLocation] = []
    if not 0 <= count <= len(content) // (_LOCATION.size + 1):
        raise block.corrupt(expected="index entries that fit the block", actual=str(count))
    for _ in range(count):
        key_start, key_bytes = _read_vint(block, at + _LOCATION.size)
        end = key_start + key_bytes
        if key_bytes < 0 or end > len(content):
            raise block.corrupt(
                expected="index entries inside the block", actual=f"a key of {key_bytes} bytes"
            )
        locations.append(BlockLocation(*_LOCATION.unpack_from(content, at)))
        keys.append(content[key_start:end])
        at = end
    return _check_index(block, keys, locations, of_data=of_data)


def parse_index(block: Block) -> BlockIndex:
    """Return a leaf or intermediate index.

    Raises:
        CorruptData: the block has other content.
    """
    content = block.content
    count = int.from_bytes(content[:_COUNT_BYTES])
    table_end = _COUNT_BYTES * (count + 2)
    if len(content) < _COUNT_BYTES or table_end > len(content):
        raise block.corrupt(expected="index entries that fit the block", actual=str(count))
    table = struct.unpack_from(f">{count + 1}i", content, _COUNT_BYTES)
    starts = [table_end + start for start in table]
    keys: list[bytes] = []
    locations: list[BlockLocation] = []
    for start, end in pairwise(starts):
        if not table_end <= start <= start + _LOCATION.size <= end <= len(content):
            raise block.corrupt(
                expected="index entries inside the block", actual=f"one at {start} to {end}"
            )
        locations.append(BlockLocation(*_LOCATION.unpack_from(content, start)))
        keys.append(content[start + _LOCATION.size : end])
    return _check_index(block, keys, locations, of_data=True)


def _check_index(
    block: Block, keys: list[bytes], locations: list[BlockLocation], *, of_data: bool
) -> BlockIndex:
    end = 0
    for location in locations:
        # Each block behind the one before: otherwise few bytes could name blocks without end.
        if location.offset < end or location.size_bytes < HEADER_BYTES:
            raise block.corrupt(expected=f"a block at {end} or later", actual=str(location))
        end = location.offset + location.size_bytes
    return BlockIndex([_row(block, key) for key in keys] if of_data else keys, locations)


def _row(block: Block, key: bytes) -> bytes:
    """Return the key without its length and the bytes that HBase adds."""
    if len(key) < _SHORT.size or len(key) < _SHORT.size + _SHORT.unpack_from(key)[0]:
        raise block.corrupt(expected="a key with its length", actual=repr(key[:40]))
    return key[_SHORT.size : _SHORT.size + _SHORT.unpack_from(key)[0]]


def _read_vint(block: Block, at: int) -> tuple[int, int]:
    """Read a Hadoop VInt of at most 32 bits; returns the position after it, and the value.

    A first byte of -112 or more is the value. Below that it is the number of bytes of the value,
    -113 for one to -116 for four (-121 and less are negative values, which no length is).
    """
    content = block.content
    first = content[at] if at < len(content) else 0
    if first < 0x80 or first >= 0x90:
        return at + 1, first if first < 0x80 else first - 0x100
    width = 0x90 - first
    if width > _COUNT_BYTES or at + 1 + width > len(content):
        raise block.corrupt(expected="a length of 32 bits", actual=repr(content[at : at + 9]))
    return at + 1 + width, int.from_bytes(content[at + 1 : at + 1 + width])


def _vint(value: int) -> bytes:
    """Encode a VInt as ``_read_vint`` reads it."""
    if value < 0x80:
        return bytes([value])
    digits = value.to_bytes((value.bit_length() + 7) // 8)
    return bytes([0x90 - len(digits)]) + digits
