"""Divides the rows of a DataFrame among tasks, each of which writes one share (``ShareWrite``).

Each task returns the statistics of its files to the driver, which commits all of them. If the
buckets of the table are computed from keys, Spark shuffles the rows by partition and bucket, so
that one task writes each file group, as with ``BucketIndexBulkInsertPartitioner`` of Apache Hudi.
If the driver has assigned the keys to file groups, Spark first joins the rows with the assigned
keys, and shuffles them in the same way. A bulk insert into a table with a lookup index needs no
shuffle; with ``sort="global"``, Spark shuffles the rows by ranges of partition path and record key,
so that the files of a partition have ranges of keys that do not overlap.

A task that runs again writes files of the same names. If it reads its rows in another order than
the first attempt, its bytes differ. Then all files are rolled back and written again, so that no
file of a lost attempt is published. After a shuffle, the order of a share is that of its keys, so
only rows with equal keys can differ.

The rows must be the same each time Spark evaluates them. Spark recomputes lost parts of a shuffle,
and an operation such as ``dropDuplicates`` may then choose other rows, so that a row is in two
shares or in none. If a write must evaluate the rows twice, they are persisted until it ends.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ByteType, IntegerType, StringType, StructField, StructType

from lakemark.errors import InvalidConfig
from lakemark.model.changes import CHANGE_KIND
from lakemark.model.meta_columns import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakemark.operations.share_write import (
    BUCKET_NUMBER,
    NUM_ROWS,
    RowPaths,
    ShareWrite,
    WrittenShare,
)
from lakemark.spark.collected import collect_arrow, own_errors
from lakemark.spark.versions import VersionCheckedTask
from lakemark.storage.durability import sync_process
from lakemark.write.sorted_runs import SortMode

_RESULT = pa.schema([("written", pa.binary())])

#: The number of keys of one message from the driver to tasks.
_KEYS_OF_MESSAGE = 100_000

_KEYS = StructType(
    [
        StructField(RECORD_KEY, StringType()),
        StructField(PARTITION_PATH, StringType()),
        StructField(CHANGE_KIND, ByteType()),
    ]
)
_NUMBERS = StructType(
    [
        StructField(RECORD_KEY, StringType()),
        StructField(PARTITION_PATH, StringType()),
        StructField(BUCKET_NUMBER, IntegerType()),
    ]
)


class SparkShares:
    """The rows of a DataFrame, as ``Shares`` of a write.

    Args:
        rows: the rows. Hudi's meta columns are ignored.
        sort: the order of the rows of a bulk insert; None for another operation.
        tasks: the number of tasks that write files; None for the session's setting.
    """

    def __init__(self, rows: DataFrame, sort: SortMode | None, tasks: object = None) -> None:
        self._rows, self._sort, self._tasks = rows.drop(*META_COLUMNS), sort, tasks
        level = rows.storageLevel  # also of rows that another object or the catalog has persisted
        self._is_cached, self._is_persisted = level.useMemory or level.useDisk, False

    def close(self) -> None:
        """Drop the rows that were persisted."""
        if self._is_persisted:
            self._rows.unpersist()

    def check(self, *, has_buckets: bool, has_automatic_keys: bool) -> None:
        """See ``Shares.check``."""
        if self._tasks is None:
            return
        if isinstance(self._tasks, bool) or not isinstance(self._tasks, int) or self._tasks < 1:
            message = f"tasks is {self._tasks!r}; pass a positive integer, or nothing"
            raise InvalidConfig(message)
        if has_automatic_keys:
            message = (
                f"tasks is {self._tasks}, but the table has automatic record keys, so each "
                "partition of the DataFrame is a task; repartition the DataFrame"
            )
            raise InvalidConfig(message)
        if self._sort in (SortMode.NONE, SortMode.PARTITION) and not has_buckets:
            message = (
                f"tasks is {self._tasks}, but with sort={str(self._sort)!r} each partition of the "
                "DataFrame is a task; repartition the DataFrame, or pass sort='global'"
            )
            raise InvalidConfig(message)

    def partition_paths(self, paths: RowPaths) -> Collection[str]:
        """See ``Shares.partition_paths``."""
        task = VersionCheckedTask(FindPartitions(paths))
        with own_errors():
            found = self._persisted().mapInArrow(task, f"{PARTITION_PATH} string").distinct()
            return [row[0] for row in found.collect()]

    def keys(self, write: ShareWrite) -> pa.Table:
        """See ``Shares.keys``."""
        keyed = self._persisted().mapInArrow(VersionCheckedTask(FindKeys(write)), _KEYS)
        with own_errors():
            counted = keyed.groupBy(*_KEYS.names).agg(f.count(f.lit(1)).alias(NUM_ROWS))
            return collect_arrow(counted)

    def gather(self) -> pa.Table:
        """See ``Shares.gather``."""
        return collect_arrow(self._rows)

    def write(self, write: ShareWrite, numbers: pa.Table | None = None) -> list[WrittenShare]:
        """See ``Shares.write``."""
        if numbers is not None:
            return _run(self._by_number(write, numbers), write)
        if write.buckets is not None:
            return _run(self._by_bucket(write), write)
        divides = self._sort is SortMode.GLOBAL and not write.has_automatic_keys
        return _run(self._by_key_range(write) if divides else self._rows, write)

    def _persisted(self) -> DataFrame:
        """Return the rows, which are evaluated again later."""
        if not (self._is_cached or self._is_persisted):
            self._rows, self._is_persisted = self._rows.persist(), True
        return self._rows

    def _by_number(self, write: ShareWrite, numbers: pa.Table) -> DataFrame:
        """Return the rows whose keys have numbers, so that each file group belongs to one task."""
        keyed = self._with_columns(AddKeys(write), _KEYS.fields[:2])
        numbered = keyed.join(_as_dataframe(keyed.sparkSession, numbers), _NUMBERS.names[:2])
        by_group = numbered.repartition(*self._counted(PARTITION_PATH, BUCKET_NUMBER))
        return by_group.drop(PARTITION_PATH, RECORD_KEY)

    def _by_key_range(self, write: ShareWrite) -> DataFrame:
        """Return the rows, divided into tasks by ranges of partition path and record key."""
        keyed = self._with_columns(AddKeys(write), _KEYS.fields[:2])
        return keyed.repartitionByRange(*self._counted(PARTITION_PATH, RECORD_KEY)).drop(
            PARTITION_PATH, RECORD_KEY
        )

    def _by_bucket(self, write: ShareWrite) -> DataFrame:
        """Return the rows, divided into tasks so that each bucket belongs to one task."""
        keyed = self._with_columns(AddBuckets(write), _NUMBERS.fields[1:])
        return keyed.repartition(*self._counted(PARTITION_PATH, BUCKET_NUMBER)).drop(
            PARTITION_PATH, BUCKET_NUMBER
        )

    def _with_columns(self, task: AddKeys | AddBuckets, added: list[StructField]) -> DataFrame:
        schema = StructType([*self._rows.schema.fields, *added])
        return self._rows.mapInArrow(VersionCheckedTask(task), schema)

    def _counted(self, *names: str) -> list[Any]:
        columns = map(f.col, names)
        return [*columns] if self._tasks is None else [self._tasks, *columns]


def _run(rows: DataFrame, share_write: ShareWrite) -> list[WrittenShare]:
    task = VersionCheckedTask(WriteShare(share_write))
    with own_errors():
        found = rows.mapInArrow(task, "written binary").collect()
    return [pickle.loads(row.written) for row in found]


def _as_dataframe(spark: SparkSession, numbers: pa.Table) -> DataFrame:
    """Return the numbered keys as a DataFrame, in Spark 3.5, too."""
    sent = [
        (_ipc_stream(numbers.slice(start, _KEYS_OF_MESSAGE)),)
        for start in range(0, max(1, numbers.num_rows), _KEYS_OF_MESSAGE)
    ]
    return spark.createDataFrame(sent, "payload binary").mapInArrow(_unpack, _NUMBERS)


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for payload in batch.column(0):
            with pa.ipc.open_stream(payload.as_buffer()) as reader:
                yield from reader


def _ipc_stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


@dataclass(frozen=True)
class FindPartitions:
    """A task that returns the distinct partition paths of its rows."""

    row_paths: RowPaths

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each partition path once."""
        known = set[str]()
        for batch in batches:
            found = self.row_paths.of(pa.Table.from_batches([batch]))
            known.update(pc.unique(found).to_pylist())
        paths = pa.array(sorted(known), pa.string())
        yield pa.RecordBatch.from_arrays([paths], names=[PARTITION_PATH])


