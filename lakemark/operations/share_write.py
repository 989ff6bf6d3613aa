"""Writes rows that a cluster has divided into shares, each by one task.

A bulk insert into a table with a lookup index may have any rows in a share, which go to new file
groups. In all other cases a share has all rows of its file groups, because one task writes each
file group. A bucket index or consistent hashing computes the file group of a row from its key. With
a lookup index, the driver assigns the keys to file groups, and each row brings its bucket number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakemark.keygen.automatic_keys import AutomaticKeys
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.commit_metadata import Operation, WriteStat
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import Numbers, PlacedBuckets
from lakemark.operations.bulk_insert import insert_into_bucket, insert_partition
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.operations.incoming_rows import RowChanges, in_table_columns
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import Bucket
from lakemark.write.sorted_runs import SortedRuns, SortMode
from lakemark.write.write_context import WriteContext

#: The column with the bucket number of a row whose key the driver has assigned to a file group.
BUCKET_NUMBER = "_hoodie_bucket_number"

#: The column with the number of rows that have a key.
NUM_ROWS = "num_rows"


@dataclass(frozen=True, slots=True)
class SharedWrite:
    """What a commit does with the rows of a cluster.

    Attributes:
        operation: the operation of the commit.
        sort: the order of the rows of a partition in each share of a bulk insert.
        duplicates: what an insert does with stored keys.
    """

    operation: Operation
    sort: SortMode = SortMode.NONE
    duplicates: Duplicates = Duplicates.ALLOW


@dataclass(frozen=True, slots=True)
class WrittenShare:
    """The result of one task.

    Attributes:
        files: the files that the task wrote.
        num_rows: the number of the caller's rows in the share.
        deletes: how many of these rows are marked as deleted.
    """

    files: list[WriteStat]
    num_rows: int
    deletes: int = 0


@dataclass(frozen=True, slots=True)
class RowPaths:
    """Finds the partition paths of rows. It can be pickled for workers.

    Attributes:
        converter: converts rows to changes.
        columns: the columns of the table, without meta columns.
        table_url: the table's URL, for errors.
    """

    converter: RowChanges
    columns: pa.Schema
    table_url: str

    def of(self, rows: pa.Table) -> pa.Array:
        """Return the partition path of each row.

        Raises:
            InvalidConfig: a column does not fit the table.
            InvalidRecords: a row has no partition path.
        """
        return self.converter.partition_paths(in_table_columns(rows, self.columns, self.table_url))


@dataclass(frozen=True, kw_only=True)
class ShareWrite:
    """Writes shares of the rows. It can be pickled for workers.

    Attributes:
        context: the context that ``TableWriter.begin`` returned.
        converter: converts rows to changes.
        columns: the columns of the table, without meta columns.
        partitions: the partitions that the table has already.
        max_file_bytes: the size that files approximately have.
        sort: the order of the rows of a partition, or of a bucket, in each share.
        may_delete: whether rows may be marked as deleted.
        is_insert: whether each row becomes a row of its own, whatever its key.
        buckets: the buckets of the table; None with a lookup index.
        assignment: the file groups of the bucket numbers that rows bring; None if they bring none.
    """

    context: WriteContext
    converter: RowChanges
    columns: pa.Schema
    partitions: frozenset[str]
    max_file_bytes: int
    sort: SortMode
    may_delete: bool = False
    is_insert: bool = False
    buckets: PlacedBuckets | None = None
    assignment: FileGroupAssignment | None = None

    @property
    def paths(self) -> RowPaths:
        """What finds the partition paths of rows."""
        return RowPaths(self.converter, self.columns, self.context.location.url)

    @property
    def has_automatic_keys(self) -> bool:
        """Whether the rows get new record keys, in the order of a share."""
        return self.converter.generator.config.has_automatic_keys

    def changes(self, rows: pa.Table, new_keys: AutomaticKeys | None = None) -> pa.Table:
        """Return the changes that write rows, with their record keys and partition paths.

        Args:
            rows: the rows.
            new_keys: generates the record keys, if the table has automatic keys.

        Raises:
            InvalidConfig: a column does not fit the table.
            InvalidRecords: a row has no key, partition or ordering value; or it is marked as
                deleted, but rows may not be.
        """
        known = in_table_columns(rows, self.columns, self.context.location.url)
        convert = self.converter.upserts if self.may_delete else self.converter.inserts
        return convert(known, new_keys)

    def bucket_numbers(self, changes: pa.Table) -> Numbers:
        """Return the number of each change's bucket; 0 with a lookup index."""
        if self.buckets is None:
            return np.zeros(changes.num_rows, np.int32)
        keys, paths = changes.column(RECORD_KEY), changes.column(PARTITION_PATH)
        return self.buckets.index.bucket_ids(keys, paths)

    def write(self, share: int, tables: Iterable[pa.Table]) -> WrittenShare:
        """Write one share. If a task runs again, it must get the same rows.

        If the rows of a file group are not sorted by key, they must have the same order, too.

        Args:
            share: the number of the share.
            tables: the rows, with ``BUCKET_NUMBER`` if there is an ``assignment``.

        Raises:
            InvalidConfig, InvalidRecords: as for ``changes``.
            ContentMismatch: an earlier attempt wrote other rows.
            Refused: a partition has data files, but no metafile.
            StorageUnavailable: the disk of the temporary folder is full.
        """
        new_keys, deletes = self.converter.new_keys(self.context.instant, share), 0
        with SortedRuns(self.sort) as runs:
            for rows in tables:
                own, given = _take_numbers(rows)
                changes = self.changes(own, new_keys)
                deletes += _count_deletes(changes)
                runs.add(changes, self.bucket_numbers(changes) if given is None else given)
            written = [self._write(share, bucket, runs) for bucket in runs.finish()]
            files = [stat for stats in written for stat in stats]
            return WrittenShare(files, runs.num_rows, deletes)

    def _write(self, share: int, bucket: Bucket, runs: SortedRuns) -> list[WriteStat]:
        if self.assignment is not None:
            task = replace(self.assignment.task(bucket), is_insert=self.is_insert)
            return write_file_group(self.context, task, runs.read(bucket))
        if self.buckets is not None:
            return insert_into_bucket(self.context, self.buckets, bucket, runs)
        path, rows = bucket.partition_path, runs.read(bucket)
        return insert_partition(
            self.context, path, rows, self.partitions, self.max_file_bytes, share
        )


