"""What a catalog should store about a table, so that Spark, Hive, Trino and Athena read it.

A copy-on-write table is registered under one name. A merge-on-read table is registered as
``orders`` and ``orders_rt``, which return the current rows, and ``orders_ro``, which reads only
base files. Hive chooses by the input format, Spark by the serde property
``hoodie.query.as.ro.table``.

Sources: ``HiveSyncTool``, ``SparkDataSourceTableUtils`` and ``HoodieInputFormatUtils`` of Apache
Hudi.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from lakemark.catalogs.catalog import CatalogColumn, CatalogTable
from lakemark.catalogs.column_types import hive_type, spark_field
from lakemark.catalogs.partition_values import PartitionValues

#: The parameters that record up to which commit a catalog knows the table. The first is the
#: requested time of the newest commit, the second is the latest completion time.
LAST_COMMIT, LAST_COMPLETION = "last_commit_time_sync", "last_commit_completion_time_sync"

#: A metastore stores a longer text in several parameters.
_MAX_PARAMETER_LENGTH = 4000

_BASE_FILES = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
_MERGED = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
_OUTPUT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"

#: The input formats by which a table of Apache Hudi is recognised.
INPUT_FORMATS = frozenset({_BASE_FILES, _MERGED})


class MergeOnReadTables(StrEnum):
    """The names under which a merge-on-read table is registered (``HoodieSyncTableStrategy``).

    Attributes:
        ALL: ``orders`` and ``orders_rt`` for the current rows, ``orders_ro`` for the base files.
        CURRENT: ``orders`` for the current rows.
        READ_OPTIMIZED: ``orders`` for the base files.
    """

    ALL = "all"
    CURRENT = "current"
    READ_OPTIMIZED = "read_optimized"


@dataclass(frozen=True, slots=True)
class Registration:
    """How a table is registered in a catalog.

    Attributes:
        name: the name of the table in the catalog.
        location: the URL of the table, as the engines that read the catalog understand it.
        merge_on_read: the names of a merge-on-read table.
        creates_database: whether a missing database is created.
        parameters: further parameters of the table, for the engines that read the catalog.
    """

    name: str
    location: str
    merge_on_read: MergeOnReadTables = MergeOnReadTables.ALL
    creates_database: bool = True
    parameters: Mapping[str, str] = field(default_factory=dict)


def define_tables(
    registration: Registration,
    schema: pa.Schema,
    partitions: PartitionValues,
    *,
    is_merge_on_read: bool,
) -> list[CatalogTable]:
    """Return the tables that a catalog should have, without the time of the newest commit.

    Args:
        registration: how the table is registered.
        schema: the columns of the table, with its meta columns.
        partitions: the rule for partition values.
        is_merge_on_read: whether the table is a merge-on-read table.

    Raises:
        CatalogRefused: catalogs have no type for a column.
    """
    columns = tuple(
        CatalogColumn(one.name.lower(), hive_type(one.type))
        for one in schema
        if one.name not in partitions.columns
    )
    parameters = {
        **dict(_spark_parameters(schema, partitions)),
        "EXTERNAL": "TRUE",
        **registration.parameters,
    }
    return [
        CatalogTable(
            name,
            registration.location,
            columns,
            partitions.catalog_columns(schema),
            _MERGED if merges else _BASE_FILES,
            _OUTPUT,
            _SERDE,
            _serde_properties(registration.location, reads_base_files=is_ro),
            parameters,
        )
        for name, merges, is_ro in _names(registration, is_merge_on_read=is_merge_on_read)
    ]


def table_names(registration: Registration, *, is_merge_on_read: bool) -> list[str]:
    """Return the names under which a table is registered, which need no columns."""
    return [name for name, _, _ in _names(registration, is_merge_on_read=is_merge_on_read)]


def _names(
    registration: Registration, *, is_merge_on_read: bool
) -> Iterator[tuple[str, bool, bool]]:
    """Yield each name; whether Hive merges logs; whether Spark reads only base files."""
    name, wanted = registration.name.lower(), registration.merge_on_read
    if not is_merge_on_read:
        yield name, False, False
    elif wanted is MergeOnReadTables.CURRENT:
        yield name, True, False
    elif wanted is MergeOnReadTables.READ_OPTIMIZED:
        yield name, False, True
    else:
        yield f"{name}_ro", False, True
        yield f"{name}_rt", True, False
        yield name, True, False


def _serde_properties(location: str, *, reads_base_files: bool) -> dict[str, str]:
    return {
        "path": location,
        "hoodie.query.as.ro.table": str(reads_base_files).lower(),
        "serialization.format": "1",
    }


def _spark_parameters(schema: pa.Schema, partitions: PartitionValues) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a data source table of Spark; partition columns come last."""
    names = partitions.columns
    others = [one for one in schema if one.name not in names]
    known = {one.name: one for one in schema}
    last = [known.get(name, pa.field(name, pa.string())) for name in names]
    stored = {"type": "struct", "fields": [spark_field(one) for one in [*others, *last]]}
    text = json.dumps(stored, separators=(",", ":"))
    parts = [
        text[start : start + _MAX_PARAMETER_LENGTH]
        for start in range(0, len(text), _MAX_PARAMETER_LENGTH)
    ]
    yield "spark.sql.sources.provider", "hudi"
    yield "spark.sql.sources.schema.numParts", str(len(parts))
    for number, part in enumerate(parts):
        yield f"spark.sql.sources.schema.part.{number}", part
    if names:
        yield "spark.sql.sources.schema.numPartCols", str(len(names))
    for number, name in enumerate(names):
        yield f"spark.sql.sources.schema.partCol.{number}", name
