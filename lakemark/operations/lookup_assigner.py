"""Assigns the changes of a batch to file groups, in a table with a lookup index.

The changes of a stored key go to the file group that contains the key. New keys go only to base
files, because Apache Hudi's lookup indexes do not search logs. So in a merge-on-read table, a new
key is written to a new file group, or the base file of a small file group is rewritten.

Source: ``UpsertPartitioner`` and ``SparkUpsertDeltaCommitPartitioner`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.parquet_settings import ParquetSettings
from lakemark.index.key_lookup import NEW_KEY, KeyLookup
from lakemark.index.key_search import SearchedGroup
from lakemark.index.lookup import new_file_id
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import (
    AssignedChanges,
    AssignmentBuilder,
    Numbers,
    rows_by_partition,
)
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.file_sizing import NewKeys, divide_new_keys
from lakemark.write.partitioner import Bucket


@dataclass(frozen=True, kw_only=True)
class LookupAssigner:
    """Assigns the changes of one commit to file groups; an ``Index``.

    Attributes:
        open_lookup: returns what looks up the keys of these changes.
        view: the file groups on which the commit is based.
        sizing: the sizes of base files.
        record_bytes: estimated size of a record.
        instant: requested time of the commit.
        table_name: name of the table.
        is_merge_on_read: whether changes of stored keys are appended to logs.
        deletes_may_add: whether a delete of a new key may become a row, which only a custom merger
            can decide.
        spared: file groups that receive no new keys.
    """

    open_lookup: Callable[[pa.Table], KeyLookup]
    view: FileSystemView
    sizing: ParquetSettings
    record_bytes: int
    instant: str
    table_name: str
    is_merge_on_read: bool
    deletes_may_add: bool = False
    spared: frozenset[FileGroupId] = frozenset()

    def assign(self, changes: pa.Table) -> AssignedChanges:
        """See ``Index.assign``. A new key that is only deleted is written nowhere."""
        changes = changes.select([RECORD_KEY, PARTITION_PATH, CHANGE_KIND])
        assignment = AssignmentBuilder.of(self.view, changes.num_rows)
        lookup = self.open_lookup(changes)
        for path, rows in rows_by_partition(changes):
            targets = self._assign_in(lookup, path, changes.take(pa.array(rows)))
            assignment.numbers[rows] = targets.numbers
            for number, current in enumerate(targets.slices):
                new_id = new_file_id(number, path, self.instant, self.table_name)
                assignment.set_group(Bucket(path, number), new_id if current is None else current)
            assignment.adding |= {Bucket(path, number) for number in targets.adding}
        return assignment.build()

    def place(self, find_paths: Callable[[], Iterable[str]]) -> None:
        """See ``Index.place``. The file group of a change is known only once its key is."""

    def check_unchanged(self, timeline: Timeline) -> None:
        """See ``Index.check_unchanged``. The table has no buckets.

        If another commit adds keys to the same partitions, this is a conflict
        (``lakemark.transaction.conflicts``).
        """

    def _assign_in(self, lookup: KeyLookup, path: str, changes: pa.Table) -> _Targets:
        """Assign the changes of one partition."""
        groups = searched_groups(self.view, path)
        keys = changes.column(RECORD_KEY)
        positions = lookup.tag(groups, keys, path)
        updated, codes = np.unique(positions, return_inverse=True)
        is_new = positions == NEW_KEY
        has_new = bool(is_new.any())
        numbers: Numbers = np.empty(len(codes), np.int32)
        numbers[:] = codes - has_new  # NEW_KEY is the first of the positions
        changed: list[FileSlice | None] = [groups[n].current for n in updated[int(has_new) :]]
        targets = _Targets(numbers, changed)
        if has_new:
            kinds = changes.column(CHANGE_KIND).to_numpy()
            may_add = self.deletes_may_add | (kinds == ChangeKind.UPSERT)
            new = keys.filter(pa.array(is_new)).combine_chunks()
            added = pc.unique(new.filter(pa.array(may_add[is_new])))
            divided = divide_new_keys(
                len(added), self._small_slices(path, groups), self.record_bytes, self.sizing
            )
            # In ascending order, so that each new file has a narrow range of keys.
            added = added.take(pc.sort_indices(added))
            numbers[is_new] = targets.add(divided, np.asarray(_index_in(new, added)))
        return targets

    def _small_slices(self, path: str, groups: list[SearchedGroup]) -> list[FileSlice]:
        """Return the slices that receive new keys before file groups are created, smallest first.

        In a merge-on-read table, this is at most one slice, and it has no logs, because rewriting
        its base file would compact them.
        """
        small = [
            group.current
            for group in groups
            if group.current.base is not None
            and group.current.base.size_bytes < self.sizing.small_file_bytes
            and not group.current.logs
            and group.readable == group.current
            and group.current.group not in self.view.compactions
            and group.current.group not in self.view.clusterings
            and group.current.group not in self.spared
        ]
        small.sort(key=lambda one: (one.base.size_bytes if one.base else 0, one.group))
        return small[:1] if self.is_merge_on_read else small


def searched_groups(view: FileSystemView, partition_path: str | None = None) -> list[SearchedGroup]:
    """Return the file groups of a partition that have rows for queries, in order of file id.

    Args:
        view: the file groups of the table.
        partition_path: the partition; None for the file groups of all partitions.
    """
    return [
        SearchedGroup(group.for_readers, group.for_writers)
        for group in view.file_groups(partition_path)
        if group.for_readers and group.for_writers
    ]


@dataclass(slots=True)
class _Targets:
    """The file groups of one partition to which a commit writes.

    Attributes:
        numbers: for each change, the position of its file group in ``slices``.
        slices: the slice of each file group; None for a new one.
        adding: positions of existing file groups that receive new keys.
    """

    numbers: Numbers
    slices: list[FileSlice | None]
    adding: set[int] = field(default_factory=set)

    def add(self, divided: list[NewKeys], ranks: npt.NDArray[np.int64]) -> Numbers:
        """Add the file groups of new keys, and return the number of the group of each change.

        Args:
            divided: the numbers of keys that each file group receives.
            ranks: for each change of a new key, the rank of its key among the added keys; -1 if the
                key is only deleted.
        """
        numbers = np.array([self._number_of(one.file_slice) for one in divided], np.int32)
        ends = np.cumsum([one.count for one in divided])
        if (ranks < 0).any():
            # Nothing is written for changes that are all deletes, but they must be counted.
            numbers = np.append(numbers, np.int32(self._append(None)))
        found = np.searchsorted(ends, ranks, "right")
        return numbers[np.where(ranks < 0, len(numbers) - 1, found)]

    def _number_of(self, file_slice: FileSlice | None) -> int:
        if file_slice is None:
            return self._append(None)
        known = file_slice in self.slices
        number = self.slices.index(file_slice) if known else self._append(file_slice)
        self.adding.add(number)
        return number

    def _append(self, file_slice: FileSlice | None) -> int:
        self.slices.append(file_slice)
        return len(self.slices) - 1


def _index_in(values: pa.Array, among: pa.Array) -> pa.Array:
    return pc.fill_null(pc.index_in(values, value_set=among), -1)
