"""Assigns the changes of a batch to file groups, in a table with a bucket index."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from lakemark.index.bucket import BucketIndex
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import AssignedChanges, PlacedBuckets
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class BucketAssigner:
    """Assigns the changes of one commit to file groups; an ``Index``.

    Attributes:
        index: decides the bucket of each key.
        assignment: the file group of each bucket.
    """

    index: BucketIndex
    assignment: FileGroupAssignment

    def assign(self, changes: pa.Table) -> AssignedChanges:
        """See ``Index.assign``. No file is read, because the hash of a key decides."""
        keys, paths = changes.column(RECORD_KEY), changes.column(PARTITION_PATH)
        return AssignedChanges(self.index.bucket_ids(keys, paths), self.assignment)

    def place(self, find_paths: Callable[[], Iterable[str]]) -> PlacedBuckets:
        """See ``Index.place``. The paths are not needed."""
        return PlacedBuckets(self.index, self.assignment)

    def check_unchanged(self, timeline: Timeline) -> None:
        """See ``Index.check_unchanged``. The writer itself compares the bucket counts.

        They are settings of the writer, which must be opened again if they have changed.
        """
