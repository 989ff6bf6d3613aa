"""Plans which buckets of a table with consistent hashing are split, and which are merged.

The size of a bucket is that of its base file and logs. A bucket above a limit is split into 2, 4, 8
or 16 buckets, so that no part is expected to be above the limit. Adjacent buckets below another
limit are merged, until the merged buckets together reach this limit. They may include buckets that
have no file yet. A partition never gets fewer buckets than it had at first. Each bucket is in at
most one group of a plan.

Source: ``BaseConsistentHashingBucketClusteringPlanStrategy`` of Apache Hudi 1.2.0. There, a split
always makes two buckets, and a bucket without a file is not merged. The limits are
``hoodie.bucket.index.split.threshold`` and ``hoodie.bucket.index.merge.threshold`` times
``hoodie.parquet.max.file.size`` (240 MiB and 24 MiB by default; here, a bucket is split earlier),
and the number of buckets has bounds of its own.
"""

from __future__ import annotations

import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakemark.errors import InvalidConfig
from lakemark.index.hash_ring import HashRing
from lakemark.index.ring_changes import NewPrefix, RingChange
from lakemark.model.clustering_plan import ClusteringGroup, ClusteringPlan
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.view.file_system_view import FileSystemView

_MIB = 1 << 20

#: The class of Apache Hudi that executes the plans.
_STRATEGY = (
    "org.apache.hudi.client.clustering.run.strategy."
    "SparkConsistentBucketClusteringExecutionStrategy"
)

#: If a bucket is split inline, the next batch waits. On two cores, 99 MiB took 4.2 s; the 240 MiB
#: of Apache Hudi take more than twice as long.
SPLIT_ABOVE_BYTES = 96 * _MIB

#: The limit that Apache Hudi has by default.
MERGE_BELOW_BYTES = 24 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizePolicy:
    """Which buckets are split or merged.

    Attributes:
        split_above_bytes: a bucket that is larger is split.
        merge_below_bytes: adjacent buckets that are smaller are merged; 0 to merge none.
        max_parts: a power of 2: into how many buckets one bucket is split at most.
        max_bytes: the total size of the buckets that one plan rewrites, except that a plan may
            always rewrite one group; None for no limit.
    """

    split_above_bytes: int = SPLIT_ABOVE_BYTES
    merge_below_bytes: int = MERGE_BELOW_BYTES
    max_parts: int = 16
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.split_above_bytes < 1 or self.merge_below_bytes < 0:
            message = (
                f"buckets above {self.split_above_bytes} bytes are to be split and below "
                f"{self.merge_below_bytes} bytes merged; choose a positive size, and 0 or more"
            )
            raise InvalidConfig(message)
        if 4 * self.merge_below_bytes > self.split_above_bytes:
            message = (
                f"buckets below {self.merge_below_bytes} bytes would be merged, and split again "
                f"above {self.split_above_bytes} bytes; choose a limit for splits that is at least "
                "4 times the limit for merges"
            )
            raise InvalidConfig(message)


def plan_resize(
    view: FileSystemView,
    first_count: int,
    load_ring: Callable[[str], HashRing | None],
    policy: ResizePolicy,
    new_prefix: NewPrefix = lambda: str(uuid.uuid4()),
) -> ClusteringPlan | None:
    """Return a plan that splits and merges buckets; None if no bucket needs it.

    Buckets in a pending compaction are kept as they are, and so are all buckets of a partition with
    a pending clustering. A ring is loaded only if the sizes of the buckets may require a change.

    Args:
        view: the file slices.
        first_count: the number of buckets that a partition has at first.
        load_ring: returns the hash ring of a partition; None if it has none.
        policy: the limits.
        new_prefix: returns the file id of a new bucket, without its last part ``-0``.
    """
    groups: list[_Group] = []
    for path, slices in _slices_by_partition(view).items():
        if not _may_change(list(slices.values()), first_count, policy):
            continue
        ring = load_ring(path)
        if ring is not None:
            groups += _Partition.of(ring, slices, view, policy).groups(new_prefix)
    chosen = _up_to(groups, policy.max_bytes)
    if not chosen:
        return None
    planned = tuple(
        ClusteringGroup.of(one.slices, len(one.change.new_file_ids), one.change.extra_metadata())
        for one in chosen
    )
    return ClusteringPlan(input_groups=planned, strategy=_STRATEGY)


@dataclass(frozen=True, slots=True)
class _Group:
    """File slices whose rows are rewritten into the buckets of a change."""

    slices: tuple[FileSlice, ...]
    change: RingChange

    @property
    def bytes(self) -> int:
        return sum(one.size_bytes for one in self.slices)


