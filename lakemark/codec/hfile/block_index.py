"""Encodes and parses the index of an HFile: position, size and first key of each block.

The root index has an entry for each block of the next level, with these fields and sizes in bytes::

    8  offset of the block
    4  size of the block in the file, header included
       length of the key, as a Hadoop VInt
    n  key

A leaf or intermediate index::

    4                number of entries
    4 x (count + 1)  offset of each entry, and of the end of the last entry; offsets are counted
                     from the end of this table
                     entries: offset of the block (8), size of the block (4), key

The key of a data block is stored as in ``hfile_data_block``: a length of 2 bytes, the key, and the
fields that HBase appends. The key of a meta block is its name, without a length.
Source: ``HFileRootIndexBlock``, ``HFileLeafIndexBlock``.
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
    """Position and size of a block in the file."""

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """The blocks of one index, in the order of their keys.

    Attributes:
        first_keys: a lower bound of the keys of each block. It is greater than all keys of the
            blocks before it. HBase may write a generated key instead of the block's first key.
            Apache Hudi compares keys as Java does (``lakemark.codec.utf16_order``).
        locations: locations of the blocks, in ascending order.
    """

    first_keys: list[bytes]
    locations: list[BlockLocation]


def encode_root_index(index: BlockIndex, *, of_data: bool) -> bytes:
    """Return the content of an index block: the root index, or the index of meta blocks.

    Args:
        index: the blocks to list.
        of_data: whether to encode the root index rather than the index of meta blocks.
    """
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
    """Return the root index, or the index of meta blocks.

    Args:
        block: block that contains the index.
        count: number of entries, which only the trailer states.
        of_data: whether the block is the root index rather than the index of meta blocks.

    Raises:
        CorruptData: the content of the block is not such an index.
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
    """Return the leaf or intermediate index in a block.

    Raises:
        CorruptData: the content of the block is not such an index.
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
        # Blocks must not overlap: otherwise a small damaged index could refer to the same blocks
        # again and again, and reading them would never end.
        if location.offset < end or location.size_bytes < HEADER_BYTES:
            raise block.corrupt(expected=f"a block at {end} or later", actual=str(location))
        end = location.offset + location.size_bytes
    return BlockIndex([_row(block, key) for key in keys] if of_data else keys, locations)


def _row(block: Block, key: bytes) -> bytes:
    """Return the key without its length and without the fields that HBase appends."""
    if len(key) < _SHORT.size or len(key) < _SHORT.size + _SHORT.unpack_from(key)[0]:
        raise block.corrupt(expected="a key with its length", actual=repr(key[:40]))
    return key[_SHORT.size : _SHORT.size + _SHORT.unpack_from(key)[0]]


def _read_vint(block: Block, at: int) -> tuple[int, int]:
    """Read a Hadoop VInt of at most 32 bits; return the position after it, and its value.

    A first byte of -112 or more is the value itself. A smaller first byte is the number of bytes
    that follow: -113 for one byte to -116 for four. First bytes of -121 and less introduce negative
    values, which are not valid lengths.
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
    """Encode a length as a Hadoop VInt."""
    if value < 0x80:
        return bytes([value])
    digits = value.to_bytes((value.bit_length() + 7) // 8)
    return bytes([0x90 - len(digits)]) + digits
