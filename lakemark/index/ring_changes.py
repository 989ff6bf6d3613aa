"""Splits and merges the buckets of a hash ring.

A split divides the range of a bucket in the middle, again and again until there are as many parts
as wanted. A merge adds the ranges of adjacent buckets to that of the last one. Every bucket that
such a change writes gets a new file group, because the change replaces the file groups of the
buckets before. The new buckets of a resize are stored in its plan, in the extra metadata of each
group (``extra_metadata``):

clustering.group.partition     the partition
clustering.group.child.node    the new buckets in JSON
clustering.group.sequence.no   the number of resizes that the ring has had (``HashRing.resizes``)

Source: ``ConsistentBucketIdentifier.splitBucket``, ``mergeBucket``, ``initialize`` and
``BaseConsistentHashingBucketClusteringPlanStrategy`` of Apache Hudi 1.2.0, which always splits a
bucket into two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from lakemark.index.hash_ring import LARGEST_HASH, HashRing, NodeTag, nodes_to_json
from lakemark.model.clustering_plan import NEW_BUCKETS, RESIZED_PARTITION

_SEQUENCE = "clustering.group.sequence.no"

#: Returns the file id of a new bucket, without its last part ``-0``.
NewPrefix: TypeAlias = Callable[[], str]


@dataclass(frozen=True, slots=True)
class ChildBucket:
    """A change of a resize to one bucket.

    Attributes:
        largest_hash: the largest hash of the bucket.
        file_id_prefix: the new file id of the bucket, without its last part ``-0``; None if the
            bucket is removed, so that the next bucket gets its hashes.
    """

    largest_hash: int
    file_id_prefix: str | None

    @property
    def tag(self) -> NodeTag:
        """The tag with which the bucket is stored."""
        return NodeTag.DELETE if self.file_id_prefix is None else NodeTag.REPLACE


@dataclass(frozen=True, slots=True)
class RingChange:
    """The changes of one group of a resize plan to the ring of its partition.

    Attributes:
        partition_path: the partition.
        resizes: the number of resizes that the ring has had, without this one.
        children: the changed buckets, along the ring.
    """

    partition_path: str
    resizes: int
    children: tuple[ChildBucket, ...]

    @classmethod
    def split(cls, ring: HashRing, number: int, parts: int, new_prefix: NewPrefix) -> RingChange:
        """Return the change that divides the range of a bucket.

        Args:
            ring: the ring.
            number: the position of the bucket in the ring.
            parts: the number of parts, a power of 2. A range with fewer hashes gets fewer parts.
            new_prefix: returns the file id prefix of a new bucket.
        """
        start, end = ring.largest_hashes[number - 1], ring.largest_hashes[number]
        children = (ChildBucket(largest, new_prefix()) for largest in _ends(start, end, parts))
        return cls(ring.partition_path, ring.resizes, tuple(children))

    @classmethod
    def merge(cls, ring: HashRing, numbers: Sequence[int], new_prefix: NewPrefix) -> RingChange:
        """Return the change that merges adjacent buckets.

        Args:
            ring: the ring.
            numbers: the positions of the buckets along the ring, at least two; the first bucket of
                the ring may follow the last one.
            new_prefix: returns the file id prefix of the new bucket.
        """
        count = len(ring.largest_hashes)
        assert len(numbers) >= 2, numbers
        assert all((one + 1) % count == other for one, other in pairwise(numbers)), numbers
        *removed, last = (ring.largest_hashes[number] for number in numbers)
        children = [*(ChildBucket(one, None) for one in removed), ChildBucket(last, new_prefix())]
        return cls(ring.partition_path, ring.resizes, tuple(children))

    @classmethod
    def parse(cls, extra_metadata: Mapping[str, str]) -> RingChange | None:
        """Return the change in the extra metadata of a group; None if it is not that of a resize.

        Raises:
            ValueError, KeyError, TypeError: the metadata has not the form of a resize.
        """
        text = extra_metadata.get(NEW_BUCKETS)
        if text is None:
            return None
        children = tuple(_child(node) for node in json.loads(text))
        if not children:
            message = "the plan has no new buckets"
            raise ValueError(message)
        return cls(extra_metadata[RESIZED_PARTITION], int(extra_metadata[_SEQUENCE]), children)

    def extra_metadata(self) -> dict[str, str]:
        """Return the extra metadata of the group."""
        nodes = ((one.largest_hash, one.file_id_prefix, one.tag) for one in self.children)
        return {
            RESIZED_PARTITION: self.partition_path,
            NEW_BUCKETS: nodes_to_json(nodes),
            _SEQUENCE: str(self.resizes),
        }

    @property
    def new_file_ids(self) -> tuple[str, ...]:
        """The ids of the file groups that the resize writes."""
        prefixes = (one.file_id_prefix for one in self.children)
        return tuple(f"{prefix}-0" for prefix in prefixes if prefix is not None)


def change_ring(ring: HashRing, changes: Iterable[RingChange], instant: str) -> HashRing:
    """Return the ring after a resize.

    Args:
        ring: the ring before.
        changes: the changes of all groups of the plan in the partition of the ring.
        instant: the requested time of the resize.

    Raises:
        ValueError: the plan was made for another ring: it removes a bucket that does not exist, or
            the ring has been resized since.
    """
    buckets = dict(zip(ring.largest_hashes, ring.file_id_prefixes, strict=True))
    for change in changes:
        if change.resizes != ring.resizes:
            message = f"the plan is for resize {change.resizes}, but {ring.resizes} have completed"
            raise ValueError(message)
        for child in change.children:
            if child.file_id_prefix is not None:
                buckets[child.largest_hash] = child.file_id_prefix
            elif buckets.pop(child.largest_hash, None) is None:
                message = f"there is no bucket with the largest hash {child.largest_hash}"
                raise ValueError(message)
    ordered = sorted(buckets.items())
    return HashRing(
        ring.partition_path,
        instant,
        tuple(largest for largest, _ in ordered),
        tuple(prefix for _, prefix in ordered),
        ring.first_count,
        ring.resizes + 1,
    )


def _ends(start: int, end: int, parts: int) -> Iterator[int]:
    """Yield the largest hashes of the parts of a range, whose own largest hash is the last one.

    Args:
        start: the largest hash of the bucket before. If it is not below ``end``, the range extends
            over the largest of all hashes.
        end: the largest hash of the bucket.
        parts: the number of parts.
    """
    middle = ((start + end + (0 if start < end else LARGEST_HASH + 1)) >> 1) & LARGEST_HASH
    if parts < 2 or middle in (start, end):
        yield end
        return
    yield from _ends(start, middle, parts // 2)
    yield from _ends(middle, end, parts // 2)


def _child(node: Mapping[str, object]) -> ChildBucket:
    tag, prefix = NodeTag(str(node["tag"])), node["fileIdPrefix"]
    is_removed = tag is NodeTag.DELETE
    largest = node["value"]
    if tag is NodeTag.NORMAL or not isinstance(largest, int) or not (is_removed or prefix):
        message = f"the plan has a bucket {node}"
        raise ValueError(message)
    return ChildBucket(largest, None if is_removed else str(prefix))
