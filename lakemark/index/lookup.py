"""The lookup index: the stored files show which file group contains a record key.

Apache Hudi's indexes SIMPLE, BLOOM and RECORD_INDEX keep no relation between a key and a file id. A
new key may be written to any file group of its partition, and later changes of the key are written
to the same group. So a writer must find the group of each key before it writes.

The search of a partition reads only what can contain one of the keys. The key range and the Bloom
filter of each base file exclude keys, and then only the column of record keys is read. Both are in
the footer of the file. In a partition with many files, they are first read from the metadata table
(``lakemark.index.stored_filters``), so that most footers are not read. The base files of a table
without meta columns have neither of the two, so the record keys of all their rows are computed from
the key columns. Keys that no base file contains are searched in the logs. Apache Hudi does not
search logs (``HoodieIndex.canIndexLogFiles``), because its writers insert keys only into base
files. But a key may be in a log alone in two cases: if another index wrote it (HBase, the state of
Flink), or if a pending compaction removed the deleted row of a key while a new change was appended.

A key is unique only within its partition, as with the indexes whose names do not begin with
GLOBAL_. ``lakemark.index.global_keys`` keeps keys unique in the whole table. Source:
``HoodieSimpleIndex``, ``HoodieBloomIndex``, ``HoodieIndexUtils`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import Refused
from lakemark.execution.runner import Runner
from lakemark.index.key_lookup import NEW_KEY
from lakemark.index.key_search import (
    SearchedGroup,
    find_live_keys,
    narrow_keys,
    search_footer,
)
from lakemark.index.stored_filters import StoredFilters, Wanted
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.file_group_reader import FileGroupReader

#: Keys of a base file that are compared at a time. A larger number takes more memory, and a smaller
#: one hashes the searched keys more often.
_KEYS_AT_ONCE = 1 << 20

_NAMESPACE = uuid.UUID("0d1f0cf5-3c0b-5d0f-9f3e-8f9b6e2f7a11")


@dataclass(frozen=True, slots=True)
class LookupIndex:
    """Finds record keys in the files of a partition; a ``KeyLookup``.

    Attributes:
        reader: reader of the table.
        runner: the threads that search the files.
        filters: the key ranges and Bloom filters in the metadata table, if they are used.
    """

    reader: FileGroupReader
    runner: Runner
    filters: StoredFilters | None = None

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """See ``KeyLookup.tag``."""
        keys = _distinct(record_keys)
        found = _Found(self.reader, groups, keys)
        slices = [group.readable for group in groups]
        wanted = narrow_keys(self.reader, self.filters, slices, keys)
        found.add(self.runner.map(self._find_in_base, [*zip(slices, wanted, strict=True)]))
        unknown = keys.filter(pa.array(found.positions == NEW_KEY))
        if len(unknown):

            def find_logged(file_slice: FileSlice) -> pa.Array:
                return self._find_in_logs(file_slice, unknown)

            found.add(self.runner.map(find_logged, slices))
        codes: npt.NDArray[np.int32] = np.asarray(pc.index_in(record_keys, value_set=keys))
        return found.positions[codes]

    def _find_in_base(self, searched: tuple[FileSlice, Wanted]) -> pa.Array:
        base, wanted = searched[0].base, searched[1]
        if base is None:
            return wanted.keys.slice(0, 0)
        keys = search_footer(self.reader, base, wanted)
        if not len(keys):
            return keys
        return _find(self.reader.read_base_keys(base, _KEYS_AT_ONCE), keys)

    def _find_in_logs(self, file_slice: FileSlice, keys: pa.Array) -> pa.Array:
        return _find(self.reader.read_changed_keys(file_slice), keys)


class _Found:
    """The file groups in which distinct keys were found.

    Attributes:
        positions: for each key, the position of its file group; ``NEW_KEY`` if there is none.
    """

    def __init__(
        self, reader: FileGroupReader, groups: Sequence[SearchedGroup], keys: pa.Array
    ) -> None:
        self._reader = reader
        self._groups = groups
        self._keys = keys
        self.positions = np.full(len(keys), NEW_KEY, np.int32)

    def add(self, found: Iterable[pa.Array]) -> None:
        """Record the file group of each key, given the keys of each file group.

        Raises:
            Refused: two file groups have a live row of the same key.
        """
        for position, some in enumerate(found):
            at = np.asarray(pc.index_in(some, value_set=self._keys))
            is_new = self.positions[at] == NEW_KEY
            self.positions[at[is_new]] = position
            if not is_new.all():
                self._choose(at[~is_new], position)

    def _choose(self, at: npt.NDArray[np.int64], position: int) -> None:
        """Decide between two file groups that contain the same keys: the live row counts.

        After a global index of Apache Hudi has moved a row to another partition and back, the
        partition has a base file with the row, and another one whose row its log deletes.

        Args:
            at: which keys are in this file group and in an earlier one.
            position: position of this file group.

        Raises:
            Refused: a key has two live rows. A change of the key would leave one of them stale.
        """
        live_here = self._are_live(at, position)
        earlier = self.positions[at]
        for other in np.unique(earlier):
            rivals = (earlier == other) & live_here
            twice = at[rivals][self._are_live(at[rivals], int(other))]
            if len(twice):
                key = self._keys[int(twice[0])].as_py()
                raise _stored_twice(key, self._groups[other], self._groups[position])
        self.positions[at[live_here]] = position

    def _are_live(self, at: npt.NDArray[np.int64], position: int) -> npt.NDArray[np.bool_]:
        keys = self._keys.take(pa.array(at))
        live = find_live_keys(self._reader, self._groups[position], keys) if len(keys) else keys
        return np.asarray(pc.is_in(keys, value_set=live))


def new_file_id(number: int, partition_path: str, instant: str, table_name: str) -> str:
    """Return the file id of a new file group. Repeated attempts at one write use the same id.

    The id begins with a letter, because the ids of a bucket index begin with eight digits.

    Args:
        number: distinguishes the new file groups of a partition in one commit.
        partition_path: the partition.
        instant: requested time of the commit.
        table_name: name of the table.
    """
    name = "\0".join([table_name, partition_path, instant, str(number)])
    text = str(uuid.uuid5(_NAMESPACE, name))
    return f"{'abcdef'[int(text[0], 16) % 6]}{text[1:]}-0"


def _distinct(record_keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    distinct = pc.unique(record_keys)
    return distinct.combine_chunks() if isinstance(distinct, pa.ChunkedArray) else distinct


def _find(tables: Iterable[pa.Table], wanted: pa.Array) -> pa.Array:
    """Return the distinct keys of the tables that are wanted."""

    def matches() -> Iterator[pa.Array]:
        for table in tables:
            stored = table.column(RECORD_KEY)
            yield from stored.filter(pc.is_in(stored, value_set=wanted)).chunks

    return pc.unique(pa.chunked_array(list(matches()), pa.string()))


def _stored_twice(key: str, one: SearchedGroup, other: SearchedGroup) -> Refused:
    file_ids = " and ".join(group.readable.group.file_id for group in (one, other))
    return Refused(
        f"record key {key!r} is in two file groups of partition {one.partition_path!r}, "
        f"{file_ids}; lakemark would change only one of the rows, so nothing was written; delete "
        "the rows that are too many (Table.delete), then write again"
    )
