"""Reads the hash rings of a table, and creates the first ring of a new partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lakemark.index.hash_ring import (
    COMPLETED_SUFFIX,
    FIRST_INSTANT,
    RING_SUFFIX,
    RINGS_FOLDER,
    HashRing,
    ring_path,
    rings_folder,
)
from lakemark.storage.storage import AlreadyExists, Storage
from lakemark.timeline.timeline import Timeline


def load_ring(
    storage: Storage, partition_path: str, timeline: Timeline, file_ids: Collection[str]
) -> HashRing | None:
    """Return the valid hash ring of a partition; None if nobody has written to the partition.

    A clustering writes the next ring before it completes. So a ring is valid only if its clustering
    has completed. The marker shows this, or the timeline, or, if the clustering was archived before
    anybody created the marker, a file group of the ring.

    Args:
        storage: the table's root.
        partition_path: the partition.
        timeline: the table's timeline.
        file_ids: the file ids of the partition.

    Raises:
        CorruptData: the newest valid file is damaged.
    """
    names = {info.name for info in storage.list_folder(rings_folder(partition_path))[1]}

    def is_valid(instant: str) -> bool:
        if instant == FIRST_INSTANT or f"{instant}{COMPLETED_SUFFIX}" in names:
            return True
        found = timeline.find(instant)
        return found is not None and found.is_completed

    for instant in sorted(_instants(names), reverse=True):
        ring = _read(storage, partition_path, instant)
        is_archived = timeline.find(instant) is None and not {*ring.file_ids}.isdisjoint(file_ids)
        if is_valid(instant) or is_archived:
            return ring
    return None


def create_ring(storage: Storage, ring: HashRing) -> HashRing:
    """Store the first ring of a partition, and return the ring that is then stored.

    Another writer may create its ring at the same time, with another number of buckets.
    """
    path = ring_path(ring.partition_path, ring.instant)
    try:
        storage.create(path, ring.to_json())
    except AlreadyExists:
        return HashRing.parse(storage.read(path), path)
    return ring


def first_count_of(storage: Storage) -> int | None:
    """Return the number of buckets that new partitions get; None without consistent hashing.

    Raises:
        CorruptData: the ring that is read is damaged.
    """
    rings = (one.path for one in storage.list_tree(RINGS_FOLDER))
    newest = max((path for path in rings if path.endswith(RING_SUFFIX)), default=None)
    return None if newest is None else HashRing.parse(storage.read(newest), newest).first_count


def _instants(names: Iterable[str]) -> list[str]:
    return [n.removesuffix(RING_SUFFIX) for n in names if n.endswith(RING_SUFFIX)]


def _read(storage: Storage, partition_path: str, instant: str) -> HashRing:
    path = ring_path(partition_path, instant)
    return HashRing.parse(storage.read(path), path)
