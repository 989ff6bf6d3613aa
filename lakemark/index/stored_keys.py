"""The file groups that have a live row of some record keys, in any partition of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import Refused
from lakemark.execution.runner import Runner
from lakemark.index.key_lookup import NEW_KEY
from lakemark.index.key_search import SearchedGroup, find_live_keys, narrow_keys
from lakemark.index.stored_filters import StoredFilters, Wanted
from lakemark.read.file_group_reader import FileGroupReader

Positions = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class StoredKeys:
    """Keys that have one live row in the whole table, and their file groups; a ``KeyLookup``.

    ``tag`` treats a key as new in each partition that has no live row of the key, even if a file
    there still has an old row or a delete of the key.

    Attributes:
        groups: file groups of the table.
        keys: distinct keys, as strings.
        numbers: for each key, the position of its file group in ``groups``.
    """

    groups: Sequence[SearchedGroup]
    keys: pa.Array
    numbers: Positions

    @classmethod
    def search(
        cls,
        reader: FileGroupReader,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array,
        runner: Runner,
        filters: StoredFilters | None = None,
    ) -> StoredKeys:
        """Search keys in all file groups.

        Args:
            reader: reader of the table.
            groups: all file groups of the table.
            record_keys: distinct strings, not null.
            runner: the threads that search the files.
            filters: the key ranges and Bloom filters in the metadata table, if they are used.

        Raises:
            Refused: a key has two live rows. A change of the key would leave one of them stale.
            SnapshotChanged: a file of a group was deleted.
            CorruptData: a file is damaged.
            Unsupported: a file or a block has a kind that lakemark does not read.
        """
        slices = [group.readable for group in groups]
        wanted = narrow_keys(reader, filters, slices, record_keys)

        def find_live(searched: tuple[SearchedGroup, Wanted]) -> pa.Array:
            return find_live_keys(reader, searched[0], record_keys, searched[1])

        found = runner.map(find_live, [*zip(groups, wanted, strict=True)])
        keys = pa.concat_arrays([pa.array([], pa.string()), *found])
        counts = pc.value_counts(keys)
        twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        if len(twice):
            key = twice[0]
            holders = [g for g, some in zip(groups, found, strict=True) if key in some]
            raise _stored_twice(key.as_py(), holders)
        lengths = np.array([len(some) for some in found], np.int64)
        return cls(groups, keys, np.repeat(np.arange(len(groups), dtype=np.int32), lengths))

    def find(self, record_keys: pa.Array | pa.ChunkedArray) -> Positions:
        """Return for each key the position of its file group in ``groups``, or ``NEW_KEY``."""
        at = pc.index_in(record_keys, value_set=self.keys)
        if isinstance(at, pa.ChunkedArray):
            at = at.combine_chunks()
        rows: Positions = np.asarray(pc.fill_null(at, NEW_KEY))
        return np.append(self.numbers, np.int32(NEW_KEY))[rows]

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> Positions:
        """See ``KeyLookup.tag``; all keys must be among those that were searched."""
        here = {group.readable.group: position for position, group in enumerate(groups)}
        positions = [here.get(group.readable.group, NEW_KEY) for group in self.groups]
        return np.array([*positions, NEW_KEY], np.int32)[self.find(record_keys)]

    def partition_paths(self, positions: Positions) -> pa.Array:
        """Return the partition path of each file group, or null for ``NEW_KEY``."""
        paths = pa.array([group.partition_path for group in self.groups], pa.string())
        return paths.take(pa.array(positions, mask=positions == NEW_KEY))

    def by_group(self, record_keys: pa.Array) -> Iterator[tuple[SearchedGroup, pa.Array]]:
        """Yield each file group that has some of the keys, with these keys."""
        numbers = self.find(record_keys)
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        for number, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            if number != NEW_KEY:
                yield self.groups[number], record_keys.take(pa.array(rows))


def _stored_twice(key: str, groups: Sequence[SearchedGroup]) -> Refused:
    named = " and ".join(str(group.readable.group) for group in groups)
    return Refused(
        f"record key {key!r} has a row in each of the file groups {named}, but keys are to be "
        "unique in the whole table, so nothing was written; delete the rows of this key "
        "(Table.delete), then write again"
    )
