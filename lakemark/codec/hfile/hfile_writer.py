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
from lakemark.codec.hfile.block import DATA, FILE_INFO, META, ROOT_INDEX, encode_block, move_block
from lakemark.codec.hfile.block_index import BlockIndex, BlockLocation, encode_root_index
from lakemark.codec.hfile.hfile_data_block import Entries, encode_entries
from lakemark.codec.hfile.trailer import Compression, Trailer

BLOCK_BYTES = 64 << 10

#: Blocks that are encoded together, because a block has few entries for a call of Arrow. More of
#: them would leave the CPU cache.
_BLOCKS_AT_ONCE = 16

#: Size of an entry without its key and its value, in bytes.
FRAME_BYTES = 21

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
            shorter than 64 KiB, and than 32 KiB if Apache Hudi shall read it. Keys and values are
            not null.
        info: entries of the file info block, such as the schema. The entries that the format
            requires are added to them.
        created_ms: creation time of the file, in milliseconds since 1970.
        meta_blocks: content of each meta block, by name.
        compression: compression of every block, ``GZ`` or ``NONE``.
        block_bytes: largest total size of the entries of a data block. An entry that is larger
            gets its own block.
    """
    assert compression in (Compression.GZ, Compression.NONE), compression
    check_order(entries)
    file = HFileParts(compression)
    file.add_entries(entries, block_bytes)
    return file.finish(info, created_ms, meta_blocks)


class HFileParts:
    """Collects the blocks of an HFile in order.

    Args:
        compression: compression of every block.
    """

    def __init__(self, compression: Compression) -> None:
        self._compression, self._parts, self._size_bytes = compression, list[bytes](), 0
        self._data = BlockIndex([], [])
        self._count = self._key_bytes = self._entry_bytes = 0
        self._last_key = b""

    def add_entries(self, entries: Entries, block_bytes: int = BLOCK_BYTES) -> None:
        """Add data blocks with these entries, whose keys are greater than all keys before."""
        keys, values = byte_strings(entries.keys), byte_strings(entries.values)
        sizes = keys.lengths + values.lengths + FRAME_BYTES
        columns = Entries(keys.to_arrow(), values.to_arrow())
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        for run in _runs_of(list(_block_rows(sizes, block_bytes))):
            start, end = run[0].start, run[-1].stop
            content = encode_entries(Entries(*(c.slice(start, end - start) for c in columns)))
            for rows in run:
                first, last = bounds[[rows.start, rows.stop]] - bounds[start]
                block = content[first:last]
                stored = encode_block(DATA, block, self._compression, self._previous)
                self._add_data(stored, columns.keys[rows.start].as_py())
        if len(sizes):
            self._last_key = columns.keys[-1].as_py()
        self._count += len(sizes)
        self._key_bytes += int(keys.lengths.sum())
        self._entry_bytes += int(sizes.sum())

    def add_stored_block(self, stored: bytes, first_key: bytes, path: str) -> None:
        """Add a data block of another file with the same compression, without decompressing it.

        ``count_stored`` must be called for all blocks of that file together.

        Raises:
            CorruptData: the header of the block is damaged.
        """
        moved, entry_bytes = move_block(stored, DATA, self._previous, path)
        self._add_data(moved, first_key)
        self._entry_bytes += entry_bytes

    def count_stored(self, count: int, key_bytes: int, last_key: bytes) -> None:
        """Count the entries in the stored blocks.

        Args:
            count: the number of entries in these blocks.
            key_bytes: the size of their keys.
            last_key: the last of their keys.
        """
        self._count += count
        self._key_bytes += key_bytes
        self._last_key = max(self._last_key, last_key)

    @property
    def entry_bytes(self) -> int:
        """Uncompressed size of all entries, in bytes."""
        return self._entry_bytes

    def finish(
        self, info: Mapping[bytes, bytes], created_ms: int, meta_blocks: Mapping[bytes, bytes]
    ) -> bytes:
        """Return the bytes of the HFile; see ``write_hfile``."""
        data, first_meta = self._data, len(self._parts)
        meta = BlockIndex(
            list(meta_blocks), [self._add(META, content) for content in meta_blocks.values()]
        )
        root_location = self._add(ROOT_INDEX, encode_root_index(data, of_data=True))
        self._add(ROOT_INDEX, encode_root_index(meta, of_data=False))
        described = {**self._own_info(created_ms), **info}
        info_place = self._add(FILE_INFO, file_info.encode_file_info(described))
        trailer = Trailer(
            root_location.offset, first_meta, len(meta_blocks), self._count, 1, self._compression
        )
        ends = (data.locations[0].offset, data.locations[-1].offset) if data.locations else (-1, 0)
        end = trailer.encode(info_place.offset, self._entry_bytes, *ends)
        return b"".join((*self._parts, end))

    @property
    def _previous(self) -> int:
        # Apache Hudi's writer stores here the offset of the block itself, not of the previous one.
        return self._size_bytes if self._data.locations else -1

    def _add(self, magic: bytes, content: bytes) -> BlockLocation:
        return self._add_stored(encode_block(magic, content, self._compression))

    def _add_data(self, stored: bytes, first_key: bytes) -> None:
        self._data.first_keys.append(first_key)
        self._data.locations.append(self._add_stored(stored))

    def _add_stored(self, stored: bytes) -> BlockLocation:
        location = BlockLocation(self._size_bytes, len(stored))
        self._parts.append(stored)
        self._size_bytes += len(stored)
        return location

    def _own_info(self, created_ms: int) -> dict[bytes, bytes]:
        count, last = self._count, self._last_key
        value_bytes = self._entry_bytes - self._key_bytes - count * FRAME_BYTES
        means = [size_bytes // max(count, 1) for size_bytes in (self._key_bytes, value_bytes)]
        return {
            file_info.LAST_KEY: struct.pack(">H", len(last)) + last if count else b"",
            file_info.MEAN_KEY_BYTES: struct.pack(">i", means[0]),
            file_info.MEAN_VALUE_BYTES: struct.pack(">i", means[1]),
            file_info.VERSION: struct.pack(">i", file_info.VERSION_WITH_MVCC),
            file_info.MAX_MVCC: struct.pack(">q", 0),
            file_info.CREATED_MS: struct.pack(">q", created_ms),
        }


def check_order(entries: Entries) -> None:
    """Check that the keys of entries are strictly ascending, and that nothing is null."""
    keys = entries.keys
    assert keys.null_count == entries.values.null_count == 0, "entries without keys or values"
    if len(keys) > 1:
        is_ascending = pc.all(pc.less(keys[:-1], keys[1:])).as_py()
        assert is_ascending, "keys that are not strictly ascending"


def _block_rows(sizes: _Sizes, block_bytes: int) -> Iterator[range]:
    """Yield the rows of each data block."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        limit = ends[start] - sizes[start] + block_bytes
        end = max(int(np.searchsorted(ends, limit, side="right")), start + 1)
        yield range(start, end)
        start = end


def _runs_of(blocks: list[range]) -> Iterator[list[range]]:
    """Divide the rows of blocks into runs that are encoded together."""
    for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
        yield blocks[first : first + _BLOCKS_AT_ONCE]
