"""Columns, partition values and Spark's schema of a registered table."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lakemark.catalogs.catalog import CatalogColumn, CatalogRefused
from lakemark.catalogs.column_types import hive_type, spark_type
from lakemark.catalogs.partition_values import PartitionValues
from lakemark.catalogs.table_definition import Registration, define_tables


@pytest.mark.parametrize(
    ("kind", "hive", "spark"),
    [
        (pa.int64(), "bigint", "long"),
        (pa.decimal128(9, 2), "decimal(9,2)", "decimal(9,2)"),
        (pa.timestamp("us", "UTC"), "timestamp", "timestamp"),
        (pa.timestamp("ms"), "timestamp", "timestamp_ntz"),
        (pa.timestamp("ns", "UTC"), "bigint", "long"),
        (pa.time64("us"), "bigint", "long"),
        (pa.binary(4), "binary", "binary"),
        (
            pa.list_(pa.struct([pa.field("A-b", pa.date32(), nullable=False)])),
            "array<struct<a_b:date>>",
            {
                "type": "array",
                "elementType": {
                    "type": "struct",
                    "fields": [{"name": "A-b", "type": "date", "nullable": False, "metadata": {}}],
                },
                "containsNull": True,
            },
        ),
        (
            pa.map_(pa.string(), pa.float64()),
            "map<string,double>",
            {
                "type": "map",
                "keyType": "string",
                "valueType": "double",
                "valueContainsNull": True,
            },
        ),
    ],
)
def test_types_of_columns(kind: pa.DataType, hive: str, spark: object) -> None:
    assert hive_type(kind) == hive
    assert spark_type(kind) == spark


def test_type_that_no_catalog_has_is_refused() -> None:
    with pytest.raises(CatalogRefused, match="no type for duration"):
        hive_type(pa.duration("s"))


def values(*columns: str, **rule: bool) -> PartitionValues:
    given = {
        "is_hive_style": False,
        "is_url_encoded": False,
        "separates_dates": False,
        "are_values": True,
        **rule,
    }
    return PartitionValues(columns, **given)


@pytest.mark.parametrize(
    ("rule", "path", "expected"),
    [
        (values("region", "day"), "eu/2026-01-02", ("eu", "2026-01-02")),
        (values("region", is_hive_style=True), "region=a=b", ("a=b",)),
        (values("region", is_url_encoded=True), "a%3Ab", ("a:b",)),
        (values("region"), "a%3Ab", ("a%3Ab",)),
        (values("region"), "region=eu", ("region=eu",)),
        (values("day", separates_dates=True), "2026/01/02", ("2026-01-02",)),
        (values("at", are_values=False), "2026/01/02", ("2026/01/02",)),
        (
            values("region", is_hive_style=True),
            "region=__HIVE_DEFAULT_PARTITION__",
            ("__HIVE_DEFAULT_PARTITION__",),
        ),
    ],
)
def test_values_of_a_partition_path(
    rule: PartitionValues, path: str, expected: tuple[str, ...]
) -> None:
    assert rule.of_path(path) == expected


def test_path_with_too_many_folders_is_refused() -> None:
    with pytest.raises(CatalogRefused, match="'eu/2026/01' does not have one folder for each"):
        values("region", "at", are_values=False).of_path("eu/2026/01")


def test_partition_column_has_the_type_of_its_text_in_the_path() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int32())])
    assert values("at", "n").catalog_columns(schema) == (
        CatalogColumn("at", "bigint"),
        CatalogColumn("n", "int"),
    )
    formatted = values("at", are_values=False)
    assert formatted.catalog_columns(schema) == (CatalogColumn("at", "string"),)


def test_long_schema_is_divided_and_partition_columns_come_last() -> None:
    names = [f"column_{number}" for number in range(200)]
    schema = pa.schema([("region", pa.string()), *((name, pa.int64()) for name in names)])
    (table,) = define_tables(
        Registration("Orders", "s3://lake/orders", parameters={"owner": "shop"}),
        schema,
        values("region"),
        is_merge_on_read=False,
    )
    stored = table.parameters
    count = int(stored["spark.sql.sources.schema.numParts"])
    parts = [stored[f"spark.sql.sources.schema.part.{number}"] for number in range(count)]
    assert count > 1
    assert max(map(len, parts)) <= 4000
    fields = json.loads("".join(parts))["fields"]
    assert [one["name"] for one in fields] == [*names, "region"]
    assert stored["spark.sql.sources.schema.numPartCols"] == "1"
    assert stored["spark.sql.sources.schema.partCol.0"] == "region"
    assert (stored["owner"], table.name) == ("shop", "orders")
    assert "region" not in [one.name for one in table.columns]
