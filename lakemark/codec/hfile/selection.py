"""Selects entries of an HFile: all, or those of given keys or key prefixes.

At each level of the index, a selection is divided among the blocks that may contain some of it, so
that no other block is read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile.hfile_data_block import Entries


class Selection(Protocol):
    """Entries that are wanted."""

    def among(self, first_keys: Sequence[bytes]) -> Iterator[tuple[int, Selection]]:
        """Blocks that may hold some, ascending, each with the keys to look for in it."""
        ...

    def of(self, entries: Entries) -> Entries:
        """Return those of a data block that are wanted."""
        ...


class Everything:
    """All entries."""

    def among(self, first_keys: Sequence[bytes]) -> Iterator[tuple[int, Selection]]:
        """Yield all blocks."""
        for block in range(len(first_keys)):
            yield block, self

    def of(self, entries: Entries) -> Entries:
        """Return all of them."""
        return entries


class Keys:
    """Entries of these keys.

    Attributes:
        keys: binary, ascending, each once, without nulls.
    """

    def __init__(self, keys: pa.BinaryArray) -> None:
        self.keys = keys

    @classmethod
    def of_any(cls, keys: pa.Array | pa.ChunkedArray) -> Keys:
        """Of strings or binaries in any order; nulls are no keys."""
        distinct = pc.unique(keys.cast(pa.binary()).drop_null())
        return cls(distinct.take(pc.array_sort_indices(distinct)))

    def among(self, first_keys: Sequence[bytes]) -> Iterator[tuple[int, Selection]]:
        """Yield each block with the keys from its first one up to that of the next block."""
        keys = _SequenceOfKeys(self.keys)
        start = bisect_left(keys, first_keys[0]) if first_keys else len(keys)
        while start < len(keys):
            block = bisect_right(first_keys, keys[start]) - 1
            following = first_keys[block + 1 : block + 2]
            end = bisect_left(keys, following[0], start) if following else len(keys)
            yield block, Keys(self.keys[start:end])
            start = end

    def of(self, entries: Entries) -> Entries:
        """Return those whose key is among them."""
        return _filtered(entries, pc.is_in(entries.keys, value_set=self.keys))


class Prefixes:
    """Entries whose keys begin with one of these."""

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        self._prefixes = sorted(set(prefixes))

    def among(self, first_keys: Sequence[bytes]) -> Iterator[tuple[int, Selection]]:
        """Each block with the prefixes between which and whose successors it begins or ends."""
        wanted: dict[int, list[bytes]] = {}
        for prefix in self._prefixes:
            first = max(bisect_right(first_keys, prefix) - 1, 0)
            after = _successor(prefix)
            end = len(first_keys) if after is None else bisect_left(first_keys, after)
            for block in range(first, end):
                wanted.setdefault(block, []).append(prefix)
        for block in sorted(wanted):
            yield block, Prefixes(wanted[block])

    def of(self, entries: Entries) -> Entries:
        """Return those whose key begins with one of them."""
        rows = np.zeros(len(entries.keys), np.bool_)
        for prefix in self._prefixes:
            rows |= np.asarray(pc.starts_with(entries.keys, pattern=prefix))
        return _filtered(entries, pa.array(rows))


class _SequenceOfKeys(Sequence[bytes]):
    """A column of keys as ``bisect`` takes it: few of many are looked at."""

    def __init__(self, keys: pa.BinaryArray) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, position: int) -> bytes:  # type: ignore[override]
        key: bytes = self._keys[position].as_py()
        return key


def _successor(prefix: bytes) -> bytes | None:
    """The smallest key that is greater than all keys with the prefix; None when there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _filtered(entries: Entries, rows: pa.BooleanArray) -> Entries:
    return Entries(entries.keys.filter(rows), entries.values.filter(rows))
