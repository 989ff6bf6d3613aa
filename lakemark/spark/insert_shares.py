"""Inserts the rows of a DataFrame on Spark, for rows that outgrow one machine.

Each task inserts one share of the rows into new file groups (``ShareInsert``), and returns their
statistics to the driver, which commits all of them. With ``sort="global"``, Spark first shuffles
the rows by ranges of partition path and record key, so that the files of a partition have ranges of
keys that do not overlap.

A task that runs again writes files of the same names. If it reads its rows in another order than
the first attempt, its bytes differ. Then all files are rolled back and written again, so that no
file of a lost attempt is published. With ``global``, the order of a share is that of its keys, so
only rows with equal keys can differ.

The rows must be the same each time Spark evaluates them. Spark recomputes lost parts of a shuffle,
and an operation such as ``dropDuplicates`` may then choose other rows, so that a row is in two
shares or in none.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from lakemark.errors import InvalidConfig
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakemark.operations.bulk_insert import ShareInsert
from lakemark.operations.create_checks import choose
from lakemark.operations.write import WriteResult
from lakemark.spark.versions import VersionCheckedTask
from lakemark.spark.worker_errors import own_error_of_worker
from lakemark.storage.durability import sync_process
from lakemark.table import Table
from lakemark.write.sorted_runs import SortMode

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

    The rows go to new file groups with one base file each. Every task writes files of its own in
    each partition of its rows. So with ``none`` and ``partition``, repartition the DataFrame by the
    partition columns first if it has many tasks.

    Args:
        table: an open table with a lookup index.
        rows: the rows, which must be the same each time they are evaluated; if they are not (for
            example after ``dropDuplicates`` or ``limit``), write them to files first. Columns are
            matched by name; Hudi's meta columns are ignored.
        sort: order of the rows. ``none`` keeps the order of arrival. ``partition`` sorts pieces of
            128 MiB by record key. ``global`` sorts the rows of each partition by record key, also
            across tasks.
        tasks: with ``global``, the number of tasks that write files; None for the session's
            ``spark.sql.shuffle.partitions``.
        add_columns: whether columns that the table lacks are added.

    Raises:
        InvalidConfig: a column does not fit the table, or an argument is wrong.
        InvalidRecords: a row has no record key, partition or ordering value, or is marked as
            deleted. Nothing is inserted then.
        Unsupported: the table has a bucket index or a record index, or its keys are unique in the
            whole table.
        WriteConflict, WriterAlive, OutcomeUnknown: as for ``Table.upsert``.
        PySparkException, Py4JJavaError: Spark failed, for example because executors were lost.
    """
    order = choose(SortMode, sort, "sort")
    _check_tasks(tasks, order)
    own = rows.drop(*META_COLUMNS)

    def insert(share_insert: ShareInsert) -> list[WriteStat]:
        divided = _by_key_range(own, share_insert, tasks) if order is SortMode.GLOBAL else own
        return _run(divided, share_insert)

    return table.bulk_insert_shares(
        to_arrow_schema(own.schema), insert, order, add_columns=add_columns
    )


def _check_tasks(tasks: object, order: SortMode) -> None:
    """Check the number of tasks.

    Raises:
        InvalidConfig: it is no positive integer, or the rows are not divided by key.
    """
    if tasks is None:
        return
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        message = f"tasks is {tasks!r}; pass a positive integer, or nothing"
        raise InvalidConfig(message)
    if order is not SortMode.GLOBAL:
        message = (
            f"tasks is {tasks}, but with sort={str(order)!r} each partition of the DataFrame is a "
            "task; repartition the DataFrame, or pass sort='global'"
        )
        raise InvalidConfig(message)


def _by_key_range(rows: DataFrame, share_insert: ShareInsert, tasks: int | None) -> DataFrame:
    """Return the rows, divided into tasks by ranges of partition path and record key."""
    text = [StructField(name, StringType()) for name in (PARTITION_PATH, RECORD_KEY)]
    with_keys = StructType([*rows.schema.fields, *text])
    keyed = rows.mapInArrow(VersionCheckedTask(AddKeys(share_insert)), with_keys)
    names = (PARTITION_PATH, RECORD_KEY)
    path, key = map(f.col, names)
    if tasks is None:
        return keyed.repartitionByRange(path, key).drop(*names)
    return keyed.repartitionByRange(tasks, path, key).drop(*names)


def _run(rows: DataFrame, share_insert: ShareInsert) -> list[WriteStat]:
    task = VersionCheckedTask(InsertShare(share_insert))
    try:
        results = rows.mapInArrow(task, "written binary").collect()
    except (PySparkException, Py4JJavaError) as error:
        own = own_error_of_worker(error)
        if own is None:
            raise
        raise own from error
    return [stat for row in results for stat in pickle.loads(row.written)]


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
