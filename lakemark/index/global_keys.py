"""Keeps record keys unique in a whole table, as the indexes GLOBAL_SIMPLE and GLOBAL_BLOOM do.

If the row of a key is in another partition than a change of the key, the row moves: the change is
written to its own partition, and an unconditional delete to the partition of the row, in the same
commit. The rules are those of Apache Hudi with ``hoodie.simple.index.update.partition.path``, which
is the default:

1. The changes of a batch are folded to one change of each key, whatever their partitions are.
2. A delete is written to the partition that has the row.
3. An upsert that loses to a row of another partition, because of its ordering value, is dropped.
   Any other upsert moves the row.
4. If no file group of its partition has a live row of the key, an upsert adds a new key, even if a
   file still has an old row or a delete of the key. Otherwise this delete or row, which a reader
   merges with the upsert, might win. So a delete with a larger ordering value does not outlive its
   row, and all keys that a commit adds are in base files, where other writers see them.

Source: ``HoodieIndexUtils`` (``tagGlobalLocationBackToRecords``,
``mergeForPartitionUpdatesIfNeeded``) of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import Refused
from lakemark.execution.runner import Runner
from lakemark.index.key_search import SearchedGroup, find_live_keys
from lakemark.merge.join import WinnerRule
from lakemark.merge.key_codes import Mask
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.projection import conform


@dataclass(frozen=True, slots=True, eq=False)
class MovedChanges:
    """Changes after which no key has rows in two partitions.

    Attributes:
        changes: one change of each key, followed by the deletes of moved rows.
        is_new: which changes have a key that has no live row in their partition.
    """

    changes: pa.Table
    is_new: Mask


def move_rows(
    reader: FileGroupReader, groups: Sequence[SearchedGroup], changes: pa.Table, runner: Runner
) -> MovedChanges:
    """Return the changes of a batch, with which rows move to the partitions of their changes.

    Args:
        reader: reader of the table, whose merger neither fills columns nor is a custom merger.
        groups: all file groups of the table.
        changes: all changes of the batch, in order of arrival, with whole rows.
        runner: the threads that search the files.

    Raises:
        SnapshotChanged: a file of a group was deleted.
        CorruptData: a file is damaged.
        Unsupported: a file or a block has a kind that lakemark does not read.
        Refused: two file groups have a live row of the same key.
    """
    folded = reader.merger.fold(changes).combine_chunks()
    stored = _StoredRows.find(reader, groups, folded.column(RECORD_KEY), runner)
    own = folded.column(PARTITION_PATH).combine_chunks().cast(pa.string())
    paths = stored.partitions_of(folded.column(RECORD_KEY))
    is_stored = _mask(paths.is_valid())
    is_elsewhere = is_stored & _mask(pc.fill_null(pc.not_equal(paths, own), fill_value=False))
    is_upsert: Mask = folded.column(CHANGE_KIND).to_numpy() == ChangeKind.UPSERT
    is_moved = is_elsewhere & is_upsert
    is_moved[is_moved] = stored.find_newer(folded.filter(pa.array(is_moved)))
    # A delete is written to the partition of its row, and an upsert to its own partition.
    targets = pc.if_else(pa.array(is_elsewhere & ~is_upsert), paths, own)
    is_kept = is_moved | ~is_upsert | ~is_elsewhere
    kept = _with_paths(folded, targets).filter(pa.array(is_kept))
    old_rows = _deletes(folded.filter(pa.array(is_moved)), paths.filter(pa.array(is_moved)))
    is_new = (is_moved | ~is_stored)[is_kept]
    are_stored: Mask = np.zeros(old_rows.num_rows, np.bool_)
    return MovedChanges(pa.concat_tables([kept, old_rows]), np.concatenate([is_new, are_stored]))


@dataclass(frozen=True, slots=True, eq=False)
class _StoredRows:
    """The live rows of the changed keys.

    Attributes:
        reader: reader of the table.
        groups: the file groups of the table.
        keys: the changed keys of which each file group has a live row.
        runner: the threads that read the files.
    """

    reader: FileGroupReader
    groups: Sequence[SearchedGroup]
    keys: Sequence[pa.Array]
    runner: Runner

    @classmethod
    def find(
        cls,
        reader: FileGroupReader,
        groups: Sequence[SearchedGroup],
        changed: pa.ChunkedArray,
        runner: Runner,
    ) -> _StoredRows:
        """Search distinct keys in all file groups.

        Raises:
            Refused: a key has two live rows. A change of the key would leave one of them stale.
        """
        wanted = changed.combine_chunks()
        found = runner.map(lambda group: find_live_keys(reader, group, wanted), groups)
        stored = cls(reader, groups, found, runner)
        counts = pc.value_counts(stored._all_keys)
        twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        if len(twice):
            key = twice[0]
            holders = [g for g, some in zip(groups, found, strict=True) if key in some]
            raise _stored_twice(key.as_py(), holders)
        return stored

    def partitions_of(self, changed: pa.ChunkedArray) -> pa.Array:
        """Return the partition path of the row of each key, or null."""
        paths = [
            pa.repeat(pa.scalar(group.partition_path, pa.string()), len(some))
            for group, some in zip(self.groups, self.keys, strict=True)
        ]
        at = pc.index_in(changed, value_set=self._all_keys).combine_chunks()
        return _joined(paths).take(at)

    def find_newer(self, upserts: pa.Table) -> Mask:
        """Return which upserts of stored keys win against the rows of their keys.

        A row that queries do not read yet, because a compaction is pending, always loses.
        """
        wins: Mask = np.ones(upserts.num_rows, np.bool_)
        if not self.reader.merger.ordering_fields or not len(wins):
            return wins
        upserted = upserts.column(RECORD_KEY).combine_chunks()
        rows = self._read(upserted)
        if rows is None:
            return wins
        keys = rows.column(RECORD_KEY).combine_chunks()
        at = np.asarray(pc.fill_null(pc.index_in(upserted, value_set=keys), -1))
        compared = np.flatnonzero(at >= 0)
        newer = conform(upserts.take(pa.array(compared)), rows.schema.append(CHANGE_KIND_FIELD), "")
        older = rows.take(pa.array(at[compared]))
        # Every merger that neither fills columns nor is custom chooses one of the two rows.
        rule = cast("WinnerRule", self.reader.merger)
        wins[compared] = rule.newer_wins(older, newer)
        return wins

    def _read(self, keys: pa.Array) -> pa.Table | None:
        """Return the rows of some keys, with the columns that a merge needs; None without rows."""

        def read(one: tuple[SearchedGroup, pa.Array]) -> list[pa.Table]:
            group, wanted = one
            return list(self.reader.merge_keys(group.readable, wanted))

        wanted = (some.filter(pc.is_in(some, value_set=keys)) for some in self.keys)
        pairs = [pair for pair in zip(self.groups, wanted, strict=True) if len(pair[1])]
        rows = [batch for some in self.runner.map(read, pairs) for batch in some]
        return pa.concat_tables(rows) if rows else None

    @property
    def _all_keys(self) -> pa.Array:
        return _joined(self.keys)


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *parts])


def _deletes(upserts: pa.Table, paths: pa.Array) -> pa.Table:
    """Return unconditional deletes of the keys of upserts, in other partitions."""
    count = upserts.num_rows
    kind = pa.scalar(int(ChangeKind.COMMIT_TIME_DELETE), pa.int8())
    columns = {
        RECORD_KEY: upserts.column(RECORD_KEY),
        PARTITION_PATH: paths,
        CHANGE_KIND: pa.repeat(kind, count),
    }
    fields = upserts.schema
    arrays = [columns.get(f.name, pa.nulls(count, f.type)) for f in fields]
    return pa.table(arrays, schema=fields)


def _with_paths(rows: pa.Table, paths: pa.Array) -> pa.Table:
    position = rows.schema.get_field_index(PARTITION_PATH)
    return rows.set_column(position, rows.schema.field(position), paths)


def _mask(booleans: pa.Array) -> Mask:
    mask: Mask = booleans.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask


def _stored_twice(key: str, groups: Sequence[SearchedGroup]) -> Refused:
    named = " and ".join(str(group.readable.group) for group in groups)
    return Refused(
        f"record key {key!r} has a row in each of the file groups {named}, but keys are to be "
        "unique in the whole table, so nothing was written; delete the rows of this key "
        "(Table.delete), then write again"
    )
