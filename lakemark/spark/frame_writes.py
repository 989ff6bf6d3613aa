"""Writes the rows of a DataFrame in one commit, and the micro-batches of a stream.

The commit is made in the same way as by ``lakemark.Table``. ``row_shares`` describes what runs on
the executors.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict, Unpack

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from lakemark.errors import InvalidConfig
from lakemark.model.commit_metadata import Operation
from lakemark.model.meta_columns import META_COLUMNS, RECORD_KEY
from lakemark.operations.create_checks import choose
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.share_write import SharedWrite
from lakemark.operations.write_result import WriteResult
from lakemark.spark.collected import collect_arrow
from lakemark.spark.row_shares import SparkShares
from lakemark.table import Table
from lakemark.write.sorted_runs import SortMode

#: The property of a thread that contains the id of the streaming query that it executes.
_QUERY_ID = "sql.streaming.queryId"

#: The property of a thread that contains the id of the run of a streaming query.
_RUN_ID = "spark.jobGroup.id"

_LOG = logging.getLogger(__name__)


class SparkOperation(StrEnum):
    """What a write does with its rows; see ``write``."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"


class WriteOptions(TypedDict, total=False):
    """Options of ``write``, which describes them."""

    duplicates: str | Duplicates
    sort: str | SortMode
    tasks: int | None
    add_columns: bool


_ALL_OPTIONS = tuple(WriteOptions.__annotations__)
_OF_ROWS = ("tasks", "add_columns")

#: The options that fit each operation.
_OPTIONS: Mapping[SparkOperation, tuple[str, ...]] = {
    SparkOperation.UPSERT: _OF_ROWS,
    SparkOperation.INSERT: ("duplicates", *_OF_ROWS),
    SparkOperation.BULK_INSERT: ("sort", *_OF_ROWS),
    SparkOperation.DELETE: (),
    SparkOperation.INSERT_OVERWRITE: _OF_ROWS,
    SparkOperation.INSERT_OVERWRITE_TABLE: _OF_ROWS,
    SparkOperation.DELETE_PARTITION: (),
}


def write(
    rows: DataFrame,
    table: Table,
    operation: str | SparkOperation = SparkOperation.UPSERT,
    **options: Unpack[WriteOptions],
) -> WriteResult:
    """Write the rows of a DataFrame in one commit.

    Executors write the files, and the driver commits them. In a table whose buckets are computed
    from keys, the driver receives no rows and no keys. In a table with a lookup index or a record
    index, the driver receives the distinct record keys, except in a bulk insert, and finds their
    file groups. It also receives the keys for ``duplicates``, and those to delete. Only an upsert
    into a table whose keys are unique in the whole table (``partition_change="move"``) gathers the
    rows in the driver.

    Args:
        rows: the rows, which must be the same each time they are evaluated; if they are not (for
            example after ``limit``), write them to files first. Columns are matched by name; Hudi's
            meta columns are ignored. Of rows with the same key and the same ordering value, any may
            win.
        table: an open table.
        operation: ``upsert``, ``insert``, ``bulk_insert``, ``insert_overwrite`` and
            ``insert_overwrite_table`` are those of ``lakemark.Table``. ``delete`` deletes the
            records that have one of the keys of the rows, which need only the columns of the record
            key. ``delete_partition`` deletes all rows of the partitions of the rows, which need
            only the columns of the partition path.
        **options: ``duplicates`` (only ``insert``): what happens to rows whose keys are stored, as
            for ``Table.insert``. ``sort`` (only ``bulk_insert``): the order of the rows, as for
            ``Table.bulk_insert``; ``global`` sorts the rows of a partition also across tasks.
            ``tasks``: the number of tasks that write files after a shuffle; None for the session's
            ``spark.sql.shuffle.partitions``. ``add_columns``: whether columns that the table lacks
            are added. The last two do not fit the operations that delete.

    Raises:
        InvalidConfig: an option is unknown or does not fit the operation; or a column is missing,
            does not fit the table, or has a type that tables cannot store. Nothing was written.
        InvalidRecords: a row has no record key, partition or ordering value, or is marked as
            deleted in an operation other than ``upsert``; see also ``Table.insert`` and
            ``Table.insert_overwrite``. Nothing was written.
        Refused: Spark evaluated the rows twice, and they differ. Nothing was written.
        Unsupported: as for the method of ``lakemark.Table``.
        WriteConflict, WriterAlive, OutcomeUnknown: as for ``Table.upsert``.
        PySparkException, Py4JJavaError: Spark failed, for example because executors were lost.
    """
    return _Write.of(operation, options).run(rows, table)


