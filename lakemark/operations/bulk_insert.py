"""Writes a stream of rows that may be larger than memory in one commit.

The rows are first divided by partition or bucket, with the help of the local disk
(``lakemark.write.sorted_runs``). Nothing is written to the table until all rows have arrived and
were checked. So a commit that conflicts can be written again, although the stream has ended.

In a table without a bucket index, the rows of each partition go to new file groups. In a table with
a bucket index, a bucket without a file group gets a base file, and the rows of any other bucket are
merged as in an upsert, because each key of such a table is in one file group only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from lakemark.errors import Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.index.lookup import new_file_id
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.incoming_rows import RowChanges, in_table_columns
from lakemark.operations.table_writer import TableWriter
from lakemark.write.file_group_write import write_file_group
from lakemark.write.new_file_groups import write_new_file_groups
from lakemark.write.partitioner import Bucket
from lakemark.write.sorted_runs import SortedRuns
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
            numbers = index.bucket_ids(changes.column(RECORD_KEY))
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
    known = writer.table.view().partitions

    def write_partition(bucket: Bucket) -> list[WriteStat]:
        path = bucket.partition_path
        return write_new_file_groups(
            context,
            path,
            runs.read(bucket),
            writer.table.base_files.max_file_bytes,
            lambda number: new_file_id(number, path, context.instant, context.table_name),
            is_new_partition=path not in known,
        )

    return _join(runner.map(write_partition, buckets))


def _join(written: Iterable[list[WriteStat]]) -> list[WriteStat]:
    return [stat for stats in written for stat in stats]
