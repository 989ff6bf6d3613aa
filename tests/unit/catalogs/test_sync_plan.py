"""What a sync changes in a catalog, and what it refuses to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakemark.catalogs.catalog import (
    CatalogColumn,
    CatalogPartition,
    CatalogRefused,
    CatalogTable,
)
from lakemark.catalogs.partition_values import PartitionValues
from lakemark.catalogs.sync_plan import (
    PartitionChanges,
    check_registered,
    plan_partitions,
    plan_table,
)
from lakemark.catalogs.table_definition import Registration, define_tables

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int32()), ("region", pa.string())])
VALUES = PartitionValues(("region",), False, False, False, True)
NONE = PartitionChanges()


def table(schema: pa.Schema = SCHEMA) -> CatalogTable:
    registration = Registration("orders", "s3://lake/orders")
    return define_tables(registration, schema, VALUES, is_merge_on_read=False)[0]


def partition(region: str, root: str = "s3://lake/orders") -> CatalogPartition:
    return CatalogPartition((region,), f"{root}/{region}")


def test_equal_table_needs_no_change() -> None:
    newest = {"last_commit_time_sync": "1"}
    wanted = table()
    registered = replace(wanted, parameters={**wanted.parameters, **newest, "comment": "ours"})
    assert not plan_table(wanted, registered, NONE, newest)


def test_types_are_compared_without_blanks_and_capitals() -> None:
    schema = SCHEMA.append(pa.field("place", pa.struct([("a", pa.int32()), ("b", pa.string())])))
    wanted = table(schema)
    columns = [*wanted.columns[:-1], CatalogColumn("place", "STRUCT< a : int, b : string>")]
    assert not plan_table(wanted, replace(wanted, columns=tuple(columns)), NONE, {})


@pytest.mark.parametrize(
    ("changed", "details"),
    [
        (SCHEMA.append(pa.field("w", pa.float64())), ["add the column w double"]),
        (SCHEMA.set(1, pa.field("v", pa.int64())), ["change v from int to bigint"]),
        (SCHEMA.remove(1), ["drop the column v"]),
        (pa.schema([SCHEMA.field(1), SCHEMA.field(0), SCHEMA.field(2)]), ["reorder the columns"]),
    ],
)
def test_changed_columns_are_named(changed: pa.Schema, details: list[str]) -> None:
    plan = plan_table(table(changed), table(), NONE, {})
    assert [*plan.describe()] == [*details, "set the parameter spark.sql.sources.schema.part.0"]


def test_only_partitions_that_differ_are_changed() -> None:
    changes = plan_partitions(
        [partition("north"), partition("south"), partition("east")],
        [("west",), ("never",)],
        [
            partition("north", "s3a://lake/orders"),
            partition("south", "s3://old/orders"),
            partition("west"),
            partition("other"),
        ],
        are_all=False,
    )
    assert changes == PartitionChanges(
        added=(partition("east"),), moved=(partition("south"),), dropped=(partition("west"),)
    )


def test_unknown_partitions_are_dropped_if_all_are_compared() -> None:
    known = [partition("north"), partition("other")]
    changes = plan_partitions([partition("north")], [], known, are_all=True)
    assert changes == PartitionChanges(dropped=(partition("other"),))


@pytest.mark.parametrize(
    "location",
    ["s3a://lake/orders", "s3://lake/orders/", "s3n://lake//orders"],
)
def test_location_may_be_written_differently(location: str) -> None:
    check_registered(table(), replace(table(), location=location), "hive")


@pytest.mark.parametrize("region", ["a?b", "a%3Fb", "50%", "a#b", "a:b"])
def test_location_of_a_partition_is_compared_as_it_is_written(region: str) -> None:
    wanted = partition(region, "file:///lake/orders")
    same = partition(region, "file:/lake/orders")
    assert not plan_partitions([wanted], [], [same], are_all=True)
    other = CatalogPartition(wanted.values, "file:/lake/orders/a")
    assert plan_partitions([wanted], [], [other], are_all=True).moved == (wanted,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"location": "s3://lake/returns"}, "is at s3://lake/returns, but this table is at"),
        (
            {"input_format": "TextInputFormat", "parameters": {}},
            r"is not a table of Apache Hudi \(its input format is TextInputFormat\)",
        ),
        (
            {"partition_columns": (CatalogColumn("day", "date"),)},
            "has the partition columns day in the catalog, but the table has region; drop",
        ),
    ],
)
def test_another_table_of_the_name_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CatalogRefused, match=message):
        check_registered(table(), replace(table(), **changes), "hive")
