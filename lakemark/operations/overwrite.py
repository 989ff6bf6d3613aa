"""Overwrites partitions: replaces all of their rows by new rows, in one commit.

The new rows go to new file groups, which have base files only, and the commit replaces all file
groups of the partitions. In a table with a bucket index, a new file group has the same bucket
number as the one that it replaces, but another file id. If keys are unique in the whole table, a
key of the new rows must not have a row in a partition that is kept.

Source: ``SparkInsertOverwriteCommitActionExecutor``, ``SparkBucketIndexPartitioner`` and
``SparkInsertOverwritePartitioner`` of Apache Hudi 1.2.0, which merge rows with the same key only if
``hoodie.combine.before.insert`` is set, and which do not look for keys in other partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidRecords, Unsupported
from lakemark.execution.runner import Runner
from lakemark.index.key_lookup import NoLookup
from lakemark.merge.key_codes import key_codes
from lakemark.model.commit_metadata import Operation
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import AssignedChanges
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.operations.replaced_groups import (
    ReplacedGroups,
    find_replaced_groups,
    groups_with_rows,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.write_context import WriteContext


class Overwrite(NamedTuple):
    """What a commit replaces, and where its rows go.

    Attributes:
        assigned: the new file group of each row; None if there are no rows.
        replaced: the replaced file groups.
    """

    assigned: AssignedChanges | None
    replaced: ReplacedGroups


def check_replaces_partitions(table_url: str, first_ring_count: int | None) -> None:
    """Check that lakemark can replace or delete partitions of a table.

    Args:
        table_url: the URL of the table, for the message.
        first_ring_count: the bucket count of new partitions in a table with consistent hashing;
            None for a table with another index.

    Raises:
        Unsupported: the table has consistent hashing, whose hash rings name the file groups.
    """
    if first_ring_count is not None:
        message = (
            f"table {table_url} has consistent hashing, whose hash rings name the file groups of "
            "each partition, so that lakemark does not replace them; delete the rows with "
            "Table.delete(where=…), or use a table with another index"
        )
        raise Unsupported(message)


def prepare_overwrite(
    writer: TableWriter,
    context: WriteContext,
    rows: pa.Table,
    operation: Operation,
    runner: Runner,
) -> Overwrite:
    """Find the file groups that an overwrite replaces, and assign its rows to new ones.

    Args:
        writer: the writer of the table.
        context: the context that ``TableWriter.begin`` returned.
        rows: the new rows, as changes that insert them.
        operation: ``INSERT_OVERWRITE`` for the partitions of the rows, or
            ``INSERT_OVERWRITE_TABLE`` for all partitions.
        runner: the threads that read the keys of replaced rows.

    Raises:
        InvalidRecords: keys are unique in the whole table, and a key has a row in a partition that
            is kept, or new rows in two partitions.
        CompactionPending: a pending compaction would write to one of the file groups.
        WriteConflict: another writer has added one of the keys meanwhile.
        SnapshotChanged: a file was deleted.
    """
    view = writer.table.view()
    paths = pc.unique(rows.column(PARTITION_PATH)).to_pylist()
    partitions = overwritten_partitions(view, paths, operation)
    if rows.num_rows and writer.assigner.keys_are_global(context):
        _check_unique(rows, writer.table.location.url)
        _check_not_elsewhere(writer, context, rows, partitions)
    replaced = find_replaced_groups(context, view, partitions, runner)
    return Overwrite(_assign(writer, context, rows) if rows.num_rows else None, replaced)


def overwritten_partitions(
    view: FileSystemView, paths: Iterable[str], operation: Operation
) -> frozenset[str]:
    """Return the partitions whose rows an overwrite replaces.

    Args:
        view: the file groups on which the commit is based.
        paths: the partition paths of the new rows.
        operation: as for ``prepare_overwrite``.
    """
    if operation is not Operation.INSERT_OVERWRITE_TABLE:
        return frozenset(paths)
    return frozenset(paths) | {group.id.partition_path for group in groups_with_rows(view)}


def _assign(writer: TableWriter, context: WriteContext, rows: pa.Table) -> AssignedChanges:
    """Assign rows to new file groups, as if their partitions had none."""
    view, index = writer.table.view(), writer.settings.index
    if index is not None:
        numbers = index.bucket_ids(rows.column(RECORD_KEY), rows.column(PARTITION_PATH))
        return AssignedChanges(numbers, FileGroupAssignment({}, view.partitions))
    assigner = writer.assigner.lookup_assigner(context, lambda _: NoLookup())
    return replace(assigner, view=replace(view, groups={})).assign(rows)


def _check_unique(rows: pa.Table, table_url: str) -> None:
    """Check that no key has new rows in two partitions."""
    pairs = rows.select([RECORD_KEY, PARTITION_PATH]).group_by([RECORD_KEY, PARTITION_PATH])
    located = pairs.aggregate([])
    codes = key_codes(located, [RECORD_KEY])
    if not codes.are_unique:
        repeated = np.bincount(codes.codes)[codes.codes] > 1
        first = located.column(RECORD_KEY)[int(np.flatnonzero(repeated)[0])].as_py()
        message = (
            f"the rows for table {table_url} have record key {first!r} in several partitions, but "
            "keys are unique in the whole table; nothing was written; pass each key once"
        )
        raise InvalidRecords(message)


def _check_not_elsewhere(
    writer: TableWriter, context: WriteContext, rows: pa.Table, replaced: Collection[str]
) -> None:
    """Check that no key has a row in a partition that is kept."""
    keys = pc.unique(rows.column(RECORD_KEY).combine_chunks())
    stored = writer.assigner.find_stored(context, keys)
    paths = stored.partition_paths(stored.find(keys))
    kept = pc.and_(paths.is_valid(), pc.invert(pc.is_in(paths, value_set=_paths(replaced))))
    if pc.any(kept).as_py():
        key, path = (values.filter(kept)[0].as_py() for values in (keys, paths))
        message = (
            f"record key {key!r} has a row in partition {path!r} of table "
            f"{writer.table.location.url}, which the overwrite keeps, but keys are unique in the "
            "whole table; nothing was written; delete that row first (Table.delete), or use upsert"
        )
        raise InvalidRecords(message)


def _paths(partitions: Collection[str]) -> pa.Array:
    return pa.array(sorted(partitions), pa.string())
