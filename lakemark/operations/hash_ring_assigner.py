"""Assigns the changes of a batch to file groups, in a table with consistent hashing.

The hash ring of a partition decides the file group of each key. The first commit to a partition
creates its ring. A clustering can split and merge buckets, so the rings are read for each commit,
and compared again before the commit is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig, Refused, WriteConflict
from lakemark.index.hash_ring import HashRing
from lakemark.index.ring_files import create_ring, load_ring
from lakemark.index.stored_rows import StoredRows
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import (
    AssignedChanges,
    AssignmentBuilder,
    PlacedBuckets,
    rows_by_partition,
)
from lakemark.operations.open_table import OpenTable
from lakemark.storage.storage import Storage
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.partitioner import Bucket


@dataclass(frozen=True)
class HashRings:
    """The hash rings of some partitions; can be pickled.

    Attributes:
        rings: the ring of each partition.
        key_fields: the fields of the record key, which are all hashed.
    """

    rings: Mapping[str, HashRing]
    key_fields: tuple[str, ...]

    def bucket_ids(
        self, record_keys: pa.ChunkedArray, partition_paths: pa.ChunkedArray
    ) -> npt.NDArray[np.int32]:
        """See ``KeyHash.bucket_ids``."""
        numbers = np.zeros(len(record_keys), np.int32)
        for path, rows in rows_by_partition(pa.table({PARTITION_PATH: partition_paths})):
            keys = record_keys.take(pa.array(rows))
            numbers[rows] = self.rings[path].buckets_of_keys(keys, self.key_fields)
        return numbers


@dataclass
class HashRingAssigner:
    """Assigns the changes of one commit to file groups; an ``Index``.

    Attributes:
        storage: the table's root.
        view: the file groups on which the commit is based.
        timeline: the timeline on which the commit is based.
        key_fields: the fields of the record key, which are all hashed.
        first_count: the number of buckets of a new partition.
    """

    storage: Storage
    view: FileSystemView
    timeline: Timeline
    key_fields: tuple[str, ...]
    first_count: int
    _rings: dict[str, HashRing] = field(default_factory=dict, init=False)

    def assign(self, changes: pa.Table) -> AssignedChanges:
        """See ``Index.assign``. Only hash rings are read, because the hash of a key decides."""
        keys, paths = changes.column(RECORD_KEY), changes.column(PARTITION_PATH)
        placed = self.place(lambda: pc.unique(paths).to_pylist())
        return AssignedChanges(placed.index.bucket_ids(keys, paths), placed.assignment)

    def place(self, find_paths: Callable[[], Iterable[str]]) -> PlacedBuckets:
        """See ``Index.place``. A partition without a ring gets one."""
        assignment = AssignmentBuilder.of(self.view, 0)
        rings: dict[str, HashRing] = {}
        for path in find_paths():
            rings[path] = ring = self._ring_of(path)
            current = _slices_by_file_id(self.view, path)
            for number, file_id in enumerate(ring.file_ids):
                self._check_not_replaced(FileGroupId(path, file_id))
                assignment.set_group(Bucket(path, number), current.get(file_id, file_id))
        return PlacedBuckets(HashRings(rings, self.key_fields), assignment.build().assignment)

    def check_unchanged(self, timeline: Timeline) -> None:
        """See ``Index.check_unchanged``. A clustering may have split or merged buckets."""
        for path, used in self._rings.items():
            now = load_ring(self.storage, path, timeline)
            if now != used:
                message = f"a clustering has changed the buckets of partition {path!r}"
                raise WriteConflict(message)

    def _check_not_replaced(self, group: FileGroupId) -> None:
        """Check that queries would read rows that are written to a file group.

        Apache Hudi replaces the file groups of a partition that it overwrites or deletes, but not
        the ring of the partition.
        """
        if group in self.view.replaced:
            message = (
                f"{group}, which the hash ring of its partition names, was replaced by "
                f"{self.view.replaced[group]}, so that no query would find rows written to it; "
                "restore the table to an earlier commit, or write to another table"
            )
            raise Refused(message)

    def _ring_of(self, path: str) -> HashRing:
        ring = load_ring(self.storage, path, self.timeline)
        if ring is None:
            ring = create_ring(self.storage, HashRing.first(path, self.first_count))
        self._rings[path] = ring
        return ring


def check_rings(table: OpenTable, sample: Iterable[StoredRows]) -> None:
    """Check that sampled rows are in the file groups that the hash rings give.

    Args:
        table: the open table, without a fixed bucket count.
        sample: rows of the table.

    Raises:
        InvalidConfig: a row is in another file group, for example because only some fields of the
            key are hashed (``hoodie.bucket.index.hash.field``).
        CorruptData: a stored ring is damaged.
    """
    if table.first_ring_count is None:
        return
    key_fields = table.properties.record_key_fields
    for stored in sample:
        group = stored.file_slice.group
        ring = load_ring(table.storage, group.partition_path, table.timeline)
        keys = stored.rows[RECORD_KEY]
        found = (
            []
            if ring is None
            else [ring.file_ids[n] for n in ring.buckets_of_keys(keys, key_fields)]
        )
        if any(one != group.file_id for one in found) or ring is None:
            message = (
                f"rows of file group {group} of table {table.location.url} belong to other buckets "
                "of its hash ring; lakemark hashes all fields of the record key; if the table "
                "hashes other fields (hoodie.bucket.index.hash.field), write with Apache Hudi"
            )
            raise InvalidConfig(message)


def _slices_by_file_id(view: FileSystemView, path: str) -> dict[str, FileSlice]:
    found: Iterable[tuple[str, FileSlice | None]] = (
        (group.id.file_id, group.for_writers) for group in view.file_groups(path)
    )
    return {file_id: current for file_id, current in found if current is not None}
