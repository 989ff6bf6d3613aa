"""Inserts the rows of a DataFrame on Spark, for rows that outgrow one machine.

Each task inserts one share of the rows (``ShareInsert``), and returns the statistics of its files
to the driver, which commits all of them. In a table with a lookup index, the rows go to new file
groups. With ``sort="global"``, Spark first shuffles the rows by ranges of partition path and record
key, so that the files of a partition have ranges of keys that do not overlap. In a table with a
bucket index or consistent hashing, Spark shuffles the rows by partition and bucket, so that one
task writes each file group, as with ``BucketIndexBulkInsertPartitioner`` of Apache Hudi.

A task that runs again writes files of the same names. If it reads its rows in another order than
the first attempt, its bytes differ. Then all files are rolled back and written again, so that no
file of a lost attempt is published. With ``global``, and in a table with buckets, the order of a
share is that of its keys, so only rows with equal keys can differ.

The rows must be the same each time Spark evaluates them. Spark recomputes lost parts of a shuffle,
and an operation such as ``dropDuplicates`` may then choose other rows, so that a row is in two
shares or in none.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakemark.operations.create_checks import choose
from lakemark.operations.share_insert import ShareInsert, WrittenShare
from lakemark.operations.write_result import WriteResult
from lakemark.spark.versions import VersionCheckedTask
from lakemark.spark.worker_errors import own_error_of_worker
from lakemark.storage.durability import sync_process
from lakemark.table import Table
from lakemark.write.sorted_runs import SortMode

#: The column with the bucket number of a row during a shuffle.
_BUCKET = "_hoodie_bucket_number"

_RESULT = pa.schema([("written", pa.binary())])


def bulk_insert(
    table: Table,
    rows: DataFrame,
    *,
    sort: str | SortMode = SortMode.NONE,
    tasks: int | None = None,
    add_columns: bool = False,
) -> WriteResult:
    """Insert the rows of a DataFrame in one commit, without a search for stored keys.

    In a table with a lookup index, the rows go to new file groups with one base file each. Every
    task writes files of its own in each partition of its rows. So with ``none`` and ``partition``,
    repartition the DataFrame by the partition columns first if it has many tasks.

    In a table with a bucket index or consistent hashing, a bucket without rows gets a base file,
    and the rows of other buckets are merged as by ``Table.upsert``. One task writes each bucket.

    Args:
        table: an open table.
        rows: the rows, which must be the same each time they are evaluated; if they are not (for
            example after ``dropDuplicates`` or ``limit``), write them to files first. Columns are
            matched by name; Hudi's meta columns are ignored.
        sort: order of the rows. ``none`` keeps the order of arrival. ``partition`` sorts pieces of
            128 MiB by record key. ``global`` sorts the rows of each partition by record key, also
            across tasks. The rows of a bucket are always sorted by record key.
        tasks: with ``global``, or in a table with buckets, the number of tasks that write files;
            None for the session's ``spark.sql.shuffle.partitions``.
        add_columns: whether columns that the table lacks are added.

    Raises:
        InvalidConfig: a column does not fit the table, or an argument is wrong.
        InvalidRecords: a row has no record key, partition or ordering value, or is marked as
            deleted. Nothing is inserted then.
        Unsupported: the table has a record index, or its keys are unique in the whole table.
        WriteConflict, WriterAlive, OutcomeUnknown: as for ``Table.upsert``.
        PySparkException, Py4JJavaError: Spark failed, for example because executors were lost.
    """
    order = choose(SortMode, sort, "sort")
    own = rows.drop(*META_COLUMNS)
    shares = _SparkShares(own, order, tasks)
    return table.bulk_insert_shares(
        to_arrow_schema(own.schema), shares, order, add_columns=add_columns
    )


@dataclass(frozen=True)
class _SparkShares:
    """The rows of a DataFrame; ``Shares`` of a bulk insert."""

    rows: DataFrame
    sort: SortMode
    tasks: object

    def check(self, *, has_buckets: bool, has_automatic_keys: bool) -> None:
        """See ``Shares.check``."""
        if self.tasks is None:
            return
        if isinstance(self.tasks, bool) or not isinstance(self.tasks, int) or self.tasks < 1:
            message = f"tasks is {self.tasks!r}; pass a positive integer, or nothing"
            raise InvalidConfig(message)
        if has_automatic_keys:
            message = (
                f"tasks is {self.tasks}, but the table has automatic record keys, so each "
                "partition of the DataFrame is a task; repartition the DataFrame"
            )
            raise InvalidConfig(message)
        if self.sort is not SortMode.GLOBAL and not has_buckets:
            message = (
                f"tasks is {self.tasks}, but with sort={str(self.sort)!r} each partition of the "
                "DataFrame is a task; repartition the DataFrame, or pass sort='global'"
            )
            raise InvalidConfig(message)

    def partition_paths(self, insert: ShareInsert) -> Collection[str]:
        """See ``Shares.partition_paths``."""
        task = VersionCheckedTask(FindPartitions(insert))  # tables with buckets have key columns
        found = _collect(self.rows.mapInArrow(task, f"{PARTITION_PATH} string").distinct())
        return [row[0] for row in found]

    def insert(self, insert: ShareInsert) -> list[WrittenShare]:
        """See ``Shares.insert``."""
        if insert.buckets is not None:
            return _run(self._by_bucket(insert), insert)
        divides = self.sort is SortMode.GLOBAL and not insert.has_automatic_keys
        return _run(self._by_key_range(insert) if divides else self.rows, insert)

    def _by_key_range(self, insert: ShareInsert) -> DataFrame:
        """Return the rows, divided into tasks by ranges of partition path and record key."""
        added = [StructField(name, StringType()) for name in (PARTITION_PATH, RECORD_KEY)]
        keyed = self._with_columns(AddKeys(insert), added)
        return keyed.repartitionByRange(*self._counted(PARTITION_PATH, RECORD_KEY)).drop(
            PARTITION_PATH, RECORD_KEY
        )

    def _by_bucket(self, insert: ShareInsert) -> DataFrame:
        """Return the rows, divided into tasks so that each bucket belongs to one task."""
        added = [StructField(PARTITION_PATH, StringType()), StructField(_BUCKET, IntegerType())]
        keyed = self._with_columns(AddBuckets(insert), added)
        return keyed.repartition(*self._counted(PARTITION_PATH, _BUCKET)).drop(
            PARTITION_PATH, _BUCKET
        )

    def _with_columns(self, task: AddKeys | AddBuckets, added: list[StructField]) -> DataFrame:
        schema = StructType([*self.rows.schema.fields, *added])
        return self.rows.mapInArrow(VersionCheckedTask(task), schema)

    def _counted(self, *names: str) -> list[Any]:
        columns = map(f.col, names)
        return [*columns] if self.tasks is None else [self.tasks, *columns]


def _run(rows: DataFrame, share_insert: ShareInsert) -> list[WrittenShare]:
    task = VersionCheckedTask(InsertShare(share_insert))
    found = _collect(rows.mapInArrow(task, "written binary"))
    return [pickle.loads(row.written) for row in found]


def _collect(results: DataFrame) -> list[Row]:
    """Return the results of tasks, and raise the errors of lakemark in them as they are."""
    try:
        return results.collect()
    except (PySparkException, Py4JJavaError) as error:
        own = own_error_of_worker(error)
        if own is None:
            raise
        raise own from error


@dataclass(frozen=True)
class FindPartitions:
    """A task that returns the distinct partition paths of its rows."""

    share_insert: ShareInsert

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each partition path once."""
        known = set[str]()
        for batch in batches:
            changes = self.share_insert.changes(pa.Table.from_batches([batch]))
            known.update(pc.unique(changes.column(PARTITION_PATH)).to_pylist())
        paths = pa.array(sorted(known), pa.string())
        yield pa.RecordBatch.from_arrays([paths], names=[PARTITION_PATH])


