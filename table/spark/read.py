"""A table as a Spark DataFrame, on Spark 3.5 and 4.

File slices without logs are plain Parquet, which nothing reads faster than Spark itself; those with
logs are merged in Python workers, one task each. Both read only the columns and files that are left
once the query's columns and condition have been looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from table.model.file_slice import FileSlice
from table.read.scan import Scan


def to_dataframe(
    spark: SparkSession, scan: Scan, plain: Sequence[FileSlice], where: str | None = None
) -> DataFrame:
    """The rows of a scan.

    Args:
        spark: a session whose file systems know the table's location.
        scan: what to read.
        plain: those of its slices that are one Parquet file in the table's present schema.
        where: the scan's condition, in the words of ``table.read.where``, which are Spark's too.
    """
    wide = scan.with_columns(scan.columns_read)
    parts = [_read_by_spark(spark, wide, plain, where)] if plain else []
    rest = [file_slice for file_slice in scan.slices if file_slice not in plain]
    if rest or not parts:
        parts.append(_merged_by_workers(spark, wide.with_slices(rest)))
    frame = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    return frame.select(*map(_quoted, scan.columns))


def spark_schema(schema: pa.Schema) -> StructType:
    """The types that Apache Hudi gives these columns in Spark."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


@dataclass(frozen=True)
class _ReadSlices:
    """Runs in a worker: numbers of slices in, their rows out."""

    scan: Scan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            slices = [self.scan.slices[number] for number in batch.column(0).to_pylist()]
            yield from self.scan.with_slices(slices).batches(threads=1)


def _read_by_spark(
    spark: SparkSession, scan: Scan, plain: Sequence[FileSlice], where: str | None
) -> DataFrame:
    root = scan.reader.storage.location.url.rstrip("/")
    if root.startswith("s3://"):
        root = root.replace("s3://", "s3a://", 1)
    paths = [f"{root}/{s.base.path}" for s in plain if s.base is not None]
    # Paths name files: ``*`` or ``{`` in the name of a partition is no pattern.
    reader = spark.read.schema(spark_schema(scan.schema)).option("__globPaths__", "false")
    frame = reader.parquet(*paths)
    return frame if where is None else frame.where(where)


def _merged_by_workers(spark: SparkSession, scan: Scan) -> DataFrame:
    numbers = spark.range(0, len(scan.slices), 1, max(len(scan.slices), 1))
    return numbers.mapInArrow(_ReadSlices(scan), spark_schema(scan.schema))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
