"""The protocol of indexes. An index finds the file group to which a record key belongs.

There are two families. A hash index (``lakemark.index.bucket``) computes the file group from the
key alone. A lookup index (``lakemark.index.lookup``) searches the keys of the stored files.
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


class Index(Protocol):
    """Tags record keys with the file groups to which they belong."""

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """Return for each key the position of its file group in ``groups``, or ``NEW_KEY``.

        If a file of a group contains the key, the result is this group. Otherwise the result is
        ``NEW_KEY``, or the group to which a hash index assigns the key.

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


class NewKeysIndex:
    """Tags every key as new without a search, for inserts; an ``Index``."""

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """See ``Index.tag``."""
        return np.full(len(record_keys), NEW_KEY, np.int32)