@dataclass(frozen=True)
class AddBuckets:
    """A task that adds the partition path and the bucket number of each row."""

    share_insert: ShareInsert

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with two more columns."""
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            changes = self.share_insert.changes(rows)
            numbers = pa.array(self.share_insert.bucket_numbers(changes), pa.int32())
            rows = rows.append_column(PARTITION_PATH, changes.column(PARTITION_PATH))
            yield from rows.append_column(_BUCKET, numbers).combine_chunks().to_batches()


@dataclass(frozen=True)
class AddKeys:
    """A task that adds the partition path and the record key of each row."""

    share_insert: ShareInsert

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with two more columns."""
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            changes = self.share_insert.changes(rows)
            for name in (PARTITION_PATH, RECORD_KEY):
                rows = rows.append_column(name, changes.column(name))
            yield from rows.combine_chunks().to_batches()


@dataclass(frozen=True)
class InsertShare:
    """A task that inserts its rows, and returns the pickled statistics of its files."""

    share_insert: ShareInsert

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Insert the rows of one task."""
        context = TaskContext.get()
        assert context is not None, "Spark runs this function in a task"
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        written = self.share_insert.insert(context.partitionId(), tables)
        sync_process()  # the driver flushes only files of its own process to the disk
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(written)])], schema=_RESULT)