@dataclass(frozen=True)
class FindKeys:
    """A task that returns the record key, the partition path and the kind of each change."""

    share_write: ShareWrite

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the keys."""
        for batch in batches:
            changes = self.share_write.changes(pa.Table.from_batches([batch]))
            yield from changes.select(_KEYS.names).combine_chunks().to_batches()


@dataclass(frozen=True)
class AddBuckets:
    """A task that adds the partition path and the bucket number of each row."""

    share_write: ShareWrite

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with two more columns."""
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            changes = self.share_write.changes(rows)
            numbers = pa.array(self.share_write.bucket_numbers(changes), pa.int32())
            rows = rows.append_column(PARTITION_PATH, changes.column(PARTITION_PATH))
            yield from rows.append_column(BUCKET_NUMBER, numbers).combine_chunks().to_batches()


@dataclass(frozen=True)
class AddKeys:
    """A task that adds the partition path and the record key of each row."""

    share_write: ShareWrite

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with two more columns."""
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            changes = self.share_write.changes(rows)
            for name in (RECORD_KEY, PARTITION_PATH):
                rows = rows.append_column(name, changes.column(name))
            yield from rows.combine_chunks().to_batches()


@dataclass(frozen=True)
class WriteShare:
    """A task that writes its rows, and returns the pickled statistics of its files."""

    share_write: ShareWrite

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of one task."""
        context = TaskContext.get()
        assert context is not None, "Spark runs this function in a task"
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        written = self.share_write.write(context.partitionId(), tables)
        sync_process()  # the driver flushes only files of its own process to the disk
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(written)])], schema=_RESULT)
