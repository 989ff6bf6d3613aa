"""Reads a table as a Spark DataFrame, with Spark 3.5 and 4.

File slices that consist of one Parquet file are read by Spark itself, which is faster than any
reader in Python. The other slices are merged by tasks in Python workers. Spark and the workers read
only the columns and files that the query needs.

Invariants:

- Spark and the workers filter rows in the same way, and return the same types.
- The files are chosen when the DataFrame is created. So all actions on the DataFrame read the same
  snapshot. After a clean has deleted files of the snapshot, actions fail.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from lakemark.errors import InvalidConfig, SnapshotChanged
from lakemark.merge.custom.api import CustomMerger
from lakemark.model.file_slice import FileSlice
from lakemark.operations.open_table import open_table
from lakemark.operations.table_queries import LATEST
from lakemark.read.instant_range import EARLIEST
from lakemark.read.queries import Incremental, Query
from lakemark.read.query_instant import GivenTime
from lakemark.read.scan import Scan
from lakemark.spark.conditions import column_named, spark_condition
from lakemark.spark.plain_slices import is_streaming_sink_file, plain_slices
from lakemark.spark.shares import divide_slices, divide_splits
from lakemark.spark.types import arrow_for_spark, spark_schema
from lakemark.storage import StorageLocation, canonical_url

T = TypeVar("T")

#: Spark's URL scheme for each scheme of ``canonical_url``. Azure is not listed, because its URL
#: must also contain the account.
_SPARK_SCHEMES = {"file": "file", "s3": "s3a", "gs": "gs"}

#: Options by which Spark reads exactly these files, for any settings of the session. ``*`` in a
#: folder's name is not a pattern, and a folder ``a=b`` does not add a column. Dates before 1582 are
#: not rebased. A missing file is an error.
_PARQUET_OPTIONS = {
    "__globPaths__": "false",
    "recursiveFileLookup": "true",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}


def read_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    query: Query = LATEST,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    mergers: Sequence[CustomMerger] = (),
    spark_reads_files: bool = True,
) -> DataFrame:
    """Return a DataFrame with the rows of a table. Columns have the same types as in Apache Hudi.

    The timeline, the listing and the statistics are read immediately, in this process. Rows are
    read when Spark runs an action on the DataFrame. Only ``where`` skips partitions and files. A
    filter on the returned DataFrame can at most skip row groups in the Parquet files that Spark
    reads itself.

    Args:
        spark: the Spark session.
        path: local path or URL of the table.
        query: type and time of the query.
        columns: columns of the result, in this order; None for all columns, Hudi's meta columns
            first.
        where: a condition in the language of ``lakemark.read.where``.
        storage_options: options by which this process and the workers access the store. Spark's own
            file systems are configured in the session (``spark.hadoop.…``).
        mergers: custom mergers, for a table in merge mode ``CUSTOM``. Workers must be able to
            import the classes, except classes that were loaded from a ``FILE.py``.
        spark_reads_files: pass False for a store that Spark's file systems cannot access. Then the
            Python workers read all files.

    Raises:
        TableNotFound: there is no table at the path.
        InvalidConfig: a column, condition, time or range is not valid, or Spark cannot access the
            store.
        SnapshotChanged: the table changed meanwhile; call this function again.
        CorruptData, Unsupported: as for ``Table.scan``.
    """
    location = StorageLocation(os.fspath(path), dict(storage_options or {}))
    table = open_table(location, mergers=mergers)
    scan = table.scan(query, columns, where)
    root = _spark_root(table.location.url) if spark_reads_files else None
    # Rows of an incremental query are selected by commit, which only lakemark does.
    is_whole = root is not None and not isinstance(query, Incremental)
    plain = plain_slices(table, scan) if is_whole else []
    return _to_dataframe(spark, scan, plain, root or "", where)


def read_changes(
    spark: SparkSession,
    path: str | os.PathLike[str],
    begin: GivenTime = EARLIEST,
    end: GivenTime | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    mergers: Sequence[CustomMerger] = (),
) -> DataFrame:
    """Return a DataFrame with the changes that each commit of a range made to records.

    The columns are those of ``Table.changes``: ``op``, ``ts_ms``, ``before`` and ``after``. The
    files are chosen immediately, and workers read them when Spark runs an action.

    Args:
        spark: the Spark session.
        path: local path or URL of the table.
        begin: the range begins after this requested time, or ``earliest``.
        end: the last requested time in the range; None if the range has no end.
        storage_options: as for ``read_table``.
        mergers: as for ``read_table``.

    Raises:
        TableNotFound: there is no table at the path.
        InvalidConfig: the table keeps no change data; or the range is not valid, or its files were
            removed.
        SnapshotChanged: the table changed meanwhile; call this function again.
        CorruptData, Unsupported: as for ``Table.changes``.
    """
    location = StorageLocation(os.fspath(path), dict(storage_options or {}))
    scan = open_table(location, mergers=mergers).changes(begin, end)
    shares = divide_splits(scan.plan.splits, spark.sparkContext.defaultParallelism)
    return _read_shares(spark, ReadShares.of(scan.with_splits(()).read, shares), scan.schema)


@dataclass(frozen=True)
class ReadShares(Generic[T]):
    """A function for workers that yields the rows of shares, given the numbers of the shares.

    Attributes:
        read: reads the rows of a share.
        shares: what each task reads, pickled separately. So a worker unpickles only its share.
    """

    read: Callable[[Sequence[T]], Iterator[pa.RecordBatch]]
    shares: tuple[bytes, ...]

    @classmethod
    def of(
        cls,
        read: Callable[[Sequence[T]], Iterator[pa.RecordBatch]],
        shares: Iterable[Sequence[T]],
    ) -> ReadShares[T]:
        """Return the function for these shares."""
        return cls(read, tuple(pickle.dumps(share) for share in shares))

    @classmethod
    def of_scan(cls, scan: Scan, parallelism: int) -> ReadShares[FileSlice]:
        """Return the function for the slices of a scan, divided into shares for tasks."""
        shares = divide_slices(scan.slices, parallelism)
        return ReadShares.of(partial(read_slices, scan.with_slices(())), shares)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of slices, with types that Spark accepts.

        Args:
            batches: batches whose first column contains numbers of shares, from 0.
        """
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.read(pickle.loads(self.shares[number]))


