"""The protocol of indexes. An index decides to which file group each change of a commit is written.

A hash index computes the bucket of a change from its key. So workers can do this, and the buckets
are known before the changes are: a bucket index has the same number of buckets for good
(``bucket_assigner``), and with consistent hashing each partition has a ring of buckets, which
clusterings change (``hash_ring_assigner``). In any other table, the driver looks up which file
group contains a key (``lookup_assigner``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import pyarrow as pa

from lakemark.operations.assigned_changes import AssignedChanges, PlacedBuckets
from lakemark.timeline.timeline import Timeline


class Index(Protocol):
    """Assigns the changes of one commit to file groups, as of the timeline on which it is based."""

    def assign(self, changes: pa.Table) -> AssignedChanges:
        """Return the file group of each change.

        If a file of the partition of a change contains its key, this is the file group of this
        file. All changes of a new key in one partition get the same file group.

        Args:
            changes: all changes of the commit, at least one, with the columns for key, path and
                kind.

        Raises:
            SnapshotChanged: a file of the table was deleted.
            CorruptData: a file is damaged.
            Refused: several file groups of a partition contain the same key; or an index of whole
                tables has a key in another partition; or queries do not read the file group of a
                key, because another writer replaced it.
        """
        ...

    def place(self, find_paths: Callable[[], Iterable[str]]) -> PlacedBuckets | None:
        """Return the buckets of changes that are not known yet; None if their keys must be known.

        Args:
            find_paths: finds the distinct partition paths of the changes. It is called only if the
                partitions have buckets of their own.

        Raises:
            CorruptData, Refused: as for ``assign``.
        """
        ...

    def check_unchanged(self, timeline: Timeline) -> None:
        """Check, under the table's lock, that the changes would get the same buckets now.

        Args:
            timeline: the timeline, just loaded.

        Raises:
            WriteConflict: another writer has changed the buckets of a partition.
        """
        ...
