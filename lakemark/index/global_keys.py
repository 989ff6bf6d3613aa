"""Keeps record keys unique in a whole table, as Apache Hudi's indexes do that begin with GLOBAL_.

If the row of a key is in another partition than a change of the key, the row moves: the change is
written to its own partition, and an unconditional delete to the partition of the row, in the same
commit. The rules are those of Apache Hudi with ``hoodie.simple.index.update.partition.path``, which
is the default of GLOBAL_SIMPLE and GLOBAL_BLOOM, and with
``hoodie.record.index.update.partition.path``, which is not the default of its record index:

1. The changes of a batch are folded to one change of each key, whatever their partitions are.
2. A delete is written to the partition that has the row. A delete of a key without a row is
   dropped.
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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.execution.runner import Runner
from lakemark.index.key_lookup import NEW_KEY
from lakemark.index.key_search import SearchedGroup
from lakemark.index.stored_keys import StoredKeys
from lakemark.merge.join import WinnerRule
from lakemark.merge.key_codes import Mask
from lakemark.merge.ordering import select_ordering_columns
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.projection import conform
from lakemark.schema.field_path import top_column

#: Finds the file groups that have a live row of distinct keys.
Locate: TypeAlias = Callable[[pa.Array], StoredKeys]

_ROW = "#row"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MovedChanges:
    """How to write the changes of a batch so that no key has rows in two partitions.

    Attributes:
        rows: the numbers of the changes to write, in ascending order: one change of each key.
        paths: the partition path to which each of them is written.
        old_rows: record key and partition path of the row that each move deletes.
        stored: the file groups of the keys; the index for these changes.
        late: the number of keys whose change lost to a row of another partition.
        absent: the number of keys that are only deleted and have no row.
    """

    rows: npt.NDArray[np.int64]
    paths: pa.Array
    old_rows: pa.Table
    stored: StoredKeys
    late: int
    absent: int

    def apply(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """Return the changes to write, and at the end the deletes of moved rows.

        Args:
            tables: the tables of changes that ``move_rows`` received as one, in the same order.
        """
        ends = np.cumsum([table.num_rows for table in tables])
        cuts = np.searchsorted(self.rows, ends)
        moved, first, start = list[pa.Table](), 0, 0
        for table, end, cut in zip(tables, ends.tolist(), cuts.tolist(), strict=True):
            rows = table.take(pa.array(self.rows[first:cut] - start))
            moved.append(_with_paths(rows, self.paths.slice(first, cut - first)))
            first, start = cut, end
        deletes = [_deletes(self.old_rows, tables[0].schema)] if self.old_rows.num_rows else []
        return [table for table in (*moved, *deletes) if table.num_rows]


def move_rows(
    reader: FileGroupReader, changes: pa.Table, locate: Locate, runner: Runner
) -> MovedChanges:
    """Decide how the changes of a batch are written, so that rows move to their new partitions.

    Args:
        reader: reader of the table, whose merger neither fills columns nor is a custom merger.
        changes: all changes of the batch, at least one, in order of arrival. Only keys, paths,
            kinds and ordering columns are read.
        locate: finds the live rows of the changed keys.
        runner: the threads that read the rows.

    Raises:
        SnapshotChanged: a file of a group was deleted.
        CorruptData: a file is damaged.
        Unsupported: a file or a block has a kind that lakemark does not read.
        Refused: two file groups have a live row of the same key.
    """
    folded = _fold(reader, changes)
    keys = folded.column(RECORD_KEY).combine_chunks()
    stored = locate(keys)
    numbers = stored.find(keys)
    own, paths = folded.column(PARTITION_PATH).combine_chunks(), stored.partition_paths(numbers)
    is_stored = numbers != NEW_KEY
    is_elsewhere = is_stored & _mask(pc.fill_null(pc.not_equal(paths, own), fill_value=False))
    is_upsert: Mask = folded.column(CHANGE_KIND).to_numpy() == ChangeKind.UPSERT
    is_moved = is_elsewhere & is_upsert
    is_moved[is_moved] = _find_newer(reader, stored, folded.filter(pa.array(is_moved)), runner)
    is_late = is_elsewhere & is_upsert & ~is_moved
    is_absent = ~is_stored & ~is_upsert
    # A delete is written to the partition of its row, and an upsert to its own partition.
    targets = pc.if_else(pa.array(is_elsewhere & ~is_upsert), paths, own)
    kept = pa.array(~is_late & ~is_absent)
    moved = pa.array(is_moved)
    return MovedChanges(
        rows=folded.column(_ROW).filter(kept).to_numpy(),
        paths=targets.filter(kept),
        old_rows=pa.table({RECORD_KEY: keys.filter(moved), PARTITION_PATH: paths.filter(moved)}),
        stored=stored,
        late=int(is_late.sum()),
        absent=int(is_absent.sum()),
    )


def _fold(reader: FileGroupReader, changes: pa.Table) -> pa.Table:
    """Return the winning change of each key, in order of arrival, without most of its columns.

    The column ``_ROW`` has the numbers of the changes.
    """
    schema = changes.schema
    ordering = (top_column(name, schema) for name in reader.merger.ordering_fields)
    deciding = dict.fromkeys([RECORD_KEY, PARTITION_PATH, CHANGE_KIND, *ordering])
    narrow = changes.select(list(deciding))
    narrow = narrow.append_column(_ROW, pa.array(np.arange(changes.num_rows)))
    folded = reader.merger.fold(narrow).combine_chunks()
    order = np.argsort(folded.column(_ROW).to_numpy())
    return folded.take(pa.array(order)).combine_chunks()


def _find_newer(
    reader: FileGroupReader, stored: StoredKeys, upserts: pa.Table, runner: Runner
) -> Mask:
    """Return which upserts of stored keys win against the rows of their keys.

    A row that queries do not read yet, because a compaction is pending, always loses.
    """
    wins: Mask = np.ones(upserts.num_rows, np.bool_)
    fields = reader.merger.ordering_fields
    if not fields or not len(wins):
        return wins
    upserted = upserts.column(RECORD_KEY).combine_chunks()

    def read(one: tuple[SearchedGroup, pa.Array]) -> list[pa.Table]:
        group, wanted = one
        return list(reader.merge_keys(group.readable, wanted))

    found = [rows for some in runner.map(read, [*stored.by_group(upserted)]) for rows in some]
    if not found:
        return wins
    rows = pa.concat_tables(found)
    at = pc.index_in(upserted, value_set=rows.column(RECORD_KEY).combine_chunks())
    compared = np.flatnonzero(_mask(at.is_valid()))
    newer = conform(upserts.take(pa.array(compared)), rows.schema.append(CHANGE_KIND_FIELD), "")
    # Every merger that neither fills columns nor is custom chooses one of the two rows.
    rule = cast("WinnerRule", reader.merger)
    wins[compared] = rule.newer_wins(
        select_ordering_columns(rows, fields).take(at.drop_null()),
        select_ordering_columns(newer, fields, CHANGE_KIND),
    )
    return wins


def _deletes(old_rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return unconditional deletes of rows, given their record keys and partition paths."""
    count = old_rows.num_rows
    kind = pa.scalar(int(ChangeKind.COMMIT_TIME_DELETE), pa.int8())
    columns = {name: old_rows.column(name) for name in (RECORD_KEY, PARTITION_PATH)}
    columns[CHANGE_KIND] = pa.repeat(kind, count)
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return pa.table(arrays, schema=schema)


def _with_paths(rows: pa.Table, paths: pa.Array) -> pa.Table:
    position = rows.schema.get_field_index(PARTITION_PATH)
    return rows.set_column(position, rows.schema.field(position), paths)


def _mask(booleans: pa.Array) -> Mask:
    mask: Mask = booleans.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask
