"""Finds keys in a column that is searched many times.

Arrow's ``index_in`` builds a new hash table at every call. If ``index_in`` were called for each
batch of base rows, building these tables would be the most expensive step of a merge. Instead, the
column's hashes are sorted once. Two keys with the same hash may differ, so the keys are always
compared as well.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.java_hash import byte_hash
from lakemark.merge.key_codes import NO_ROW, Mask, Rows


class KeyLookup:
    """Finds the rows of a column that contain given keys."""

    def __init__(self, keys: pa.ChunkedArray) -> None:
        """Index the column.

        Args:
            keys: a column of strings. If a string occurs several times, its first row is found.
        """
        hashes = _hashes(keys)
        order = np.argsort(hashes, kind="stable")
        ascending = hashes[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = ascending[1:] != ascending[:-1]
        self._keys = keys
        self._hashes, self._rows = ascending[is_first], order[is_first]
        #: For each hash, all rows except the first. These rows repeat the key of the first row, or
        #: have another key with the same hash.
        self._hidden = np.sort(order[~is_first])
        self._hidden_keys = keys.take(self._hidden).combine_chunks()

    def find_rows(self, wanted: pa.ChunkedArray) -> Rows:
        """Return the row of each wanted key, or ``NO_ROW`` if the column does not contain the key.

        A null never matches.
        """
        found = np.full(len(wanted), NO_ROW, np.int64)
        rows, candidates = self._match_hashes(wanted)
        is_same = _are_equal(wanted.take(rows), self._keys.take(candidates))
        found[rows[is_same]] = candidates[is_same]
        if len(self._hidden):
            others = rows[~is_same]
            index = pc.index_in(wanted.take(others), value_set=self._hidden_keys)
            is_hidden = np.asarray(index.is_valid())
            found[others[is_hidden]] = self._hidden[np.asarray(index.drop_null())]
        return found

    def _match_hashes(self, wanted: pa.ChunkedArray) -> tuple[Rows, Rows]:
        """Match wanted keys with rows of the column by hash.

        Returns:
            The rows of ``wanted`` whose hash occurs in the column, and for each of them the first
            row of the column with that hash.
        """
        hashes = _hashes(wanted)
        if not len(self._hashes):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        at = np.searchsorted(self._hashes, hashes)
        at[at == len(self._hashes)] = 0
        rows = np.flatnonzero(self._hashes[at] == hashes)
        return rows, self._rows[at[rows]]


def _hashes(keys: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    return np.concatenate([np.empty(0, np.int32), *map(byte_hash, keys.chunks)])


def _are_equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Mask:
    mask: Mask = np.asarray(pc.fill_null(pc.equal(one, other), fill_value=False)).astype(np.bool_)
    return mask