@dataclass
class _Partition:
    """The buckets of one partition, while it is planned.

    Attributes:
        ring: the hash ring.
        slices: the file slice of each bucket that may be resized, by its position in the ring.
        empty: the positions of the buckets that have no file yet.
        policy: the limits.
    """

    ring: HashRing
    slices: Mapping[int, FileSlice]
    empty: frozenset[int]
    policy: ResizePolicy
    _taken: set[int] = field(default_factory=set, init=False)
    _merged: int = field(default=0, init=False)

    @classmethod
    def of(
        cls,
        ring: HashRing,
        slices: Mapping[str, FileSlice],
        view: FileSystemView,
        policy: ResizePolicy,
    ) -> _Partition:
        ids = ring.file_ids
        numbered = {n: slices[one] for n, one in enumerate(ids) if one in slices}
        groups = (view.groups.get(FileGroupId(ring.partition_path, one)) for one in ids)
        empty = (n for n, group in enumerate(groups) if group is None or not group.slices)
        return cls(ring, numbered, frozenset(empty), policy)

    def groups(self, new_prefix: NewPrefix) -> Iterator[_Group]:
        """Yield the groups to split, the largest first, and then the groups to merge."""
        for number in sorted(self.slices, key=self._bytes, reverse=True):
            parts = _parts_of(self._bytes(number), self.policy)
            change = RingChange.split(self.ring, number, parts, new_prefix)
            if len(change.children) > 1:
                yield self._take([number], change)
        for number in range(len(self.ring.file_ids)):
            numbers = self._mergeable_from(number)
            if len(numbers) > 1 and not self.empty.issuperset(numbers):
                yield self._take(numbers, RingChange.merge(self.ring, numbers, new_prefix))

    def _take(self, numbers: Sequence[int], change: RingChange) -> _Group:
        self._taken.update(numbers)
        self._merged += max(0, len(numbers) - len(change.new_file_ids))
        return _Group(tuple(self.slices[n] for n in numbers if n in self.slices), change)

    def _mergeable_from(self, number: int) -> list[int]:
        """Return a bucket and the buckets after it along the ring that are merged with it."""
        if not self._is_small(number):
            return []
        numbers, total = [number], self._bytes(number)
        slots = len(self.ring.file_ids) - self._merged - self.ring.first_count
        while total <= self.policy.merge_below_bytes and len(numbers) <= slots:
            following = (numbers[-1] + 1) % len(self.ring.file_ids)
            if following in numbers or not self._is_small(following):
                break
            numbers.append(following)
            total += self._bytes(following)
        return numbers

    def _is_small(self, number: int) -> bool:
        is_known = number in self.slices or number in self.empty
        is_free = is_known and number not in self._taken
        return is_free and self._bytes(number) <= self.policy.merge_below_bytes

    def _bytes(self, number: int) -> int:
        return 0 if number in self.empty else self.slices[number].size_bytes


def _parts_of(size_bytes: int, policy: ResizePolicy) -> int:
    """Return the power of 2 into which a bucket is divided; 1 if it is not above the limit."""
    if size_bytes <= policy.split_above_bytes:
        return 1
    halvings = math.ceil(math.log2(size_bytes / policy.split_above_bytes))
    return min(1 << halvings, policy.max_parts)


def _slices_by_partition(view: FileSystemView) -> dict[str, dict[str, FileSlice]]:
    """Return the file slices that may be resized, by partition path and file id."""
    busy = {group.partition_path for group in view.clusterings}
    found: dict[str, dict[str, FileSlice]] = defaultdict(dict)
    for one in view.latest_slices():
        group = one.group
        if group.partition_path not in busy and group not in view.compactions:
            found[group.partition_path][group.file_id] = one
    return found


def _may_change(slices: Sequence[FileSlice], first_count: int, policy: ResizePolicy) -> bool:
    sizes = [one.size_bytes for one in slices]
    has_small = sum(size <= policy.merge_below_bytes for size in sizes) > 1
    has_large = any(size > policy.split_above_bytes for size in sizes)
    return has_large or (has_small and len(sizes) > first_count)


def _up_to(groups: Iterable[_Group], max_bytes: int | None) -> list[_Group]:
    """Return the first groups that together do not exceed the limit, or the first group."""
    chosen: list[_Group] = []
    for one in groups:
        size = sum(other.bytes for other in chosen) + one.bytes
        if not chosen or max_bytes is None or size <= max_bytes:
            chosen.append(one)
    return chosen
