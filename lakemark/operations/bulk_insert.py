"""Writes a stream of rows that may be larger than memory in one commit.

The rows are first divided by partition or bucket, with the help of the local disk
(``lakemark.write.sorted_runs``). Nothing is written to the table until all rows have arrived and
were checked. So a commit that conflicts can be written again, although the stream has ended. (On a
cluster, see below, this holds for each share, and the rows are evaluated again.)

In a table without a bucket index, the rows of each partition go to new file groups. In a table with
a bucket index, a bucket without a file group gets a base file, and the rows of any other bucket are
merged as in an upsert, because each key of such a table is in one file group only.

A cluster divides the rows into shares, and a task inserts each share (``ShareInsert``). This is for
tables without a bucket index only, where a share needs no rows of another share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemark.errors import Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.index.lookup import new_file_id
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.incoming_rows import RowChanges, in_table_columns
from lakemark.operations.table_writer import TableWriter
from lakemark.write.file_group_write import write_file_group
from lakemark.write.new_file_groups import write_new_file_groups
from lakemark.write.partitioner import Bucket
from lakemark.write.sorted_runs import SortedRuns, SortMode
from lakemark.write.write_context import WriteContext


def check_bulk_insert(writer: TableWriter) -> None:
    """Check that a bulk insert can write the table.

    Raises:
        Unsupported: the table has consistent hashing.
    """
    if writer.settings.first_ring_count is not None:
        message = (
            f"table {writer.table.location.url} has consistent hashing, for which lakemark has no "
            "bulk insert; use insert or upsert"
        )
        raise Unsupported(message)


def check_bulk_insert_in_shares(writer: TableWriter) -> None:
    """Check that the tasks of a cluster can insert shares of the rows.

    Raises:
        Unsupported: the table has a bucket index or consistent hashing.
    """
    check_bulk_insert(writer)
    if writer.settings.index is not None:
        message = (
            f"table {writer.table.location.url} has a bucket index, for which lakemark has no bulk "
            "insert on Spark; use Table.bulk_insert, or a table with index='lookup'"
        )
        raise Unsupported(message)


def divide_rows(
    writer: TableWriter, converter: RowChanges, tables: Iterable[pa.Table], runs: SortedRuns
) -> list[Bucket]:
    """Add all rows to the runs, and return their buckets.

    Args:
        writer: the writer of the table.
        converter: converts rows to changes.
        tables: the rows, as the caller passed them.
        runs: receives the rows.

    Raises:
        InvalidConfig: a column does not fit the table.
        InvalidRecords: a row has no key, partition or ordering value, or is marked as deleted.
        StorageUnavailable: the disk of the temporary folder is full.
    """
    index, url = writer.settings.index, writer.table.location.url
    for given in tables:
        changes = converter.inserts(in_table_columns(given, writer.schema, url))
        if index is None:
            numbers = np.zeros(changes.num_rows, np.int32)
        else:
            numbers = index.bucket_ids(changes.column(RECORD_KEY), changes.column(PARTITION_PATH))
        runs.add(changes, numbers)
    return runs.finish()


def write_runs(
    writer: TableWriter,
    context: WriteContext,
    runs: SortedRuns,
    buckets: Sequence[Bucket],
    runner: LocalRunner,
) -> list[WriteStat]:
    """Write the files of a commit.

    Args:
        writer: the writer of the table.
        context: the context that ``TableWriter.begin`` returned.
        runs: the rows.
        buckets: the buckets of the rows.
        runner: the threads that write the files.

    Raises:
        Refused: a partition has data files, but no metafile.
    """
    if writer.settings.index is not None:
        assignment = writer.assign_file_groups()

        def write_bucket(bucket: Bucket) -> list[WriteStat]:
            stat = write_file_group(context, assignment.task(bucket), runs.read(bucket))
            return [] if stat is None else [stat]

        return _join(runner.map(write_bucket, buckets))
    partitions = frozenset(writer.table.view().partitions)
    max_file_bytes = writer.table.base_files.max_file_bytes

    def write_partition(bucket: Bucket) -> list[WriteStat]:
        path, rows = bucket.partition_path, runs.read(bucket)
        return _insert_partition(context, path, rows, partitions, max_file_bytes)

    return _join(runner.map(write_partition, buckets))


@dataclass(frozen=True, kw_only=True)
class ShareInsert:
    """Inserts shares of the rows into new file groups. It can be pickled for workers.

    Attributes:
        context: the context that ``TableWriter.begin`` returned.
        converter: converts rows to changes.
        columns: the columns of the table, without meta columns.
        partitions: the partitions that the table has already.
        max_file_bytes: the size that files approximately have.
        sort: the order of the rows of a partition in each share.
    """

    context: WriteContext
    converter: RowChanges
    columns: pa.Schema
    partitions: frozenset[str]
    max_file_bytes: int
    sort: SortMode

    def changes(self, rows: pa.Table) -> pa.Table:
        """Return the changes that insert rows, with their record keys and partition paths.

        Raises:
            InvalidConfig: a column does not fit the table.
            InvalidRecords: a row has no key, partition or ordering value, or is marked as deleted.
        """
        url = self.context.location.url
        return self.converter.inserts(in_table_columns(rows, self.columns, url))

    def insert(self, share: int, tables: Iterable[pa.Table]) -> list[WriteStat]:
        """Write one share. If a task runs again, it must get the same rows in the same order.

        Args:
            share: the number of the share.
            tables: the rows.

        Raises:
            InvalidConfig, InvalidRecords: as for ``changes``.
            ContentMismatch: an earlier attempt wrote other rows.
            Refused: a partition has data files, but no metafile.
            StorageUnavailable: the disk of the temporary folder is full.
        """
        with SortedRuns(self.sort) as runs:
            for rows in tables:
                changes = self.changes(rows)
                runs.add(changes, np.zeros(changes.num_rows, np.int32))
            return _join(self._insert(share, bucket, runs) for bucket in runs.finish())

    def _insert(self, share: int, bucket: Bucket, runs: SortedRuns) -> list[WriteStat]:
        path, rows = bucket.partition_path, runs.read(bucket)
        return _insert_partition(
            self.context, path, rows, self.partitions, self.max_file_bytes, share
        )


#: Inserts all shares of some rows, and returns the files.
InsertShares = Callable[[ShareInsert], list[WriteStat]]


def _insert_partition(
    context: WriteContext,
    path: str,
    rows: Iterable[pa.Table],
    partitions: frozenset[str],
    max_file_bytes: int,
    share: int = 0,
) -> list[WriteStat]:
    def file_id(number: int) -> str:
        # A share has fewer than 2^32 files, so the numbers of two shares differ.
        return new_file_id((share << 32) + number, path, context.instant, context.table_name)

    return write_new_file_groups(
        context, path, rows, max_file_bytes, file_id, is_new_partition=path not in partitions
    )


def _join(written: Iterable[list[WriteStat]]) -> list[WriteStat]:
    return [stat for stats in written for stat in stats]