class Shares(Protocol):
    """The rows of a write, which a cluster holds."""

    def check(self, *, has_buckets: bool, has_automatic_keys: bool) -> None:
        """Check that the rows can be divided as the caller asks, before an instant exists.

        Args:
            has_buckets: whether the table has a bucket index or consistent hashing.
            has_automatic_keys: whether the rows have no record keys before they are inserted.

        Raises:
            InvalidConfig: they cannot.
        """
        ...

    def partition_paths(self, paths: RowPaths) -> Collection[str]:
        """Return the distinct partition paths of all rows."""
        ...

    def keys(self, write: ShareWrite) -> pa.Table:
        """Return the distinct record keys, partition paths and kinds of all changes.

        The column ``NUM_ROWS`` contains the number of rows of each.
        """
        ...

    def gather(self) -> pa.Table:
        """Return all rows."""
        ...

    def write(self, write: ShareWrite, numbers: pa.Table | None = None) -> list[WrittenShare]:
        """Write all shares. If ``write`` has buckets, each bucket is in one share only.

        Args:
            write: what writes a share.
            numbers: the ``BUCKET_NUMBER`` of each record key and partition path, if ``write`` has
                an assignment. Rows with other keys are not written.
        """
        ...


def _take_numbers(rows: pa.Table) -> tuple[pa.Table, Numbers | None]:
    """Return the rows without their bucket numbers, and the bucket numbers, if they bring any."""
    if BUCKET_NUMBER not in rows.column_names:
        return rows, None
    numbers = rows.column(BUCKET_NUMBER).to_numpy().astype(np.int32)
    return rows.drop_columns([BUCKET_NUMBER]), numbers


def _count_deletes(changes: pa.Table) -> int:
    return int(np.count_nonzero(changes.column(CHANGE_KIND).to_numpy() != ChangeKind.UPSERT))