def foreach_batch(
    table: Table,
    operation: str | SparkOperation = SparkOperation.UPSERT,
    *,
    stream: str | None = None,
    **options: Unpack[WriteOptions],
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``DataStreamWriter.foreachBatch`` that writes each micro-batch once.

    Each commit records the number of its micro-batch (``Table.batch``). If Spark repeats a batch
    after a crash, nothing is written. By default, the record has the id of the query, which is
    stored in the checkpoint of the query: a query with a new checkpoint counts its batches from 0
    on, and they are written.

    Args:
        table: an open table, which no other thread uses while the query runs.
        operation: as for ``write``.
        stream: the name of the stream in the record; None for the id of the query. With a name, a
            query with a new checkpoint writes nothing until it reaches new numbers.
        **options: as for ``write``.

    Raises:
        InvalidConfig: an option is wrong. The function raises what ``write`` raises; and this error
            if another function has written the same batch of the stream to the same table.
    """
    prepared = _Write.of(operation, options)

    def write_batch(rows: DataFrame, number: int) -> None:
        name = _query_id(rows) if stream is None else stream
        _check_only_writer(rows, table, name, number, prepared)
        with table.batch(name, number):
            result = prepared.run(rows, table)
        if result.repeats is not None:
            _LOG.warning(
                "batch %d of stream %r was not written to table %s, because commit %s contains it "
                "or a later batch; if the query has a new checkpoint, give the stream another name",
                number,
                name,
                table.location,
                result.repeats,
            )

    return write_batch


#: For each table and stream: the run of its query, the batch that was written last, and by what.
_last_written: dict[tuple[str, str], tuple[str, int, _Write]] = {}


def _check_only_writer(
    rows: DataFrame, table: Table, stream: str, number: int, writer: _Write
) -> None:
    """Check that no other function writes the batch in this run of the query.

    The second one would find the record of the first one, and write nothing.

    Raises:
        InvalidConfig: another function has begun to write the batch.
    """
    run = rows.sparkSession.sparkContext.getLocalProperty(_RUN_ID)
    if run is None:
        return
    key, written = (table.location, stream), (run, number, writer)
    *batch, former = _last_written.get(key, written)
    if batch == [run, number] and former is not writer:
        message = (
            f"two functions of foreach_batch write batch {number} of stream {stream!r} to table "
            f"{table.location}, and a batch is one commit; pass stream=… to name each part of the "
            "batch as a stream of its own"
        )
        raise InvalidConfig(message)
    _last_written[key] = written


@dataclass(frozen=True, slots=True)
class _Write:
    """An operation with its options, after they were checked."""

    operation: SparkOperation
    duplicates: Duplicates
    sort: SortMode
    tasks: object
    add_columns: bool

    @classmethod
    def of(cls, operation: object, given: WriteOptions) -> _Write:
        """Return the operation.

        Raises:
            InvalidConfig: the operation or an option is unknown, or they do not fit.
        """
        chosen = choose(SparkOperation, operation, "operation")
        for name in given:
            _check_option(name, chosen)
        return cls(
            operation=chosen,
            duplicates=choose(Duplicates, given.get("duplicates", Duplicates.ALLOW), "duplicates"),
            sort=choose(SortMode, given.get("sort", SortMode.NONE), "sort"),
            tasks=given.get("tasks"),
            add_columns=given.get("add_columns", False),
        )

    def run(self, rows: DataFrame, table: Table) -> WriteResult:
        """Write rows in one commit; see ``write``."""
        columns = _arrow_columns(rows)
        if self.operation is SparkOperation.DELETE:
            return table.delete(_keys_to_delete(rows, columns, table))
        wanted = SharedWrite(Operation[self.operation.name], self.sort, self.duplicates)
        is_bulk_insert = self.operation is SparkOperation.BULK_INSERT
        shares = SparkShares(rows, self.sort if is_bulk_insert else None, self.tasks)
        try:
            return table.write_shares(columns, shares, wanted, add_columns=self.add_columns)
        finally:
            shares.close()


def _check_option(name: str, operation: SparkOperation) -> None:
    """Check that an option fits an operation.

    Raises:
        InvalidConfig: it does not.
    """
    if name in _OPTIONS[operation]:
        return
    if name in _ALL_OPTIONS:
        fitting = " and ".join(one for one in SparkOperation if name in _OPTIONS[one])
        message = f"option {name} does not fit operation {operation}, only {fitting}; leave it out"
    else:
        near = difflib.get_close_matches(name, _ALL_OPTIONS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"options: {', '.join(_ALL_OPTIONS)}"
        message = f"a write has no option {name!r}; {hint}"
    raise InvalidConfig(message)


def _arrow_columns(rows: DataFrame) -> pa.Schema:
    """Return the columns of a DataFrame, without meta columns.

    Raises:
        InvalidConfig: the DataFrame is a stream, or a column has a type without Arrow type.
    """
    if rows.isStreaming:
        message = (
            "the DataFrame is a stream; pass lakemark.spark.foreach_batch(table) to "
            "writeStream.foreachBatch"
        )
        raise InvalidConfig(message)
    return pa.schema([_arrow_field(one) for one in _fields(rows) if one.name not in META_COLUMNS])


def _arrow_field(field: StructField) -> pa.Field:
    try:
        return to_arrow_schema(StructType([field])).field(0)
    except PySparkException as error:
        raise _cannot_store(field.name, field.dataType.simpleString()) from error


def _fields(rows: DataFrame) -> list[StructField]:
    """Return the columns of a DataFrame.

    Raises:
        InvalidConfig: PySpark does not know a type that the JVM knows. One is the interval of
            months, days and microseconds in Spark 3.5.
    """
    try:
        return rows.schema.fields
    except PySparkException as error:
        types = {one.name(): one.dataType().simpleString() for one in rows._jdf.schema().fields()}
        unknown = next(name for name in types if not _is_known(rows, name))
        raise _cannot_store(unknown, types[unknown]) from error


def _is_known(rows: DataFrame, column: str) -> bool:
    quoted = column.replace("`", "``")
    try:
        return bool(rows.select(f"`{quoted}`").schema)
    except PySparkException:
        return False


def _cannot_store(column: str, spark_type: str) -> InvalidConfig:
    message = (
        f"column {column!r} has Spark's type {spark_type}, which tables cannot store; cast it, or "
        "leave it out"
    )
    return InvalidConfig(message)


def _keys_to_delete(rows: DataFrame, columns: pa.Schema, table: Table) -> pa.Table:
    """Return the distinct keys of the rows."""
    fields = table.properties.record_key_fields or (RECORD_KEY,)
    names = list(dict.fromkeys(name.partition(".")[0] for name in fields))
    for name in names:
        if name not in rows.columns:
            message = (
                f"the rows lack column {name!r}, which belongs to the record key of table "
                f"{table.location}; they have {', '.join(columns.names)}"
            )
            raise InvalidConfig(message)
    return collect_arrow(rows.select(*names).distinct())


def _query_id(rows: DataFrame) -> str:
    """Return the id of the streaming query that calls this function.

    Raises:
        InvalidConfig: no streaming query does.
    """
    found = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        message = "no streaming query calls this function; pass stream=… to name the stream"
        raise InvalidConfig(message)
    return found
