"""A data source for Spark 4: ``spark.read.format("lakemark")``, and ``spark.readStream``.

Each file slice, with or without logs, becomes a Spark task that yields Arrow batches.
``read_table`` is faster. It lets Spark read the Parquet files of slices without logs directly, and
a task of ``read_table`` reads several small slices.

Spark does not push columns or filters down to a Python data source. So the user selects columns and
rows by options; a schema can select columns too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakemark.errors import InvalidConfig
from lakemark.model.file_slice import FileSlice
from lakemark.operations.change_feed import FeedType
from lakemark.read.cdc import TEXT_SCHEMA, ChangeSplit, check_logs
from lakemark.read.cdc.scan import CdcScan
from lakemark.read.queries import Query, Snapshot
from lakemark.read.scan import Scan
from lakemark.spark.read import read_slices
from lakemark.spark.source_options import FORMAT, SourceOptions
from lakemark.spark.types import spark_schema

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
    )
except ImportError as error:
    message = (
        f"Spark {pyspark.__version__} does not support data sources in Python (Spark 4 does); "
        "use lakemark.spark.read.read_table, which works with both versions"
    )
    raise ImportError(message) from error


def register(spark: SparkSession) -> None:
    """Register the format ``lakemark`` in a Spark session."""
    spark.dataSource.register(LakemarkDataSource)


class LakemarkDataSource(DataSource):
    """The data source ``lakemark``.

    Options:

    - ``query``: ``snapshot`` (the default), ``read_optimized``, ``incremental`` or ``cdc``; a
      stream needs one of the last two
    - ``as_of``: time of a ``snapshot`` or ``read_optimized`` query
    - ``begin``, ``end``: range of an ``incremental`` or ``cdc`` query; a stream has no end, and may
      begin at ``latest``
    - ``where``: a condition on rows
    - ``columns``: columns of the result (``a,b,c``)
    - ``commits_per_batch``: how many commits a micro-batch of a stream may contain
    - ``storage.<name>``: an option of the object store's client
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the result. Raises the same errors as ``Table.scan``."""
        options = SourceOptions.of(self.options)
        if options.kind == FeedType.CDC:
            check_logs(options.open_table().properties)
            return spark_schema(TEXT_SCHEMA)
        # The columns of an incremental query are the current columns, whatever its range is.
        query = Snapshot() if options.kind == FeedType.INCREMENTAL else options.query()
        return spark_schema(_plan_scan(options, query, options.columns).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of a schema.

        Args:
            schema: the table's schema, or the schema that the user specified.

        Raises:
            InvalidConfig: the user's schema has an unknown column, or a column with another type.
        """
        options = SourceOptions.of(self.options)
        options.check_batch()
        if options.kind == FeedType.CDC:
            _check_changes(schema)
            return ChangesReader(options.open_table().changes(options.begin, options.end))
        scan = _plan_scan(options, options.query(), schema.names)
        _check_types(schema, scan.schema)
        return SliceReader(scan)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of the commits of a table, as micro-batches.

        Args:
            schema: the table's schema, or the schema that the user specified.

        Raises:
            InvalidConfig: as for ``reader``; or the options do not fit a stream.
        """
        from lakemark.spark.stream_reader import CommitStreamReader

        options = SourceOptions.of(self.options)
        if options.feed_type() is FeedType.CDC:
            _check_changes(schema)
        else:
            _check_types(schema, _plan_scan(options, Snapshot(), schema.names).schema)
        return CommitStreamReader(options, schema.names)


@dataclass(frozen=True)
class SlicePartition(InputPartition):
    """A partition that consists of one file slice."""

    file_slice: FileSlice


class SliceReader(DataSourceReader):
    """Reads each file slice of a scan as a partition."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def __getstate__(self) -> dict[str, Scan]:
        """Return the state without the slices, because workers get the slices as partitions."""
        return {"_scan": self._scan.with_slices(())}

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each file slice that was not pruned."""
        return [SlicePartition(one) for one in self._scan.slices]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; Spark passes None if there is no partition."""
        if isinstance(partition, SlicePartition):
            yield from read_slices(self._scan, [partition.file_slice])


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """A partition that consists of the changes of one commit in one file group."""

    split: ChangeSplit


class ChangesReader(DataSourceReader):
    """Reads each split of a CDC query as a partition."""

    def __init__(self, scan: CdcScan) -> None:
        self._scan = scan

    def __getstate__(self) -> dict[str, CdcScan]:
        """Return the state without the splits, because workers get the splits as partitions."""
        return {"_scan": self._scan.with_splits(())}

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each split."""
        return [SplitPartition(one) for one in self._scan.plan.splits]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a partition; Spark passes None if there is no partition."""
        if isinstance(partition, SplitPartition):
            yield from self._scan.read([partition.split])


def _plan_scan(options: SourceOptions, query: Query, columns: Sequence[str] | None) -> Scan:
    return options.open_table().scan(query, columns, options.where)


def _check_changes(schema: StructType) -> None:
    wanted = spark_schema(TEXT_SCHEMA)
    if schema != wanted:
        message = f"a CDC query has the columns {wanted.simpleString()}; omit the schema"
        raise InvalidConfig(message)


def _check_types(schema: StructType, present: pa.Schema) -> None:
    """Check that the columns have the types that a user's schema demands."""
    for wanted, field in zip(schema, spark_schema(present), strict=True):
        if wanted.dataType != field.dataType:
            message = (
                f"column {field.name} is {field.dataType.simpleString()} in the table, not "
                f"{wanted.dataType.simpleString()}; use the table's type, then cast the column"
            )
            raise InvalidConfig(message)
