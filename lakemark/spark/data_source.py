"""A data source for Spark 4: ``spark.read.format("lakemark").load(path)``.

Each file slice, with or without logs, becomes a Spark task that yields Arrow batches.
``read_table`` is faster. It lets Spark read the Parquet files of slices without logs directly, and
a task of ``read_table`` reads several small slices.

Spark does not push columns or filters down to a Python data source. So the user selects columns and
rows by options; a schema can select columns too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakemark.errors import InvalidConfig
from lakemark.model.file_slice import FileSlice
from lakemark.operations.open_table import open_table
from lakemark.read.queries import Incremental, Query, ReadOptimized, Snapshot
from lakemark.read.scan import Scan
from lakemark.spark.read import read_slices
from lakemark.spark.types import spark_schema
from lakemark.storage import StorageLocation

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ImportError as error:
    message = (
        f"Spark {pyspark.__version__} does not support data sources in Python (Spark 4 does); "
        "use lakemark.spark.read.read_table, which works with both versions"
    )
    raise ImportError(message) from error

FORMAT = "lakemark"

_PATH = "path"
_STORAGE = "storage."
_QUERIES = ("snapshot", "read_optimized", "incremental")
_OPTIONS = ("query", "as_of", "begin", "end", "where", "columns")


def register(spark: SparkSession) -> None:
    """Register the format ``lakemark`` in a Spark session."""
    spark.dataSource.register(LakemarkDataSource)


class LakemarkDataSource(DataSource):
    """The data source ``lakemark``.

    Options:

    - ``query``: ``snapshot`` (the default), ``read_optimized`` or ``incremental``
    - ``as_of``: time of a ``snapshot`` or ``read_optimized`` query
    - ``begin``, ``end``: range of an ``incremental`` query
    - ``where``: a condition on rows
    - ``columns``: columns of the result (``a,b,c``)
    - ``storage.<name>``: an option of the object store's client
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the result. Raises the same errors as ``Table.scan``."""
        return spark_schema(_plan_scan(self.options, _parse_columns(self.options)).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of a schema.

        Args:
            schema: the table's schema, or the schema that the user specified.

        Raises:
            InvalidConfig: the user's schema has an unknown column, or a column with another type.
        """
        scan = _plan_scan(self.options, schema.names)
        for wanted, present in zip(schema, spark_schema(scan.schema), strict=True):
            if wanted.dataType != present.dataType:
                message = (
                    f"column {present.name} is {present.dataType.simpleString()} in the table, not "
                    f"{wanted.dataType.simpleString()}; use the table's type, then cast the column"
                )
                raise InvalidConfig(message)
        return SliceReader(scan)


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


def _plan_scan(options: Mapping[str, str], columns: list[str] | None) -> Scan:
    _check_names(options)
    if _PATH not in options:
        message = "the path of the table is missing; pass it to load(…)"
        raise InvalidConfig(message)
    storage = {k.removeprefix(_STORAGE): v for k, v in options.items() if k.startswith(_STORAGE)}
    table = open_table(StorageLocation(options[_PATH], storage))
    return table.scan(_parse_query(options), columns, options.get("where"))


def _check_names(options: Mapping[str, str]) -> None:
    for name in options:
        if name not in (*_OPTIONS, _PATH) and not name.startswith(_STORAGE):
            near = difflib.get_close_matches(name, _OPTIONS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"options: {', '.join(_OPTIONS)}"
            message = f"format {FORMAT} has no option {name!r}; {hint} (and {_STORAGE}<name>)"
            raise InvalidConfig(message)


def _parse_query(options: Mapping[str, str]) -> Query:
    kind = options.get("query", _QUERIES[0])
    if kind not in _QUERIES:
        message = f"option query is {kind!r}; pass one of {', '.join(_QUERIES)}"
        raise InvalidConfig(message)
    if kind == "incremental":
        _refuse(options, kind, "as_of")
        if "begin" not in options:
            message = "query incremental needs the option begin: an instant, a date, or earliest"
            raise InvalidConfig(message)
        return Incremental(options["begin"], options.get("end"))
    _refuse(options, kind, "begin", "end")
    as_of = options.get("as_of")
    return ReadOptimized(as_of) if kind == "read_optimized" else Snapshot(as_of)


def _refuse(options: Mapping[str, str], kind: str, *names: str) -> None:
    for name in names:
        if name in options:
            message = f"option {name} cannot be used with query {kind}; remove it"
            raise InvalidConfig(message)


def _parse_columns(options: Mapping[str, str]) -> list[str] | None:
    listed = options.get("columns")
    return None if listed is None else [name.strip() for name in listed.split(",")]
