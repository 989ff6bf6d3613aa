"""Reads and writes the hash rings of a table."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from lakemark.errors import Refused
from lakemark.index.hash_ring import (
    COMPLETED_SUFFIX,
    FIRST_INSTANT,
    RING_SUFFIX,
    RINGS_FOLDER,
    HashRing,
    ring_path,
    rings_folder,
)
from lakemark.model.file_names import BaseFileName
from lakemark.model.instant import Instant
from lakemark.storage.storage import AlreadyExists, Storage
from lakemark.timeline.prepared import prepared_path
from lakemark.timeline.timeline import Timeline


def load_ring(storage: Storage, partition_path: str, timeline: Timeline) -> HashRing | None:
    """Return the valid hash ring of a partition; None if the partition has no ring.

    A resize writes the next ring before it completes, so a ring is valid only if its resize has
    completed. A resize may also write its ring after another writer has removed the resize, if it
    was paused. Such a ring is skipped, as Apache Hudi does if no file group of the ring has a base
    file (``ConsistentBucketIndexUtils.recommitMetadataFile``).

    Args:
        storage: the table's root.
        partition_path: the partition.
        timeline: the table's timeline.

    Raises:
        Refused: the newest ring belongs to a clustering that was rolled back, but Apache Hudi may
            use the ring nevertheless.
        CorruptData: the newest valid file is damaged.
    """
    names = {info.name for info in storage.list_folder(rings_folder(partition_path))[1]}
    for instant in sorted(_instants(names), reverse=True):
        path = ring_path(partition_path, instant)
        if _has_completed(instant, names, timeline):
            return HashRing.parse(storage.read(path), path)
        if timeline.find(instant) is None and _is_trusted(storage, path, instant, names):
            raise _left_behind(path, instant)
    return None


def write_ring(storage: Storage, ring: HashRing, pending: Instant) -> None:
    """Store the ring of a resize that is about to be published, or store it again.

    Each attempt at a resize writes the same ring, because the plan contains its new buckets. The
    ring is created from prepared content (``lakemark.timeline.prepared``). So a paused process
    cannot create it after another process has rolled the resize back, or has taken over the lock.

    Args:
        storage: the table's root.
        ring: the ring.
        pending: the inflight instant of this process's attempt.

    Raises:
        NotFound: another process has deleted the prepared content.
        AlreadyExists: there is a ring of this resize with other buckets.
    """
    digest = hashlib.sha256(ring.partition_path.encode()).hexdigest()[:16]
    prepared = f"{prepared_path(pending)}.ring-{digest}"
    storage.put(prepared, ring.to_json(), may_be_cut=True)
    storage.publish(prepared, ring_path(ring.partition_path, ring.instant))
    storage.delete([prepared])


def mark_completed(storage: Storage, ring: HashRing) -> None:
    """Store the marker by which Apache Hudi finds the ring after the resize was archived.

    Apache Hudi creates a missing marker if the resize is still on the active timeline.
    """
    folder = rings_folder(ring.partition_path)
    storage.put(f"{folder}/{ring.instant}{COMPLETED_SUFFIX}", b"")


def delete_rings(storage: Storage, instant: str) -> None:
    """Delete the hash rings of a clustering that is being undone, in all partitions.

    Apache Hudi trusts the marker of a ring whatever the timeline says, so markers are deleted
    first. A crash in between leaves a rollback or a restore that is pending, and is executed again.
    """
    found = [one.path for one in storage.list_tree(RINGS_FOLDER)]
    for suffix in (COMPLETED_SUFFIX, RING_SUFFIX):
        gone = [path for path in found if path.endswith(f"/{instant}{suffix}")]
        if gone:
            storage.delete(gone)


def delete_rings_before(storage: Storage, end: str) -> None:
    """Delete the hash rings of all clusterings before a time; partitions keep their first ring.

    Markers are deleted first; see ``delete_rings``.
    """
    found = storage.list_tree(RINGS_FOLDER)
    for suffix in (COMPLETED_SUFFIX, RING_SUFFIX):
        named = [(one.path, one.name.removesuffix(suffix)) for one in found if suffix in one.name]
        storage.delete([path for path, instant in named if FIRST_INSTANT < instant < end])


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

    If the partitions began with different numbers, it is the number of the partition whose ring was
    written last.

    Raises:
        CorruptData: the ring that is read is damaged.
    """
    rings = [one for one in storage.list_tree(RINGS_FOLDER) if one.path.endswith(RING_SUFFIX)]
    if not rings:
        return None
    newest = max(rings, key=lambda one: (one.modified_at, one.path)).path
    return HashRing.parse(storage.read(newest), newest).first_count


def _instants(names: Iterable[str]) -> list[str]:
    return [n.removesuffix(RING_SUFFIX) for n in names if n.endswith(RING_SUFFIX)]


def _has_completed(instant: str, names: Collection[str], timeline: Timeline) -> bool:
    """Return whether the clustering that wrote a ring has completed.

    The timeline decides. If the clustering was archived, its marker decides, or the archive if no
    marker was written. A marker alone is not enough, because a rollback by Apache Hudi leaves it.
    """
    if instant == FIRST_INSTANT:
        return True
    if timeline.find(instant) is not None or not timeline.is_archived(instant):
        return timeline.is_committed(instant)
    return f"{instant}{COMPLETED_SUFFIX}" in names or timeline.archived_time(instant) is not None


def _is_trusted(storage: Storage, path: str, instant: str, names: Collection[str]) -> bool:
    """Return whether Apache Hudi may use the ring of an instant that is not on the timeline.

    It trusts the marker. Without a marker, it looks for a base file of any bucket of the ring.
    """
    if f"{instant}{COMPLETED_SUFFIX}" in names:
        return True
    ring = HashRing.parse(storage.read(path), path)
    files = (BaseFileName.parse(info.name) for info in storage.list_folder(ring.partition_path)[1])
    return not {one.file_id for one in files if one is not None}.isdisjoint(ring.file_ids)


def _left_behind(path: str, instant: str) -> Refused:
    return Refused(
        f"{path} has the buckets of clustering {instant}, which was rolled back; Apache Hudi would "
        "write to these buckets, and other writers to the earlier ones, so that some keys would "
        f"have two rows; delete the file {instant}{COMPLETED_SUFFIX} next to it, if there is one, "
        "then this file, and write again"
    )
