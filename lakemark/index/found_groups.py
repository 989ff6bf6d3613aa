"""The file groups of rows that were read, for changes of exactly these rows.

A key may be stored in several file groups of a partition, if inserts did not look it up. An upsert
of such a key is refused, because it would change only one of the rows. A delete of the rows that a
query has found needs no search, and finds each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import CorruptData
from lakemark.index.key_search import SearchedGroup
from lakemark.model.meta_columns import PARTITION_PATH


@dataclass(frozen=True, slots=True, eq=False)
class FoundGroups:
    """The file groups in which rows were found; a ``KeyLookup``.

    Attributes:
        file_ids: for each partition path, the ids of the file groups of its rows, in the order of
            the changes.
    """

    file_ids: Mapping[str, pa.Array]

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """See ``KeyLookup.tag``; the keys must be those of the rows in the partition.

        Raises:
            CorruptData: a row was found in a file group of another partition.
        """
        file_ids = self.file_ids[partition_path]
        known = pa.array([group.readable.group.file_id for group in groups], pa.string())
        found = pc.index_in(file_ids, value_set=known)
        assert len(found) == len(record_keys), partition_path
        if found.null_count:
            group = f"file group {file_ids.filter(pc.is_null(found))[0]}"
            expected = f"only rows whose {PARTITION_PATH} is the partition of the file"
            raise CorruptData(group, None, expected, repr(partition_path))
        tags: npt.NDArray[np.int32] = np.asarray(found)
        return tags
