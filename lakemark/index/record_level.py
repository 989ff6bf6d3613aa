"""The record level index: the metadata table's record index has the location of each record key.

The keys of a whole batch are looked up at once, and no data file is read. A key is unique in the
whole table. So if rows do not move (``lakemark.index.global_keys``), a change of a key whose row is
in another partition is refused, because it would give the key a second row. With a partitioned
record index, a key is unique only within a partition, as with the lookup index
(``lakemark.index.lookup``). Then the keys of each partition are looked up in the partition.

The index has no deleted keys. So if a merge-on-read table has only the delete of a key in a log, a
later change of the key goes to a base file as a new key, even if its event is older than the
delete. Apache Hudi's index RECORD_INDEX does the same. Source:
``SparkMetadataTableGlobalRecordLevelIndex``, ``SparkMetadataTableRecordLevelIndex`` of Apache Hudi
1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import CorruptData, HudiError, Refused
from lakemark.index.key_lookup import NEW_KEY
from lakemark.index.key_search import SearchedGroup
from lakemark.index.stored_keys import StoredKeys
from lakemark.metadata.partition_shards import has_no_series
from lakemark.metadata.record_index import RecordIndex

#: Separates a partition path from a file id; neither contains this character.
_SEPARATOR = "\0"


class UnreadLocation(Refused):
    """The record index has a key in a file group that is not among the groups of the batch.

    The file group may belong to a commit that completed after the commit of the batch began,
    because the base files of the index contain whatever was compacted into them.
    """


@dataclass(frozen=True, slots=True)
class RecordLevelIndex:
    """The locations of the keys of one batch; a ``KeyLookup``.

    Attributes:
        locations: the location of each key that has a row, with the columns ``record_key``,
            ``partition_path`` and ``file_id``; each key occurs once.
    """

    locations: pa.Table

    @classmethod
    def of(
        cls,
        index: RecordIndex,
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str | None = None,
    ) -> RecordLevelIndex:
        """Look up the keys of a batch.

        Args:
            index: the record index as of the timeline on which the commit is based.
            record_keys: the keys, not null; a key may occur more than once.
            partition_path: the partition of the keys, if the record index is partitioned.

        Raises:
            SnapshotChanged: the metadata table was compacted in the meantime.
            CorruptData: the record index is damaged.
        """
        if isinstance(record_keys, pa.ChunkedArray):
            record_keys = record_keys.combine_chunks()
        paths = None if partition_path is None else [partition_path]
        return cls(index.lookup(record_keys, paths).combine_chunks())

    def stored_keys(self, groups: Sequence[SearchedGroup]) -> StoredKeys:
        """Return the file groups of the keys, in any partition.

        Args:
            groups: all file groups of the table.

        Raises:
            UnreadLocation: the index locates a key in a file group that queries do not read.
        """
        ids = (group.readable.group for group in groups)
        names = [f"{one.partition_path}{_SEPARATOR}{one.file_id}" for one in ids]
        places = (self.locations[name] for name in ("partition_path", "file_id"))
        wanted = pc.binary_join_element_wise(*places, _SEPARATOR)
        found = _index_in(wanted, pa.array(names, pa.string()))
        numbers: npt.NDArray[np.int32] = np.asarray(found)
        if (numbers == NEW_KEY).any():
            at = int(np.flatnonzero(numbers == NEW_KEY)[0])
            raise _not_read(self.locations.slice(at, 1).to_pylist()[0])
        return StoredKeys(groups, self.locations["record_key"].combine_chunks(), numbers)

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """See ``KeyLookup.tag``; all keys must be among those that were looked up.

        Raises:
            UnreadLocation: a key has a row in another partition, or the index locates it in a file
                group that queries do not read.
        """
        is_here = pc.equal(self.locations["partition_path"], partition_path)
        here = self.locations.filter(is_here)
        rows = np.asarray(_index_in(record_keys, here["record_key"]))
        is_new = rows == NEW_KEY
        self._check_new(record_keys.filter(pa.array(is_new)), pc.invert(is_here), partition_path)
        ids = pa.array([group.readable.group.file_id for group in groups], pa.string())
        known = np.asarray(_index_in(here["file_id"], ids))
        tags: npt.NDArray[np.int32] = np.append(known, np.int32(NEW_KEY))[rows]
        is_unread = ~is_new & (tags == NEW_KEY)
        if is_unread.any():
            at = int(rows[np.argmax(is_unread)])
            raise _not_read(here.slice(at, 1).to_pylist()[0])
        return tags

    def _check_new(
        self,
        record_keys: pa.Array | pa.ChunkedArray,
        are_elsewhere: pa.ChunkedArray,
        partition_path: str,
    ) -> None:
        """Check that keys without a row in a partition have none in another partition either."""
        elsewhere = self.locations.filter(are_elsewhere)
        # The keys of one partition are fewer than the locations, so they are what is hashed.
        found = _index_in(elsewhere["record_key"], record_keys)
        stored = elsewhere.filter(pc.not_equal(found, NEW_KEY))
        if stored.num_rows:
            raise _not_here(stored.slice(0, 1).to_pylist()[0], partition_path)


@dataclass(frozen=True, slots=True)
class PartitionedRecordLevelIndex:
    """The locations of keys that are unique only within a partition; a ``KeyLookup``.

    Attributes:
        index: the record index as of the timeline on which the commit is based.
        refusal: returns the error for an index that is damaged or was dropped, given the reason.
    """

    index: RecordIndex
    refusal: Callable[[str], HudiError]

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """See ``KeyLookup.tag``.

        Raises:
            UnreadLocation: the index locates a key in a file group that queries do not read.
            SnapshotChanged, CorruptData: as for ``RecordLevelIndex.of``.
            HudiError: see ``refusal``. Without the file groups of the partition in the index, each
                key would look new, and get a second row.
        """
        try:
            is_indexed = partition_path in self.index.series
        except CorruptData as error:
            raise self.refusal(str(error)) from error
        if not is_indexed and groups:
            raise self.refusal(has_no_series(partition_path))
        if not is_indexed:
            return np.full(len(record_keys), NEW_KEY, np.int32)
        found = RecordLevelIndex.of(self.index, record_keys, partition_path)
        return found.tag(groups, record_keys, partition_path)


def _index_in(values: pa.Array | pa.ChunkedArray, among: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(among, pa.ChunkedArray):
        among = among.combine_chunks()
    found = pc.index_in(values, value_set=among)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    return pc.fill_null(found, NEW_KEY)


def _not_here(location: Mapping[str, str], path: str) -> UnreadLocation:
    key, stored = location["record_key"], location["partition_path"]
    return UnreadLocation(
        f"record key {key!r} has a row in partition {stored!r}, and a change has it in the "
        f"partition {path!r}; keys of a table with a record index are unique in the whole table, "
        "so nothing was written; open the table with partition_change='move' to move the row, or "
        "correct the partition of the change"
    )


def _not_read(location: Mapping[str, str]) -> UnreadLocation:
    key, stored, file_id = (location[n] for n in ("record_key", "partition_path", "file_id"))
    return UnreadLocation(
        f"the record index has record key {key!r} in file group {file_id} of partition {stored!r}, "
        "which queries do not read; find the differences with lakemark table check, and build the "
        "index again (--rebuild --run)"
    )
