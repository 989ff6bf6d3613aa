"""What a commit's workers need to know of the table that they write to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from table.index.bucket import groups_by_bucket
from table.model.file_slice import FileSlice
from table.write.file_group_write import FileGroupWrite
from table.write.partitioner import Bucket


@dataclass(frozen=True)
class Placement:
    """The latest file slice of every bucket that has one, and the partitions there are."""

    slices: Mapping[Bucket, FileSlice]
    partitions: frozenset[str]

    @classmethod
    def of(
        cls, slices: Iterable[FileSlice], partitions: frozenset[str], bucket_count: int
    ) -> Placement:
        """The placement of a table with so many buckets in each partition.

        Raises:
            InvalidConfig: a file group was made with more buckets, or without a bucket index.
        """
        by_group = {file_slice.group: file_slice for file_slice in slices}
        placed = {
            Bucket(*place): by_group[group]
            for place, group in groups_by_bucket(by_group, bucket_count).items()
        }
        return cls(placed, partitions)

    def task(self, bucket: Bucket) -> FileGroupWrite:
        """What a worker is to write for one bucket."""
        is_new = bucket.partition_path not in self.partitions
        return FileGroupWrite(bucket, self.slices.get(bucket), is_new)
