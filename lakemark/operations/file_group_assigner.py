"""Assigns file groups to buckets, so that the workers of a commit know where to write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

from lakemark.index.bucket import (
    BucketIndex,
    groups_by_bucket,
    is_shared_file_id,
    shared_file_id,
)
from lakemark.index.key_search import SearchedGroup
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_group import FileGroup
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.file_group_write import FileGroupWrite
from lakemark.write.log_copies import NewBuckets
from lakemark.write.partitioner import Bucket


@dataclass(frozen=True, slots=True)
class SharedGroups:
    """The file groups that non-blocking writers create.

    Each of the writers begins the file group with a log, and the file ids do not depend on the
    writer. So if several writers create the file group of a bucket at the same time, it is one file
    group. A base file could not be shared, because a newer base file hides the rows of an older
    one.

    Attributes:
        instant: requested time of the commit.
        replaced: the replaced file groups whose file id a non-blocking writer may have chosen.
            Readers skip these file groups, so their file ids must not be used again.
    """

    instant: str
    replaced: frozenset[FileGroupId] = frozenset()

    @classmethod
    def of(cls, instant: str, replaced: Collection[FileGroupId]) -> SharedGroups:
        """Return the file groups that a commit may create.

        Args:
            instant: requested time of the commit.
            replaced: all replaced file groups of the table.
        """
        shared = (group for group in replaced if is_shared_file_id(group.file_id))
        return cls(instant, frozenset(shared))

    def create(self, bucket: Bucket) -> FileSlice:
        """Return the file slice of a new file group, which has no files yet."""
        ids = (shared_file_id(bucket.number, number) for number in count())
        groups = (FileGroupId(bucket.partition_path, name) for name in ids)
        return FileSlice(next(g for g in groups if g not in self.replaced), self.instant)


@dataclass(frozen=True)
class FileGroupAssignment:
    """The latest file slice of each bucket that has a file group, and the existing partitions.

    Attributes:
        slices: for each bucket, the file slice to which a commit writes.
        partitions: partitions that have a partition metafile; for a task, only those of its file
            groups.
        readable: for each file group with a pending compaction, the file slice that queries read.
            The slice in ``slices`` is the next one, which the compaction plan has opened.
        adding: with a lookup index, buckets of existing file groups that receive new keys.
        new_file_ids: with a lookup index, the file ids of the file groups to create.
        shared: the file groups that a non-blocking writer creates; None for any other writer.
        new_buckets: with consistent hashing, what will replace the buckets of a pending resize.
    """

    slices: Mapping[Bucket, FileSlice]
    partitions: frozenset[str]
    readable: Mapping[FileGroupId, FileSlice] = field(default_factory=dict)
    adding: frozenset[Bucket] = frozenset()
    new_file_ids: Mapping[Bucket, str] = field(default_factory=dict)
    shared: SharedGroups | None = None
    new_buckets: Mapping[Bucket, NewBuckets] = field(default_factory=dict)

    def task(self, bucket: Bucket) -> FileGroupWrite:
        """Return the task of the worker that writes one bucket."""
        is_new = bucket.partition_path not in self.partitions
        current = self.slices.get(bucket)
        if current is None and self.shared is not None:
            current = self.shared.create(bucket)
        readable = current and self.readable.get(current.group, current)
        return FileGroupWrite(
            bucket,
            current,
            is_new,
            readable,
            adds_keys=bucket in self.adding,
            new_file_id=self.new_file_ids.get(bucket),
            new_buckets=self.new_buckets.get(bucket),
        )

    def divide(
        self, tasks: int, tasks_of: Callable[[Bucket], Iterable[int]]
    ) -> list[FileGroupAssignment]:
        """Return for each task an assignment with only the buckets of this task (bucket index).

        Args:
            tasks: the number of tasks.
            tasks_of: returns the tasks that need a bucket.
        """
        slices: list[dict[Bucket, FileSlice]] = [{} for _ in range(tasks)]
        readable: list[dict[FileGroupId, FileSlice]] = [{} for _ in range(tasks)]
        for bucket, current in self.slices.items():
            for task in tasks_of(bucket):
                slices[task][bucket] = current
                if current.group in self.readable:
                    readable[task][current.group] = self.readable[current.group]
        return [
            FileGroupAssignment(
                some, frozenset(b.partition_path for b in some), of_queries, shared=self.shared
            )
            for some, of_queries in zip(slices, readable, strict=True)
        ]

    def groups_in(self, number: int) -> list[SearchedGroup]:
        """Return the file groups of one bucket number, in all partitions."""
        return self._groups_by_number.get(number, [])

    @cached_property
    def _groups_by_number(self) -> Mapping[int, list[SearchedGroup]]:
        """The file groups by bucket number, cached because every bucket of a batch needs them."""
        found: dict[int, list[SearchedGroup]] = defaultdict(list)
        for bucket, current in self.slices.items():
            readable = self.readable.get(current.group, current)
            found[bucket.number].append(SearchedGroup(readable, current))
        return found


class FileGroupAssigner:
    """Assigns file groups to the buckets of one table. Only changed file groups are updated."""

    def __init__(self) -> None:
        self._view = FileSystemView(Timeline(()))
        self._index: BucketIndex | None = None
        self._slices: dict[Bucket, FileSlice] = {}

    def assign(self, view: FileSystemView, index: BucketIndex) -> FileGroupAssignment:
        """Return the newest file slice of each bucket.

        Args:
            view: the latest file slices of the table.
            index: the bucket index of the table.

        Raises:
            InvalidConfig: a file group was created with more buckets, or without a bucket index.
        """
        changed = _changed_groups(self._view, view)
        known = self._slices
        if changed is None or index != self._index:
            known, changed = {}, view.file_groups()
        # File groups that no query reads are skipped. Such a group may be the second file group of
        # its bucket, whose writer died or is still writing.
        read = [(group.id, group.for_writers) for group in changed if group.for_writers]
        unread = {group.id for group in changed if not group.for_writers}
        slices = dict(known)
        if unread:
            slices = {bucket: one for bucket, one in slices.items() if one.group not in unread}
        buckets = groups_by_bucket([name for name, _ in read], index.count_in)
        for bucket, (_, current) in zip(buckets, read, strict=True):
            slices[Bucket(*bucket)] = current
        self._view, self._index, self._slices = view, index, slices
        pending = (view.groups[name] for name in view.compactions if name in view.groups)
        readable = {group.id: group.for_readers for group in pending if group.for_readers}
        return FileGroupAssignment(slices, view.partitions, readable)


def _changed_groups(before: FileSystemView, after: FileSystemView) -> list[FileGroup] | None:
    """Return the changed file groups; None if file groups were added, removed or replaced.

    Both views contain the same objects for unchanged groups, in the same order.
    """
    if len(before.groups) != len(after.groups) or before.replaced != after.replaced:
        return None
    pairs = zip(before.groups.values(), after.groups.values(), strict=True)
    changed = [(old, new) for old, new in pairs if old is not new]
    if any(old.id != new.id for old, new in changed):
        return None
    return [new for _, new in changed if new.id not in after.replaced]