def read_slices(scan: Scan, slices: Sequence[FileSlice]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of slices, one slice after another, with types that Spark accepts.

    Raises the same errors as ``Scan.batches``.
    """
    schema = arrow_for_spark(scan.schema)
    for batch in scan.with_slices(slices).batches(threads=1):
        yield batch.cast(schema)


def _to_dataframe(
    spark: SparkSession, scan: Scan, plain: Sequence[FileSlice], root: str, where: str | None
) -> DataFrame:
    plain_groups = {one.group for one in plain}
    rest = [one for one in scan.slices if one.group not in plain_groups]
    parts = [_read_by_spark(spark, scan, plain, root, where)] if plain else []
    if rest or not parts:
        parts.append(_read_by_workers(spark, scan.with_slices(rest)))
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


def _read_by_spark(
    spark: SparkSession, scan: Scan, plain: Sequence[FileSlice], root: str, where: str | None
) -> DataFrame:
    wide = scan.with_columns(scan.columns_read)
    paths = [f"{root}/{one.base.path}" for one in plain if one.base is not None]
    reader = spark.read.schema(spark_schema(wide.schema)).options(**_PARQUET_OPTIONS)
    try:
        frame = reader.parquet(*paths)
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        message = f"a file of the snapshot was deleted; read the table again ({error})"
        raise SnapshotChanged(message) from error
    except Py4JError as error:
        reason = str(getattr(error, "java_exception", error))
        message = (
            f"Spark cannot reach {root}: {reason}; configure its file system in the session, or "
            "let the Python workers read the files (spark_reads_files=False)"
        )
        raise InvalidConfig(message) from error
    if where is not None:
        frame = frame.where(spark_condition(where, scan.reader.schema))
    return frame.select(*map(column_named, scan.columns))


def _read_by_workers(spark: SparkSession, scan: Scan) -> DataFrame:
    function = ReadShares.of_scan(scan, spark.sparkContext.defaultParallelism)
    return _read_shares(spark, function, scan.schema)


def _read_shares(spark: SparkSession, function: ReadShares[T], schema: pa.Schema) -> DataFrame:
    count = len(function.shares)
    numbers = spark.range(0, count, 1, max(count, 1))
    return numbers.mapInArrow(function, spark_schema(schema))


def _spark_root(url: str) -> str | None:
    """Return the URL of the table's root for Spark; None if Spark cannot read from it."""
    scheme, _, rest = canonical_url(url).partition("://")
    if scheme == "az" and "@" in rest.partition("/")[0]:
        return f"abfss://{rest}".rstrip("/")
    spark_scheme = _SPARK_SCHEMES.get(scheme)
    return (
        None
        if spark_scheme is None or is_streaming_sink_file(rest)
        else f"{spark_scheme}://{rest}".rstrip("/")
    )
