"""Looks up the file groups of record keys, in a table whose keys decide no file group.

A hash index (``lakemark.index.bucket``, ``lakemark.index.hash_ring``) computes the bucket of a key
from the key alone. In any other table, the location of a key depends on the content of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.index.key_search import SearchedGroup

#: Stands for "no file group" among the positions of file groups.
NEW_KEY = -1


class KeyLookup(Protocol):
    """Tags record keys with the file groups that contain them."""

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """Return for each key the position of its file group in ``groups``, or ``NEW_KEY``.

        Args:
            groups: all file groups of the partition.
            record_keys: the keys, not null; a key may occur more than once.
            partition_path: the partition.

        Raises:
            SnapshotChanged: a file of a group was deleted.
            CorruptData: a file is damaged.
            Refused: several file groups contain one of the keys.
        """
        ...


class NoLookup:
    """Tags every key as new without a search, for inserts; a ``KeyLookup``."""

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """See ``KeyLookup.tag``."""
        return np.full(len(record_keys), NEW_KEY, np.int32)
