"""Finds how a commit changes the record index, and that no key gets a second location.

The workers that write the files of a commit collect the keys that each file adds to its file group
or removes from it (``KeyChanges``). A key is unique in the whole table or, in a partitioned index,
in its partition. So a commit must not add a key that another writer has added there meanwhile.
Source: ``convertMetadataToRecordIndexRecords`` of
``HoodieTableMetadataUtil``, Apache Hudi 1.2.0, where the index then keeps one of the two locations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import Refused, WriteConflict
from lakemark.metadata.partition_shards import PartitionedChanges, count_new_groups
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.record_index import RecordIndex
from lakemark.metadata.record_index_records import KeysOfGroup, encode_locations
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import FileGroupId
from lakemark.model.key_changes import KeyChanges
from lakemark.timeline.clock import TimelineClock

_NO_KEYS = pa.array([], pa.string())


#: Returns the current locations of keys.
Locate: TypeAlias = Callable[[pa.Array], pa.Table]


@dataclass(frozen=True, slots=True)
class RecordIndexCommit:
    """Encodes the changes of one commit to the record index.

    Attributes:
        instant: requested time of the commit.
        clock: the clock of the table.
        shard_counts: for a partitioned index, the number of its file groups for each partition that
            has any; None for an index of the whole table.
        list_ids: returns the ids of all stored file groups of the index, also those of other
            writers.
    """

    instant: str
    clock: TimelineClock
    shard_counts: Mapping[str, int] | None
    list_ids: Callable[[], Iterable[str]]

    def changes(
        self, stats: Sequence[WriteStat], index: RecordIndex | None
    ) -> RecordChanges | PartitionedChanges:
        """Return the changes of a commit of rows.

        Args:
            stats: the files of the commit, and the file groups that it replaces with other rows.
            index: the index as of now; None if no other writer has changed the table since the keys
                of the commit were looked up.

        Raises:
            WriteConflict: another writer has added one of the keys; or the index was created after
                the writer of a file had begun.
            Refused: the commit adds a key to two file groups.
        """
        if self.shard_counts is None:
            return self._changes(stats, None if index is None else index.lookup)
        return self._partitioned(
            {
                path: self._changes(some, None if index is None else _within(index, path))
                for path, some in _by_path(stats).items()
            }
        )

    def moves(self, stats: Sequence[WriteStat]) -> RecordChanges | PartitionedChanges:
        """Return the changes of a clustering, whose keys all have rows in the table already.

        Other writers cannot have added or moved the keys meanwhile, because a commit to the
        replaced file groups conflicts with the clustering.

        Args:
            stats: the files of the clustering.

        Raises:
            WriteConflict: the index was created after the writer of a file had begun.
            Refused: a key has rows in two of the files.
        """
        if self.shard_counts is None:
            return self._moves(stats)
        return self._partitioned(
            {path: self._moves(some) for path, some in _by_path(stats).items()}
        )

    def _partitioned(self, by_path: Mapping[str, RecordChanges]) -> PartitionedChanges:
        counts = self.shard_counts or {}
        return PartitionedChanges(by_path, counts, count_new_groups(by_path, counts, self.list_ids))

    def _changes(self, stats: Sequence[WriteStat], locate: Locate | None) -> RecordChanges:
        """Return the changes among which a key is unique: those of the table or of a partition."""
        changes = [(_group_of(stat), _collected(stat)) for stat in stats]
        added = [self._keys(group, one.added) for group, one in changes if len(one.added)]
        removed = [self._keys(group, one.removed) for group, one in changes]
        if locate is not None:
            located = locate(pc.unique(_concat(one.keys for one in [*added, *removed])))
            removed = [_only_here(one, located) for one in removed]
            _check_new(added, removed, located)
        gone = pc.unique(_concat(one.keys for one in removed))
        if len(gone):
            new = _concat(one.keys for one in added)
            gone = gone.filter(pc.invert(pc.is_in(gone, value_set=new)))
        return self._encode(added, gone)

    def _moves(self, stats: Sequence[WriteStat]) -> RecordChanges:
        moved = [self._keys(_group_of(stat), _collected(stat).added) for stat in stats]
        return self._encode(moved, _NO_KEYS)

    def _encode(self, added: Sequence[KeysOfGroup], removed: pa.Array) -> RecordChanges:
        changes = encode_locations(added, removed, self.clock)
        _check_distinct(changes.written.keys)
        return changes

    def _keys(self, group: FileGroupId, keys: pa.Array) -> KeysOfGroup:
        return KeysOfGroup(group, self.instant, keys)


def _within(index: RecordIndex, path: str) -> Locate:
    return lambda keys: index.lookup(keys, [path])


def _by_path(stats: Iterable[WriteStat]) -> dict[str, list[WriteStat]]:
    by_path: defaultdict[str, list[WriteStat]] = defaultdict(list)
    for stat in stats:
        by_path[stat.partition_path or ""].append(stat)
    return by_path


def _group_of(stat: WriteStat) -> FileGroupId:
    return FileGroupId(stat.partition_path or "", stat.file_id)


def _collected(stat: WriteStat) -> KeyChanges:
    if stat.key_changes is None:
        message = (
            f"the table has a record index, which was created after the commit with "
            f"{stat.path or stat.file_id} began, so that its keys were not collected; write the "
            "batch again"
        )
        raise WriteConflict(message)
    return stat.key_changes


def _only_here(removed: KeysOfGroup, located: pa.Table) -> KeysOfGroup:
    """Return the removed keys that the index locates in this file group."""
    here = located.filter(
        pc.and_(
            pc.equal(located["partition_path"], removed.group.partition_path),
            pc.equal(located["file_id"], removed.group.file_id),
        )
    )
    known = here["record_key"].combine_chunks()
    return removed._replace(keys=removed.keys.filter(pc.is_in(removed.keys, value_set=known)))


def _check_new(
    added: Iterable[KeysOfGroup], removed: Iterable[KeysOfGroup], located: pa.Table
) -> None:
    gone = _concat(one.keys for one in removed)
    kept = located.filter(pc.invert(pc.is_in(located["record_key"], value_set=gone)))
    for one in added:
        clashing = kept.filter(
            pc.and_(
                pc.is_in(kept["record_key"], value_set=one.keys),
                pc.or_(
                    pc.not_equal(kept["partition_path"], one.group.partition_path),
                    pc.not_equal(kept["file_id"], one.group.file_id),
                ),
            )
        )
        if clashing.num_rows:
            row = clashing.slice(0, 1).to_pylist()[0]
            message = (
                f"another writer has added record key {row['record_key']!r} to partition "
                f"{row['partition_path']!r} meanwhile; write the batch again"
            )
            raise WriteConflict(message)


def _check_distinct(keys: pa.BinaryArray) -> None:
    """Check that no key occurs twice among keys in ascending order."""
    at = pc.index(pc.equal(keys[1:], keys[:-1]), value=True).as_py()
    if at >= 0:
        message = (
            f"the commit adds record key {keys[at].as_py().decode()!r} to two file groups, but a "
            "record index has one location of each key; write it to one partition"
        )
        raise Refused(message)


def _concat(parts: Iterable[pa.Array]) -> pa.Array:
    return pa.concat_arrays([_NO_KEYS, *parts])
