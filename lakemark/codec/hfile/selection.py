"""Selects entries of an HFile: all entries, or those with given keys or key prefixes.

At each level of the index, a selection is divided among the blocks that may contain some of the
selected entries. Other blocks are not read. If keys have characters from U+E000 on, the file may be
sorted in one of two orders (``lakemark.codec.utf16_order``). Then the blocks are searched in both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.utf16_order import is_order_certain, possible_orders


class Selection(Protocol):
    """The entries to read from an HFile."""

    def among(self, first_keys: Sequence[bytes]) -> Iterator[tuple[int, Selection]]:
        """Yield the blocks that may contain selected entries, each with its own selection.

        Args:
            first_keys: lower bound of the keys of each block, as in ``BlockIndex``.

        Yields:
            The position of a block in ``first_keys``, in ascending order, and the selection to
            apply inside that block.
        """
        ...

    def union(self, others: Sequence[Self]) -> Self:
        """Return a selection of the entries that this selection or one of the others selects.

        Args:
            others: selections that ``among`` yielded together with this one.
        """
        ...

    def rows(self, keys: pa.BinaryArray) -> npt.NDArray[np.bool_] | None:
        """Return which entries are selected, given their keys; None if all are."""
        ...


class Everything:
    """A selection of all entries."""

    def among(self, first_keys: Sequence[bytes]) -> Iterator[tuple[int, Selection]]:
        """Yield all blocks."""
        for block in range(len(first_keys)):
            yield block, self

    def union(self, others: Sequence[Self]) -> Self:
        """See ``Selection.union``."""
        del others
        return self

    def rows(self, keys: pa.BinaryArray) -> None:
        """See ``Selection.rows``."""


class Keys:
    """A selection of the entries with given keys.

    Attributes:
        keys: the distinct keys, binary, in ascending order, without nulls.
    """

    def __init__(self, keys: pa.BinaryArray) -> None:
        self.keys = keys

    @classmethod
    def of_any(cls, keys: pa.Array | pa.ChunkedArray) -> Keys:
        """Return a selection of keys, which are strings or binary values in any order.

        Nulls and duplicates are dropped.
        """
        distinct = pc.unique(keys.cast(pa.binary()).drop_null())
        return cls(distinct.take(pc.array_sort_indices(distinct)))

    def among(self, first_keys: Sequence[bytes]) -> Iterator[tuple[int, Selection]]:
        """Yield each block that may contain one of the keys, with the keys in its range.

        The range of a block goes from its first key to the first key of the next block, exclusive.
        """
        if not is_order_certain(first_keys):
            yield from self._among_in_any_order(first_keys)
            return
        keys = _SequenceOfKeys(self.keys)
        start = bisect_left(keys, first_keys[0]) if first_keys else len(keys)
        while start < len(keys):
            block = bisect_right(first_keys, keys[start]) - 1
            following = first_keys[block + 1 : block + 2]
            end = bisect_left(keys, following[0], start) if following else len(keys)
            yield block, Keys(self.keys[start:end])
            start = end

    def _among_in_any_order(self, first_keys: Sequence[bytes]) -> Iterator[tuple[int, Selection]]:
        """Yield each block that may contain one of the keys in one of the possible orders."""
        wanted: dict[int, set[int]] = {}
        for order in possible_orders(first_keys):
            bounds = [order(key) for key in first_keys]
            for number, key in enumerate(self.keys.to_pylist()):
                block = bisect_right(bounds, order(key)) - 1
                if block >= 0:
                    wanted.setdefault(block, set()).add(number)
        for block in sorted(wanted):
            yield block, Keys(self.keys.take(pa.array(sorted(wanted[block]))))

    def union(self, others: Sequence[Self]) -> Keys:
        """Return a selection of all keys; a key that blocks share occurs repeatedly."""
        return Keys(pa.concat_arrays([self.keys, *(one.keys for one in others)]))

    def rows(self, keys: pa.BinaryArray) -> npt.NDArray[np.bool_]:
        """See ``Selection.rows``."""
        return np.asarray(pc.is_in(keys, value_set=self.keys))


class Prefixes:
    """A selection of the entries whose keys begin with one of the given prefixes."""

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        self._prefixes = sorted(set(prefixes))

    def among(self, first_keys: Sequence[bytes]) -> Iterator[tuple[int, Selection]]:
        """Yield each block that may contain keys with some of the prefixes, and these prefixes."""
        wanted: dict[int, set[bytes]] = {}
        for order in possible_orders(first_keys):
            bounds = [order(key) for key in first_keys]
            for prefix in self._prefixes:
                for block in _blocks_with(order(prefix), bounds):
                    wanted.setdefault(block, set()).add(prefix)
        for block in sorted(wanted):
            yield block, Prefixes([*wanted[block]])

    def union(self, others: Sequence[Self]) -> Prefixes:
        """See ``Selection.union``."""
        return Prefixes([*self._prefixes, *(one for other in others for one in other._prefixes)])

    def rows(self, keys: pa.BinaryArray) -> npt.NDArray[np.bool_]:
        """See ``Selection.rows``."""
        rows = np.zeros(len(keys), np.bool_)
        for prefix in self._prefixes:
            rows |= np.asarray(pc.starts_with(keys, pattern=prefix))
        return rows


class _SequenceOfKeys(Sequence[bytes]):
    """A column of keys as a sequence for ``bisect``, which converts only a few keys to Python."""

    def __init__(self, keys: pa.BinaryArray) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, position: int) -> bytes:  # type: ignore[override]
        key: bytes = self._keys[position].as_py()
        return key


def _blocks_with(prefix: bytes, first_keys: Sequence[bytes]) -> range:
    """Return the blocks that may contain keys with a prefix."""
    first = max(bisect_right(first_keys, prefix) - 1, 0)
    after = _successor(prefix)
    return range(first, len(first_keys) if after is None else bisect_left(first_keys, after))


def _successor(prefix: bytes) -> bytes | None:
    """Return the smallest key that is greater than all keys with the prefix.

    None if there is no such key, because the prefix is empty or contains only 0xFF bytes.
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
