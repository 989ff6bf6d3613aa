"""A table as a Spark DataFrame, on Spark 3.5 and 4.

File slices that are one Parquet file are read by Spark itself, which is faster than any reader in
Python; the others are merged in Python workers, one task each. Both read only the columns and files
that are left once the query's columns and condition have been looked at.

Invariants:

- the two halves filter alike and have the same types;
- the files are chosen when the DataFrame is made, so all actions on it see one snapshot, until a
  cleaner removes it.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from lakemark.errors import InvalidConfig, SnapshotChanged
from lakemark.merge.custom.custom_merger import CustomMerger
from lakemark.model.file_slice import FileSlice
from lakemark.operations.open_table import LATEST, open_table
from lakemark.read.queries import Incremental, Query
from lakemark.read.scan import Scan
from lakemark.spark.conditions import column_named, spark_condition
from lakemark.spark.plain_slices import lies_in_a_sink, plain_slices
from lakemark.spark.types import arrow_for_spark, spark_schema
from lakemark.storage import StorageLocation, place_of

#: How Spark's file systems call what ``place_of`` names; Azure's needs the account in the URL.
_SPARK_SCHEMES = {"file": "file", "s3": "s3a", "gs": "gs"}

#: Paths name files: ``*`` in a folder's name is no pattern, and ``a=b`` no column. Dates before
#: 1582 mean what they say. A file that is gone is not passed over, whatever the session says.
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
    """Rows of a table, with the types that Apache Hudi gives them in Spark.

    The timeline, the listing and statistics are read now, in this process; rows are read when Spark
    runs something on the DataFrame. A filter put on the DataFrame later reaches the Parquet files
    that Spark reads; only ``where`` rules out partitions and files of both kinds.

    Args:
        spark: the session.
        path: of the table, a local path or a URL.
        query: which rows.
        columns: columns of the result, in this order; all, Hudi's own first, when None.
        where: a condition in the words of ``lakemark.read.where``.
        storage_options: how this process and the workers reach the store; Spark's own file
            systems are set up in the session (``spark.hadoop.…``).
        mergers: of users, for a table in merge mode ``CUSTOM``; workers must be able to import
            their classes.
        spark_reads_files: False leaves all files to the Python workers, for stores that Spark's
            file systems cannot reach.

    Raises:
        TableNotFound: no table lies there.
        InvalidConfig: a column, condition, moment or span that is none; or Spark cannot reach the
            store.
        SnapshotChanged: the table changed meanwhile; call again.
        CorruptData, Unsupported: as ``Table.scan``.
    """
    location = StorageLocation(os.fspath(path), dict(storage_options or {}))
    table = open_table(location, mergers=mergers)
    scan = table.scan(query, columns, where)
    root = _spark_root(table.location.url) if spark_reads_files else None
    # Rows of an incremental query are chosen by their commit, which is ours to do.
    is_whole = root is not None and not isinstance(query, Incremental)
    plain = plain_slices(table, scan) if is_whole else []
    return _to_dataframe(spark, scan, plain, root or "", where)


@dataclass(frozen=True)
class ReadSlices:
    """Runs in a worker: numbers of slices in, their rows out.

    Attributes:
        scan: without slices.
        slices: pickled one by one, so that a worker rebuilds only those that it reads.
    """

    scan: Scan
    slices: tuple[bytes, ...]

    @classmethod
    def of(cls, scan: Scan) -> ReadSlices:
        """Reads the slices of a scan, numbered from 0."""
        return cls(scan.with_slices(()), tuple(pickle.dumps(one) for one in scan.slices))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch, in the types that Spark takes."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_slice(self.scan, pickle.loads(self.slices[number]))


def read_slice(scan: Scan, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
    """The rows of one slice, in the types that Spark takes; errors as ``Scan.batches``."""
    schema = arrow_for_spark(scan.schema)
    for batch in scan.with_slices([file_slice]).batches(threads=1):
        yield batch.cast(schema)


def _to_dataframe(
    spark: SparkSession, scan: Scan, plain: Sequence[FileSlice], root: str, where: str | None
) -> DataFrame:
    plain_groups = {one.group for one in plain}
    rest = [one for one in scan.slices if one.group not in plain_groups]
    parts = [_read_by_spark(spark, scan, plain, root, where)] if plain else []
    if rest or not parts:
        parts.append(_merged_by_workers(spark, scan.with_slices(rest)))
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
        message = f"a file of the snapshot is gone; read the table again ({error})"
        raise SnapshotChanged(message) from error
    except Py4JError as error:
        reason = str(getattr(error, "java_exception", error))
        message = (
            f"Spark cannot reach {root}: {reason}; set up its file system in the session, or leave "
            "the files to the Python workers (spark_reads_files=False)"
        )
        raise InvalidConfig(message) from error
    if where is not None:
        frame = frame.where(spark_condition(where, scan.reader.schema))
    return frame.select(*map(column_named, scan.columns))


def _merged_by_workers(spark: SparkSession, scan: Scan) -> DataFrame:
    count = len(scan.slices)
    numbers = spark.range(0, count, 1, max(count, 1))
    return numbers.mapInArrow(ReadSlices.of(scan), spark_schema(scan.schema))


def _spark_root(url: str) -> str | None:
    """The table's root as Spark's file systems name it; None if Spark cannot read files there."""
    scheme, _, rest = place_of(url).partition("://")
    if scheme == "az" and "@" in rest.partition("/")[0]:
        return f"abfss://{rest}".rstrip("/")
    spark_scheme = _SPARK_SCHEMES.get(scheme)
    return (
        None
        if spark_scheme is None or lies_in_a_sink(rest)
        else f"{spark_scheme}://{rest}".rstrip("/")
    )
