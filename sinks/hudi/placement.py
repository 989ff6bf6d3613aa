"""What a commit's workers need to know of the table that they write to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from table.index.bucket import groups_by_bucket
from table.model.file_slice import FileGroupId, FileSlice
from table.write.file_group_write import FileGroupWrite
from table.write.partitioner import Bucket


@dataclass(frozen=True)
class Placement:
    """The latest file slice of every bucket that has one, and the partitions there are.

    Attributes:
        slices: what is added to.
        partitions: those that have their metafile.
        readable: the slices of groups that are read from more than that: a pending compaction
            opened an empty slice of theirs.
    """

    slices: Mapping[Bucket, FileSlice]
    partitions: frozenset[str]
    readable: Mapping[FileGroupId, FileSlice] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        slices: Iterable[FileSlice],
        partitions: frozenset[str],
        bucket_count: int,
        readable: Iterable[FileSlice] = (),
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
        return cls(placed, partitions, {s.group: s for s in readable})

    def task(self, bucket: Bucket) -> FileGroupWrite:
        """What a worker is to write for one bucket."""
        is_new = bucket.partition_path not in self.partitions
        current = self.slices.get(bucket)
        readable = current and self.readable.get(current.group, current)
        return FileGroupWrite(bucket, current, is_new, readable)
