"""Schemas that change, and base files that Spark itself wrote."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, expr

from tests.golden.make.options import BUCKETS, NO_METADATA, copy_on_write, merge_on_read, version
from tests.golden.make.recipe import Recipe
from tests.golden.make.recipes.histories import HARD_DELETED, INSERTED, LAST, UPDATED
from tests.golden.make.rows import rows
from tests.golden.make.table_in_making import TableInMaking

_SCHEMA_ON_READ = {
    "hoodie.schema.on.read.enable": "true",
    "hoodie.datasource.write.reconcile.schema": "true",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
}
_ROW_WRITER = {"hoodie.datasource.write.row.writer.enable": "true"}


def _with_score(frame: DataFrame) -> DataFrame:
    return frame.withColumn("score", (col("qty") / 8).cast("float"))


def _wider(frame: DataFrame) -> DataFrame:
    frame = _with_score(frame).withColumn("qty", col("qty").cast("bigint"))
    return frame.withColumn("score", col("score").cast("double"))


def _wider_and_longer(frame: DataFrame) -> DataFrame:
    frame = _wider(frame).withColumn("extra", expr("concat('x', id)"))
    deeper = "named_struct('lat', pos.lat, 'lon', pos.lon, 'height', if(ok, 1.5D, null))"
    return frame.withColumn("pos", expr(f"if(pos is null, null, {deeper})"))


def _reordered(frame: DataFrame) -> DataFrame:
    frame = _wider_and_longer(frame)
    return frame.select(*reversed(frame.columns))


def _evolves(table: TableInMaking) -> None:
    table.write("insert", INSERTED, shape=_with_score)
    table.write("upsert", rows(range(10), version=1, ts=200), shape=_wider)
    table.write("upsert", rows(range(5, 15), version=2, ts=300), shape=_wider_and_longer)
    table.write("upsert", rows(range(12, 20), version=3, ts=400), shape=_reordered)
    table.write("delete", HARD_DELETED, shape=_wider_and_longer)


def _alters(table: TableInMaking) -> None:
    table.write("insert", INSERTED, shape=_with_score)
    table.sql("alter table {table} alter column qty type bigint")
    table.sql("alter table {table} alter column score type double")
    table.sql("alter table {table} add columns (extra string after note)")
    table.sql("alter table {table} rename column price to cost")
    table.sql("alter table {table} drop column day")

    def altered(frame: DataFrame) -> DataFrame:
        frame = _with_score(frame).withColumn("qty", col("qty").cast("bigint"))
        frame = frame.withColumn("score", col("score").cast("double")).drop("day")
        return frame.withColumnRenamed("price", "cost").withColumn("extra", expr("concat('x', id)"))

    table.write("upsert", rows(range(10), version=1, ts=200), shape=altered)
    table.write("upsert", rows(range(5, 15), version=2, ts=50), shape=altered)


def _bulk_inserts(table: TableInMaking) -> None:
    table.write("bulk_insert", INSERTED)
    table.write("insert", rows(range(40, 46), version=0, ts=100))
    table.write("upsert", UPDATED)
    table.write("upsert", LAST)


RECIPES = (
    Recipe(
        "v9_cow_evolved_types",
        "Columns are added (also in a struct), widened (int to long, float to double), reordered.",
        copy_on_write(NO_METADATA, version(9)),
        _evolves,
    ),
    Recipe(
        "v9_mor_evolved_types",
        "Columns are added (also in a struct), widened (int to long, float to double), reordered.",
        merge_on_read(BUCKETS, NO_METADATA, version(9)),
        _evolves,
    ),
    Recipe(
        "v9_cow_schema_on_read",
        "ALTER TABLE renames, drops, adds and widens columns; older files keep their schema.",
        copy_on_write(NO_METADATA, version(9), _SCHEMA_ON_READ),
        _alters,
    ),
    Recipe(
        "v9_mor_schema_on_read",
        "ALTER TABLE renames, drops, adds and widens columns; logs and base files differ.",
        merge_on_read(BUCKETS, NO_METADATA, version(9), _SCHEMA_ON_READ),
        _alters,
    ),
    Recipe(
        "v9_cow_row_writer",
        "Base files bulk-inserted by Spark's own Parquet writer.",
        copy_on_write(NO_METADATA, version(9), _ROW_WRITER),
        _bulk_inserts,
    ),
    Recipe(
        "v9_mor_row_writer",
        "Base files bulk-inserted by Spark's own Parquet writer, with logs on top.",
        merge_on_read(BUCKETS, NO_METADATA, version(9), _ROW_WRITER),
        _bulk_inserts,
    ),
)
