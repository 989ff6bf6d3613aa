"""Writes an HFile as Apache Hudi's writer does: with one level of index, and checksums of zero.

A data block ends before the entry that would exceed the block size. An entry never spans two
blocks. Files with the same entries and creation time have the same bytes.

Source: ``HFileWriterImpl``, ``HFileBlock`` and its subclasses of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from lakemark.codec.byte_strings import byte_strings
from lakemark.codec.hfile import file_info
from lakemark.codec.hfile.block import DATA, FILE_INFO, META, ROOT_INDEX, encode_block
from lakemark.codec.hfile.block_index import BlockIndex, BlockLocation, encode_root_index
from lakemark.codec.hfile.hfile_data_block import Entries, encode_entries
from lakemark.codec.hfile.trailer import Compression, Trailer

BLOCK_BYTES = 64 << 10

#: Size of an entry without its key and its value, in bytes.
_FRAME_BYTES = 21

_NOTHING: Mapping[bytes, bytes] = MappingProxyType({})

_Sizes = npt.NDArray[np.int64]


def write_hfile(
    entries: Entries,
    info: Mapping[bytes, bytes] = _NOTHING,
    *,
    created_ms: int,
    meta_blocks: Mapping[bytes, bytes] = _NOTHING,
    compression: Compression = Compression.GZ,
    block_bytes: int = BLOCK_BYTES,
) -> bytes:
    """Return the bytes of an HFile.

    Args:
        entries: entries with strictly ascending keys, compared by their bytes. Each key is
            shorter than 32 KiB. Keys and values are not null.
        info: entries of the file info block, such as the schema. The entries that the format
            requires are added to them.
        created_ms: creation time of the file, in milliseconds since 1970.
        meta_blocks: content of each meta block, by name.
        compression: compression of every block, ``GZ`` or ``NONE``.
        block_bytes: largest total size of the entries of a data block. An entry that is larger
            gets its own block.
    """
    assert compression in (Compression.GZ, Compression.NONE), compression
    _check(entries)
    keys, values = byte_strings(entries.keys), byte_strings(entries.values)
    sizes = keys.lengths + values.lengths + _FRAME_BYTES
    columns = Entries(keys.to_arrow(), values.to_arrow())
    file = _File(compression)
    data = _write_data(file, columns, sizes, block_bytes)
    meta = BlockIndex(
        list(meta_blocks), [file.add(META, content) for content in meta_blocks.values()]
    )
    root_location = file.add(ROOT_INDEX, encode_root_index(data, of_data=True))
    file.add(ROOT_INDEX, encode_root_index(meta, of_data=False))
    own = _own_info(columns, keys.lengths, values.lengths, created_ms)
    info_place = file.add(FILE_INFO, file_info.encode_file_info({**own, **info}))
    trailer = Trailer(
        root_location.offset, len(data.locations), len(meta.locations), len(sizes), 1, compression
    )
    ends = (data.locations[0].offset, data.locations[-1].offset) if data.locations else (-1, 0)
    return file.closed(trailer.encode(info_place.offset, int(sizes.sum()), *ends))


class _File:
    """Appends blocks, and records the location of each."""

    def __init__(self, compression: Compression) -> None:
        self._compression, self._parts, self._size_bytes = compression, list[bytes](), 0

    def add(self, magic: bytes, content: bytes | memoryview, previous: int = -1) -> BlockLocation:
        block = encode_block(magic, content, self._compression, previous)
        location = BlockLocation(self._size_bytes, len(block))
        self._parts.append(block)
        self._size_bytes += len(block)
        return location

    def closed(self, trailer: bytes) -> bytes:
        return b"".join((*self._parts, trailer))


def _check(entries: Entries) -> None:
    keys = entries.keys
    assert keys.null_count == entries.values.null_count == 0, "entries without keys or values"
    if len(keys) > 1:
        is_ascending = pc.all(pc.less(keys[:-1], keys[1:])).as_py()
        assert is_ascending, "keys that are not strictly ascending"


def _write_data(file: _File, entries: Entries, sizes: _Sizes, block_bytes: int) -> BlockIndex:
    first_keys: list[bytes] = []
    locations: list[BlockLocation] = []
    for rows in _block_rows(sizes, block_bytes):
        count = rows.stop - rows.start
        block = Entries(*(column.slice(rows.start, count) for column in entries))
        # Apache Hudi's writer stores here the offset of the block itself, not of the previous one.
        previous = locations[-1].offset + locations[-1].size_bytes if locations else -1
        locations.append(file.add(DATA, encode_entries(block), previous))
        first_keys.append(block.keys[0].as_py())
    return BlockIndex(first_keys, locations)


def _block_rows(sizes: _Sizes, block_bytes: int) -> Iterator[range]:
    """Yield the rows of each data block."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        limit = ends[start] - sizes[start] + block_bytes
        end = max(int(np.searchsorted(ends, limit, side="right")), start + 1)
        yield range(start, end)
        start = end


def _own_info(
    entries: Entries, key_bytes: _Sizes, value_bytes: _Sizes, created_ms: int
) -> dict[bytes, bytes]:
    count = len(key_bytes)
    last: bytes = entries.keys[-1].as_py() if count else b""
    means = [int(lengths.sum()) // max(count, 1) for lengths in (key_bytes, value_bytes)]
    return {
        file_info.LAST_KEY: struct.pack(">H", len(last)) + last if count else b"",
        file_info.MEAN_KEY_BYTES: struct.pack(">i", means[0]),
        file_info.MEAN_VALUE_BYTES: struct.pack(">i", means[1]),
        file_info.VERSION: struct.pack(">i", file_info.VERSION_WITH_MVCC),
        file_info.MAX_MVCC: struct.pack(">q", 0),
        file_info.CREATED_MS: struct.pack(">q", created_ms),
    }
