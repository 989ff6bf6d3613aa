"""Changes some entries of an HFile, and copies the data blocks that do not change as they are.

A copied block is not decompressed, so the costs grow with the changes rather than with the file. It
is not checked either: damage in it is found when it is read, and then the metadata table is built
again. A changed block is divided again if it has become too large. Adjacent blocks are never
united, so a file that is changed again and again gets smaller blocks; ``Splice.is_fragmented``
reports this.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import byte_strings
from lakemark.codec.hfile import file_info
from lakemark.codec.hfile.block_index import BlockIndex
from lakemark.codec.hfile.hfile_data_block import Entries
from lakemark.codec.hfile.hfile_writer import BLOCK_BYTES, FRAME_BYTES, HFileParts, check_order
from lakemark.codec.hfile.reader import HFileReader
from lakemark.codec.utf16_order import is_order_certain

_FRAGMENTED_BLOCKS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Splice:
    """The data blocks of an HFile with some entries changed.

    Attributes:
        parts: the blocks.
        count: the number of entries.
        added: the keys that the file did not have before.
        is_fragmented: whether the blocks have become so small that the file should be written
            again.
    """

    parts: HFileParts
    count: int
    added: pa.BinaryArray
    is_fragmented: bool


def splice_hfile(
    base: HFileReader,
    written: Entries,
    deleted: pa.BinaryArray,
    path: str,
    block_bytes: int = BLOCK_BYTES,
) -> Splice | None:
    """Return the blocks of an HFile after some entries were written and deleted.

    The result is None if the index of the file has several levels; if the order of the file is
    uncertain (``lakemark.codec.utf16_order``), because a key might then be added to another block
    than the one that has it; or if all entries of the last block are deleted: the last key would be
    unknown.

    Args:
        base: the HFile.
        written: new entries, or new values of entries, with keys in strictly ascending order.
        deleted: keys of entries to delete, in ascending order, none of which is in ``written``.
        path: the HFile, for errors.
        block_bytes: largest total size of the entries of a changed data block.

    Raises:
        CorruptData: a block violates the format.
    """
    index = base.data_blocks
    if index is None or not index.first_keys or not is_order_certain(index.first_keys):
        return None
    check_order(written)
    splicer = _Splicer(base, index, written, deleted, path, block_bytes)
    splicer.add_all()
    return splicer.result()


class _Splicer:
    def __init__(
        self,
        base: HFileReader,
        index: BlockIndex,
        written: Entries,
        deleted: pa.BinaryArray,
        path: str,
        block_bytes: int,
    ) -> None:
        self._base, self._index, self._path, self._block_bytes = base, index, path, block_bytes
        self._written, self._deleted = written, deleted
        #: Positions in ``written`` and ``deleted`` at which the changes of each block begin.
        self._starts = _rows_of_blocks(written.keys, index.first_keys)
        self._gone = _rows_of_blocks(deleted, index.first_keys)
        self._parts, self._added = HFileParts(base.compression), [_NO_KEYS]
        self._stored_count, self._stored_key_bytes = base.num_entries, _key_bytes(base)
        self._spliced_count = 0
        self._last_key: bytes | None = _last_key(base)

    def add_all(self) -> None:
        """Add all blocks in order."""
        blocks = range(len(self._index.locations))
        for is_changed, run in groupby(blocks, self._is_changed):
            (self._change if is_changed else self._copy)(list(run))

    def result(self) -> Splice | None:
        """Return the blocks; None if the last key is unknown."""
        if self._last_key is None:
            return None
        self._parts.count_stored(self._stored_count, max(self._stored_key_bytes, 0), self._last_key)
        ideal = self._parts.entry_bytes // self._block_bytes
        return Splice(
            self._parts,
            self._stored_count + self._spliced_count,
            pa.concat_arrays(self._added),
            len(self._index.locations) > 2 * ideal + _FRAGMENTED_BLOCKS,
        )

    def _is_changed(self, block: int) -> bool:
        return any(at[block] < at[block + 1] for at in (self._starts, self._gone))

    def _copy(self, run: Sequence[int]) -> None:
        for block in run:
            stored = self._base.stored_block(self._index.locations[block])
            self._parts.add_stored_block(stored, self._index.first_keys[block], self._path)

    def _change(self, run: Sequence[int]) -> None:
        first, end = run[0], run[-1] + 1
        before = _join([_NOTHING, *self._base.entries_of(self._index.locations[first:end])])
        rows = slice(self._starts[first], self._starts[end])
        new = Entries(self._written.keys[rows], self._written.values[rows])
        after = _merge(before, new, self._deleted[self._gone[first] : self._gone[end]])
        self._parts.add_entries(after, _even_block_bytes(after, self._block_bytes))
        self._added.append(new.keys.filter(pc.invert(pc.is_in(new.keys, value_set=before.keys))))
        self._stored_count -= len(before.keys)
        self._stored_key_bytes -= int(byte_strings(before.keys).lengths.sum())
        self._spliced_count += len(after.keys)
        if end == len(self._index.locations):
            self._last_key = after.keys[-1].as_py() if len(after.keys) else None


_NO_KEYS = pa.array([], pa.binary())
_NOTHING = Entries(_NO_KEYS, _NO_KEYS)


def _rows_of_blocks(keys: pa.BinaryArray, first_keys: Sequence[bytes]) -> list[int]:
    """Return the position in ``keys`` of the first key of each block, and the number of keys.

    Keys before the first block belong to the first block.
    """
    listed = keys.to_pylist()
    return [0, *(bisect_left(listed, first) for first in first_keys[1:]), len(listed)]


def _merge(before: Entries, written: Entries, deleted: pa.BinaryArray) -> Entries:
    changed = pa.concat_arrays([written.keys, deleted])
    kept = pc.invert(pc.is_in(before.keys, value_set=changed))
    united = _join([Entries(before.keys.filter(kept), before.values.filter(kept)), written])
    order = pc.array_sort_indices(united.keys)
    return Entries(united.keys.take(order), united.values.take(order))


def _join(parts: Sequence[Entries]) -> Entries:
    keys, values = zip(*parts, strict=True)
    return Entries(pa.concat_arrays(keys), pa.concat_arrays(values))


def _even_block_bytes(entries: Entries, block_bytes: int) -> int:
    """Return the size of blocks with which no block becomes much smaller than the others."""
    lengths = byte_strings(entries.keys).lengths + byte_strings(entries.values).lengths
    sizes = lengths + FRAME_BYTES
    total, largest = int(sizes.sum()), int(sizes.max(initial=0))
    count = -(-total // block_bytes)
    return block_bytes if count <= 1 else min(total // count + largest, block_bytes)


def _key_bytes(base: HFileReader) -> int:
    (mean,) = struct.unpack(">i", base.file_info.get(file_info.MEAN_KEY_BYTES, bytes(4)))
    return int(mean) * base.num_entries


def _last_key(base: HFileReader) -> bytes:
    return base.file_info.get(file_info.LAST_KEY, b"")[2:]
