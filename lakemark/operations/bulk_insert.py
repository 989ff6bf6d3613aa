"""Writes a stream of rows that may be larger than memory in one commit.

The rows are first divided by partition or bucket, with the help of the local disk
(``lakemark.write.sorted_runs``). Nothing is written to the table until all rows have arrived and
were checked. So a commit that conflicts can be written again, although the stream has ended. (On a
cluster, see below, this holds for each share, and the rows are evaluated again.)

In a table with a lookup index, the rows of each partition go to new file groups. In a table with a
bucket index or consistent hashing, a bucket without a file group gets a base file, and the rows of
any other bucket are merged as in an upsert, because each key of such a table is in one file group
only. Apache Hudi appends these rows to a log (``RDDBucketIndexPartitioner``).

A cluster divides the rows into shares, and a task writes each share
(``lakemark.operations.share_write``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from lakemark.execution.runner import LocalRunner
from lakemark.index.lookup import new_file_id
from lakemark.keygen.automatic_keys import add_instant
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import PlacedBuckets
from lakemark.operations.incoming_rows import RowChanges, in_table_columns
from lakemark.operations.table_writer import TableWriter
from lakemark.write.file_group_write import write_file_group
from lakemark.write.new_file_groups import write_new_file_groups
from lakemark.write.partitioner import Bucket
from lakemark.write.sorted_runs import SortedRuns, SortMode
from lakemark.write.write_context import WriteContext


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
    new_keys = converter.new_keys("")  # the instant is not known before all rows have arrived
    for given in tables:
        changes = converter.inserts(in_table_columns(given, writer.schema, url), new_keys)
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
    paths = [bucket.partition_path for bucket in buckets]
    placed = writer.assigner.place_buckets(context, lambda: paths)
    if writer.settings.first_ring_count is not None:
        assert placed is not None
        return _join(runner.map(lambda one: _write_rings(context, placed, one, runs), buckets))
    if placed is not None:

        def write_bucket(bucket: Bucket) -> list[WriteStat]:
            return insert_into_bucket(context, placed, bucket, runs)

        return _join(runner.map(write_bucket, buckets))
    partitions = frozenset(writer.table.view().partitions)
    max_file_bytes = writer.table.base_files.max_file_bytes

    def write_partition(bucket: Bucket) -> list[WriteStat]:
        path, rows = bucket.partition_path, runs.read(bucket)
        if writer.table.properties.has_automatic_keys:
            rows = (add_instant(part, context.instant) for part in rows)
        return insert_partition(context, path, rows, partitions, max_file_bytes)

    return _join(runner.map(write_partition, buckets))


def insert_into_bucket(
    context: WriteContext, placed: PlacedBuckets, bucket: Bucket, runs: SortedRuns
) -> list[WriteStat]:
    """Insert the rows of one bucket; return no file if there is nothing to write.

    Args:
        context: the context that ``TableWriter.begin`` returned.
        placed: the file groups of the buckets.
        bucket: the bucket.
        runs: the rows of the bucket, among others.

    Raises:
        ContentMismatch: an earlier attempt wrote other rows.
        Refused: the partition has data files, but no metafile.
    """
    return write_file_group(context, placed.assignment.task(bucket), runs.read(bucket))


def _write_rings(
    context: WriteContext, placed: PlacedBuckets, partition: Bucket, runs: SortedRuns
) -> list[WriteStat]:
    """Write the rows of a partition, which are divided by its hash ring.

    The rows arrived before the commit began, so its rings were not known yet.
    """
    with SortedRuns(SortMode.NONE) as divided:
        for rows in runs.read(partition):
            keys, paths = rows.column(RECORD_KEY), rows.column(PARTITION_PATH)
            divided.add(rows, placed.index.bucket_ids(keys, paths))
        return _join(
            insert_into_bucket(context, placed, bucket, divided) for bucket in divided.finish()
        )


def insert_partition(
    context: WriteContext,
    path: str,
    rows: Iterable[pa.Table],
    partitions: frozenset[str],
    max_file_bytes: int,
    share: int = 0,
) -> list[WriteStat]:
    """Insert rows into new file groups of a partition.

    Args:
        context: the context that ``TableWriter.begin`` returned.
        path: the partition.
        rows: the rows.
        partitions: the partitions that the table has already.
        max_file_bytes: the size that files approximately have.
        share: the number of the share to which the rows belong.

    Raises:
        Refused: the partition has data files, but no metafile.
    """

    def file_id(number: int) -> str:
        # A share has fewer than 2^32 files, so the numbers of two shares differ.
        return new_file_id((share << 32) + number, path, context.instant, context.table_name)

    return write_new_file_groups(
        context, path, rows, max_file_bytes, file_id, is_new_partition=path not in partitions
    )


def _join(written: Iterable[list[WriteStat]]) -> list[WriteStat]:
    return [stat for stats in written for stat in stats]
