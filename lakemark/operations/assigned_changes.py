"""The file groups of the changes of one commit, collected partition by partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.meta_columns import PARTITION_PATH
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.log_copies import NewBuckets
from lakemark.write.partitioner import Bucket, sorted_codes

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class AssignedChanges:
    """The file groups of changes.

    Attributes:
        numbers: the bucket number of each change.
        assignment: the file group of each bucket.
    """

    numbers: Numbers
    assignment: FileGroupAssignment


class KeyHash(Protocol):
    """Decides the bucket of each key from its hash; can be pickled."""

    def bucket_ids(self, record_keys: pa.ChunkedArray, partition_paths: pa.ChunkedArray) -> Numbers:
        """Return the bucket number of each key in its partition."""
        ...


@dataclass(frozen=True, slots=True)
class PlacedBuckets:
    """The buckets of a commit whose changes are not known yet; can be pickled for workers.

    Attributes:
        index: decides the bucket of each change.
        assignment: the file group of each bucket.
    """

    index: KeyHash
    assignment: FileGroupAssignment


@dataclass
class AssignmentBuilder:
    """Collects the file groups of the changes of a commit.

    Attributes:
        view: the file groups on which the commit is based.
        numbers: the bucket number of each change.
        slices: the current slice of each existing file group.
        new_file_ids: the file id of each new file group.
        adding: the existing file groups that receive new keys.
        new_buckets: what will replace the buckets of a pending resize.
    """

    view: FileSystemView
    numbers: Numbers
    slices: dict[Bucket, FileSlice] = field(default_factory=dict)
    new_file_ids: dict[Bucket, str] = field(default_factory=dict)
    adding: set[Bucket] = field(default_factory=set)
    new_buckets: dict[Bucket, NewBuckets] = field(default_factory=dict)

    @classmethod
    def of(cls, view: FileSystemView, changes: int) -> AssignmentBuilder:
        """Return the assignment of this number of changes, which have no file groups yet."""
        return cls(view, np.zeros(changes, np.int32))

    def set_group(self, bucket: Bucket, group: FileSlice | str) -> None:
        """Set the file group of a bucket.

        Args:
            bucket: the bucket.
            group: the current slice of an existing file group, or the file id of a new one.
        """
        if isinstance(group, str):
            self.new_file_ids[bucket] = group
        else:
            self.slices[bucket] = group

    def build(self) -> AssignedChanges:
        """Return the changes with their file groups."""
        assignment = FileGroupAssignment(
            self.slices,
            self.view.partitions,
            _readable_slices(self.view, self.slices.values()),
            frozenset(self.adding),
            self.new_file_ids,
            new_buckets=self.new_buckets,
        )
        return AssignedChanges(self.numbers, assignment)


def rows_by_partition(changes: pa.Table) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield each partition path with the row numbers of its changes, in order of arrival."""
    paths = changes.column(PARTITION_PATH)
    names, codes = sorted_codes(paths.combine_chunks())
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for position, name in enumerate(names):
        yield name, order[starts[position] : starts[position + 1]]


def _readable_slices(
    view: FileSystemView, written: Iterable[FileSlice]
) -> dict[FileGroupId, FileSlice]:
    """Return the slices that queries read, for written file groups in a pending compaction."""
    compacted = {current.group for current in written} & view.compactions.keys()
    readable = {name: view.groups[name].for_readers for name in compacted}
    return {name: found for name, found in readable.items() if found is not None}
