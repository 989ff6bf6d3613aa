"""Decides how one attempt writes the rows of a cluster: which task writes which file groups.

- If the buckets of the table are computed from keys, tasks compute them. The driver only finds the
  partitions, and only for consistent hashing and overwrites.
- If file groups are looked up, or stored keys are dropped, the driver receives the distinct keys of
  the rows, and assigns them to file groups like those of any other write. The rows stay on the
  cluster.
- A bulk insert into a table with a lookup index, and every write to a table with automatic keys,
  adds new file groups, so that tasks need to know nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakemark.errors import Refused
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.model.commit_metadata import CommitMetadata, Operation
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import AssignedChanges, PlacedBuckets
from lakemark.operations.duplicate_keys import (
    Duplicates,
    Mask,
    check_no_duplicates,
    find_stored_rows,
)
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.operations.overwrite import overwritten_partitions, prepare_overwrite
from lakemark.operations.replaced_groups import (
    NOTHING_REPLACED,
    ReplacedGroups,
    find_replaced_groups,
)
from lakemark.operations.share_write import (
    BUCKET_NUMBER,
    NUM_ROWS,
    SharedWrite,
    Shares,
    ShareWrite,
    WrittenShare,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.write.sorted_runs import SortMode


@dataclass(frozen=True, slots=True)
class SharePlan:
    """How an attempt writes the rows of a cluster.

    Attributes:
        write: what writes a share.
        numbers: the bucket number of each key; None if rows need none.
        replaced: the file groups that the commit replaces.
        num_rows: the number of rows that must be written; None if it is not known.
        skipped: the number of rows that are skipped, because their keys are stored.
    """

    write: ShareWrite
    numbers: pa.Table | None = None
    replaced: ReplacedGroups = NOTHING_REPLACED
    num_rows: int | None = None
    skipped: int = 0

    def run(self, shares: Shares) -> list[WrittenShare]:
        """Write all shares.

        Raises:
            Refused: the cluster evaluated other rows than when the plan was made.
            HudiError: see ``ShareWrite.write``.
        """
        if self.num_rows == 0:
            return []
        written = shares.write(self.write, self.numbers)
        found = sum(share.num_rows for share in written)
        if self.num_rows is not None and found != self.num_rows:
            message = (
                f"{self.num_rows} rows were to be written to table "
                f"{self.write.context.location.url}, but Spark then found {found} of them, because "
                "it evaluated the rows twice and they differ; nothing was written; write the rows "
                "to files first, and then these files to the table"
            )
            raise Refused(message)
        return written


def plan_shares(
    writer: TableWriter, shares: Shares, wanted: SharedWrite, write: ShareWrite, runner: Runner
) -> SharePlan:
    """Return how the attempt that ``TableWriter.begin`` began writes the rows.

    Args:
        writer: the writer of the table.
        shares: the rows.
        wanted: what the commit does with them.
        write: what writes a share, without file groups.
        runner: the threads that read the keys of replaced rows.

    Raises:
        InvalidRecords: a row cannot be written; see ``ShareWrite.changes``, ``prepare_overwrite``
            and ``check_no_duplicates``.
        HudiError: see ``ChangeAssigner.assign``.
    """
    if _is_keyed(writer, wanted, write):
        return _plan_keys(writer, shares, wanted, write, runner)
    if CommitMetadata(operation=wanted.operation).replaces_rows:
        return _plan_overwrite(writer, shares, wanted, write, runner)
    assigner = writer.assigner
    buckets = assigner.place_buckets(write.context, lambda: shares.partition_paths(write.paths))
    return SharePlan(_into(write, buckets))


def _is_keyed(writer: TableWriter, wanted: SharedWrite, write: ShareWrite) -> bool:
    """Return whether the driver must know the keys of the rows."""
    if wanted.operation is Operation.BULK_INSERT or write.has_automatic_keys:
        return False
    return writer.settings.looks_up_keys or wanted.duplicates is not Duplicates.ALLOW


def _plan_overwrite(
    writer: TableWriter, shares: Shares, wanted: SharedWrite, write: ShareWrite, runner: Runner
) -> SharePlan:
    view, index = writer.table.view(), writer.settings.index
    paths = shares.partition_paths(write.paths)
    partitions = overwritten_partitions(view, paths, wanted.operation)
    replaced = find_replaced_groups(write.context, view, partitions, runner)
    buckets = None
    if index is not None:
        buckets = PlacedBuckets(index, FileGroupAssignment({}, view.partitions))
    return SharePlan(_into(write, buckets), replaced=replaced)


def _into(write: ShareWrite, buckets: PlacedBuckets | None) -> ShareWrite:
    """Return what writes a share of some buckets.

    The rows of a bucket arrive in any order, so they are sorted: then a task that runs again writes
    the same bytes.
    """
    return write if buckets is None else replace(write, buckets=buckets, sort=SortMode.GLOBAL)


def _plan_keys(
    writer: TableWriter, shares: Shares, wanted: SharedWrite, write: ShareWrite, runner: Runner
) -> SharePlan:
    keys, context = shares.keys(write), write.context
    counts = keys.column(NUM_ROWS).to_numpy()
    allows = wanted.duplicates is Duplicates.ALLOW
    if CommitMetadata(operation=wanted.operation).replaces_rows:
        assigned, replaced = prepare_overwrite(writer, context, keys, wanted.operation, runner)
        if assigned is None:
            return SharePlan(write, replaced=replaced, num_rows=0)
        return _assigned(write, keys, assigned, replaced=replaced)
    if not keys.num_rows:
        return SharePlan(write, num_rows=0)
    is_insert = wanted.operation is Operation.INSERT and allows
    assigned = writer.assigner.assign(context, keys, looks_up=not is_insert)
    if allows:
        return _assigned(replace(write, is_insert=is_insert), keys, assigned)
    stored = find_stored_rows(context.reader, LocalRunner(), keys, assigned)
    if wanted.duplicates is Duplicates.FAIL:
        rows = np.repeat(np.arange(keys.num_rows), counts)
        check_no_duplicates(keys.take(pa.array(rows)), stored[rows], context.location.url)
    return _assigned(write, keys, assigned, skipped=stored)


def _assigned(
    write: ShareWrite,
    keys: pa.Table,
    assigned: AssignedChanges,
    *,
    replaced: ReplacedGroups = NOTHING_REPLACED,
    skipped: Mask | None = None,
) -> SharePlan:
    """Return the plan for keys that have file groups, without those that are skipped."""
    kept = np.ones(keys.num_rows, np.bool_) if skipped is None else ~skipped
    counts = keys.column(NUM_ROWS).to_numpy()
    numbered = keys.select([RECORD_KEY, PARTITION_PATH])
    numbered = numbered.append_column(BUCKET_NUMBER, pa.array(assigned.numbers))
    # A key with changes of several kinds has one file group.
    grouped = numbered.filter(pa.array(kept)).group_by([RECORD_KEY, PARTITION_PATH])
    numbers = grouped.aggregate([(BUCKET_NUMBER, "min")])
    return SharePlan(
        replace(write, assignment=assigned.assignment, sort=SortMode.GLOBAL),
        numbers.rename_columns([RECORD_KEY, PARTITION_PATH, BUCKET_NUMBER]),
        replaced,
        num_rows=int(counts[kept].sum()),
        skipped=int(counts[~kept].sum()),
    )
