"""Reads an HFile: the whole file, or only the blocks that may contain the selected keys.

The sections of an HFile, in the order of their positions::

    data blocks, with leaf indexes between them
    meta blocks, intermediate indexes
    root index, index of meta blocks, file info   (read when the file is opened)
    trailer                                       (read when the file is opened)

Source: ``HFileReaderImpl`` of Apache Hudi 1.2.0; HBase Reference Guide, "HFile format".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

import pyarrow as pa

from lakemark.codec.hfile.block import (
    DATA,
    FILE_INFO,
    INTERMEDIATE_INDEX,
    LEAF_INDEX,
    META,
    ROOT_INDEX,
    Block,
)
from lakemark.codec.hfile.block_index import (
    BlockIndex,
    BlockLocation,
    parse_index,
    parse_root_index,
)
from lakemark.codec.hfile.file_info import parse_file_info
from lakemark.codec.hfile.hfile_data_block import Entries, parse_entries
from lakemark.codec.hfile.selection import Everything, Keys, Prefixes, Selection
from lakemark.codec.hfile.trailer import TRAILER_BYTES, Compression, Trailer
from lakemark.errors import CorruptData

#: Number of bytes at the end of a file that are read when the file is opened. They contain all of
#: a small file, and the trailer and root index of nearly any file.
_TAIL_BYTES = 64 << 10

#: Blocks are parsed together until they have so many uncompressed bytes. More bytes would leave the
#: CPU cache, and fewer would need more calls for each block.
_RUN_BYTES = 1 << 20

#: Neighbouring blocks are read in one request of at most so many bytes, together with the bytes
#: between them if these are few. Every request to an object store takes as long as some megabytes.
_READ_BYTES, _GAP_BYTES = 4 << 20, 64 << 10


class HFileReader:
    """An open HFile. It is not safe to use from two threads at once.

    Args:
        file: seekable file, which must stay open while entries are read.
        size_bytes: size of the HFile; bytes of ``file`` after it are not read.
        path: names the file in errors.

    Attributes:
        file_info: entries of the file info block, by name.

    Raises:
        CorruptData: trailer, root index or file info violate the format.
        Unsupported: the HFile has another version, is encrypted, stores versions of values, or has
            a compression other than GZ and NONE.
    """

    def __init__(self, file: BinaryIO, size_bytes: int, path: str) -> None:
        self._file, self._size_bytes, self._path = file, size_bytes, path
        if size_bytes < TRAILER_BYTES:
            raise CorruptData(path, 0, f"an HFile of {TRAILER_BYTES} bytes", f"{size_bytes} bytes")
        self._tail_start = max(size_bytes - _TAIL_BYTES, 0)
        self._tail = self._read_from_file(self._tail_start, size_bytes - self._tail_start)
        trailer_start = size_bytes - TRAILER_BYTES
        self._trailer = Trailer.parse(self._read(trailer_start, TRAILER_BYTES), path, trailer_start)
        self._root, self._meta, self.file_info = self._load_on_open(trailer_start)

    @property
    def num_entries(self) -> int:
        """Number of entries in the file, according to its trailer."""
        return self._trailer.entry_count

    @property
    def data_blocks(self) -> BlockIndex | None:
        """The index of all data blocks; None if it has several levels, so that it is not loaded."""
        return self._root if self._trailer.levels == 1 else None

    @property
    def compression(self) -> Compression:
        """Compression of every block."""
        return self._trailer.compression

    def stored_block(self, location: BlockLocation) -> bytes:
        """Return the bytes of a block as they are in the file.

        Raises:
            CorruptData: the file ends before the block.
        """
        return self._read(location.offset, location.size_bytes)

    def entries_of(self, locations: Iterable[BlockLocation]) -> Iterator[Entries]:
        """Yield the entries of these data blocks, some blocks at a time.

        Raises:
            CorruptData: a block violates the format.
        """
        everything = Everything()
        return _selected((self._block(one, DATA), everything) for one in locations)

    def scan(self) -> Iterator[Entries]:
        """Yield all entries in the order of their keys, some blocks at a time.

        Raises:
            CorruptData: a block violates the format.
        """
        return self.select(Everything())

    def lookup(self, keys: pa.Array | pa.ChunkedArray) -> Iterator[Entries]:
        """Yield the entries with the given keys, in the order of the file.

        Only the blocks that may contain one of the keys are read.

        Args:
            keys: strings or binary values, in any order; nulls match nothing.

        Raises:
            CorruptData: a block violates the format.
        """
        return self.select(Keys.of_any(keys))

    def lookup_prefixes(self, prefixes: Sequence[bytes]) -> Iterator[Entries]:
        """Yield the entries whose keys begin with one of the prefixes, in the order of the file.

        Raises:
            CorruptData: a block violates the format.
        """
        return self.select(Prefixes(prefixes))

    def select(self, selection: Selection) -> Iterator[Entries]:
        """Yield the selected entries, some blocks at a time; blocks without any are skipped.

        Raises:
            CorruptData: a block violates the format.
        """
        walked_to = [0] * self._trailer.levels
        found = self._data_blocks(self._root, selection, self._trailer.levels, walked_to)
        return _selected(found)

    def meta_block(self, name: str) -> bytes | None:
        """Return the content of the meta block ``name``; None if the file has no such block.

        Raises:
            CorruptData: the block violates the format.
        """
        if name.encode() not in self._meta.first_keys:
            return None
        location = self._meta.locations[self._meta.first_keys.index(name.encode())]
        return self._block(location, META).content

    def _load_on_open(self, end: int) -> tuple[BlockIndex, BlockIndex, Mapping[bytes, bytes]]:
        """Return the root index, the index of meta blocks, and the file info.

        Args:
            end: position of the trailer, which follows these blocks.
        """
        trailer, start = self._trailer, self._trailer.load_on_open_offset
        blocks = _BlocksInARow(self._read(start, end - start), trailer, self._path, start)
        root = parse_root_index(blocks.next(ROOT_INDEX), trailer.root_entry_count, of_data=True)
        meta = parse_root_index(blocks.next(ROOT_INDEX), trailer.meta_entry_count, of_data=False)
        return root, meta, parse_file_info(blocks.next(FILE_INFO))

    def _data_blocks(
        self, index: BlockIndex, selection: Selection, levels: int, walked_to: list[int]
    ) -> Iterator[tuple[Block, Selection]]:
        """Yield the data blocks that may contain selected entries, and the selection in each.

        Args:
            index: blocks of one level of the index.
            selection: entries to find in these blocks.
            levels: levels of the index from ``index`` down to the data blocks.
            walked_to: for each level, the end of the last block that was read.
        """
        chosen: list[tuple[BlockLocation, Selection]] = []
        for child, wanted in selection.among(index.first_keys):
            location = index.locations[child]
            # Each level is read only forwards, so that the search ends even if the index is
            # damaged.
            if location.offset < walked_to[levels - 1]:
                expected = f"a block at {walked_to[levels - 1]} or later"
                raise CorruptData(self._path, None, expected, str(location))
            walked_to[levels - 1] = location.offset + location.size_bytes
            if levels == 1:
                chosen.append((location, wanted))
            else:
                magic = LEAF_INDEX if levels == 2 else INTERMEDIATE_INDEX
                below = parse_index(self._block(location, magic))
                yield from self._data_blocks(below, wanted, levels - 1, walked_to)
        for together in _adjacent(chosen):
            yield from self._read_together(together)

    def _read_together(
        self, chosen: list[tuple[BlockLocation, Selection]]
    ) -> Iterator[tuple[Block, Selection]]:
        """Read neighbouring data blocks at once."""
        start, last = chosen[0][0].offset, chosen[-1][0]
        data = memoryview(self._read(start, last.offset + last.size_bytes - start))
        for location, wanted in chosen:
            at = location.offset - start
            stored = data[at : at + location.size_bytes]
            compression = self._trailer.compression
            yield Block.parse(stored, DATA, compression, self._path, location.offset), wanted

    def _block(self, location: BlockLocation, magic: bytes) -> Block:
        data = self._read(location.offset, location.size_bytes)
        return Block.parse(data, magic, self._trailer.compression, self._path, location.offset)

    def _read(self, start: int, size_bytes: int) -> bytes:
        if start + size_bytes > self._size_bytes:
            expected = f"{size_bytes} bytes before the end at {self._size_bytes}"
            raise CorruptData(self._path, start, expected, "fewer")
        if start < self._tail_start:
            return self._read_from_file(start, size_bytes)
        return self._tail[start - self._tail_start :][:size_bytes]

    def _read_from_file(self, start: int, size_bytes: int) -> bytes:
        self._file.seek(start)
        data = self._file.read(size_bytes)
        while 0 < len(data) < size_bytes and (more := self._file.read(size_bytes - len(data))):
            data += more
        if len(data) < size_bytes:
            raise CorruptData(self._path, start, f"{size_bytes} bytes", f"{len(data)} bytes")
        return data


def _selected(found: Iterable[tuple[Block, Selection]]) -> Iterator[Entries]:
    """Yield the selected entries of data blocks, some blocks at a time."""
    for run in _runs(found):
        stored = parse_entries(tuple(block for block, _ in run))
        keys = stored.keys()
        wanted = run[0][1].union([one for _, one in run[1:]])
        entries = stored.take(keys, wanted.rows(keys))
        if len(entries.keys):
            yield entries


def _adjacent(
    chosen: list[tuple[BlockLocation, Selection]],
) -> Iterator[list[tuple[BlockLocation, Selection]]]:
    """Group blocks that are next to each other in the file, in ascending order."""
    group: list[tuple[BlockLocation, Selection]] = []
    for location, wanted in chosen:
        if group:
            first, last = group[0][0], group[-1][0]
            end = last.offset + last.size_bytes
            is_far = location.offset - end > _GAP_BYTES
            if is_far or location.offset + location.size_bytes - first.offset > _READ_BYTES:
                yield group
                group = []
        group.append((location, wanted))
    if group:
        yield group


def _runs(
    found: Iterable[tuple[Block, Selection]],
) -> Iterator[list[tuple[Block, Selection]]]:
    """Group consecutive blocks, with at most ``_RUN_BYTES`` unless one block has more."""
    run: list[tuple[Block, Selection]] = []
    run_bytes = 0
    for block, wanted in found:
        size_bytes = len(block.content)
        if run and run_bytes + size_bytes > _RUN_BYTES:
            yield run
            run, run_bytes = [], 0
        run.append((block, wanted))
        run_bytes += size_bytes
    if run:
        yield run


class _BlocksInARow:
    """Parses consecutive blocks."""

    def __init__(self, data: bytes, trailer: Trailer, path: str, offset: int) -> None:
        self._data, self._compression = memoryview(data), trailer.compression
        self._path, self._offset = path, offset

    def next(self, magic: bytes) -> Block:
        """Return the next block, which must begin with ``magic``."""
        block = Block.parse(self._data, magic, self._compression, self._path, self._offset)
        self._data = self._data[block.size_bytes :]
        self._offset += block.size_bytes
        return block
