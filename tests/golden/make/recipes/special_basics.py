"""Tables of version 9 with a history or an option of their own."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, concat, lit

from tests.golden.make.options import (
    BUCKETS,
    copy_on_write,
    keyed_by,
    merge_on_read,
    version_unpinned,
)
from tests.golden.make.recipe import Recipe
from tests.golden.make.recipes.histories import (
    AFTERWARDS,
    HARD_DELETED,
    INSERTED,
    five_commits,
)
from tests.golden.make.rows import rows
from tests.golden.make.table_in_making import TableInMaking

_WITH_CDC = {"hoodie.table.cdc.enabled": "true"}
_CLUSTERED = {
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "2",
    "hoodie.clustering.plan.strategy.sort.columns": "qty",
    "hoodie.clustering.plan.strategy.small.file.limit": "1000000000",
}
_HIVE_STYLE_AND_ENCODED = {
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
}


def _insert_overwrite(table: TableInMaking) -> None:
    five_commits(table)
    table.write("insert_overwrite", rows(range(0, 30, 3), version=9, ts=500))


def _evolved(table: TableInMaking) -> None:
    def wider(frame: DataFrame) -> DataFrame:
        number = (col("qty") / 10).cast("int").cast("string")
        frame = frame.withColumn("extra", concat(lit("x"), number))
        return frame.withColumn("qty", col("qty").cast("bigint"))

    table.write("insert", rows(range(12), version=0, ts=100))
    table.write("upsert", rows(range(6), version=1, ts=200), shape=wider)


def _hive_style(table: TableInMaking) -> None:
    def with_keys(frame: DataFrame) -> DataFrame:
        frame = frame.withColumn("qty0", lit(7))
        return frame.withColumn("day0", concat(col("region"), lit("/a b=c")))

    table.write("insert", rows(range(12), version=0, ts=100), shape=with_keys)
    table.write("upsert", rows(range(6), version=1, ts=200), shape=with_keys)


def _several_orderings(table: TableInMaking) -> None:
    table.write("insert", rows(range(12), version=5, ts=100))
    updates = [rows([number], version=number, ts=100) for number in range(12)]
    table.write("upsert", [row for update in updates for row in update])
    table.write("delete", HARD_DELETED)


def _rolled_back(table: TableInMaking) -> None:
    five_commits(table)
    instant = table.last_write()
    table.sql(f"call rollback_to_instant(table => '{{table}}', instant_time => '{instant}')")
    table.write("upsert", AFTERWARDS)


def _restored(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", rows(range(20), version=1, ts=200))
    instant = table.last_write()
    table.sql(f"call create_savepoint(table => '{{table}}', commit_time => '{instant}')")
    table.write("upsert", rows(range(10, 15), version=2, ts=300))
    table.sql(f"call rollback_to_savepoint(table => '{{table}}', instant_time => '{instant}')")
    table.write("upsert", AFTERWARDS)


RECIPES = (
    Recipe(
        "v9_cow_cdc",
        "Change data capture that logs the values before and after each change; copy-on-write.",
        copy_on_write(version_unpinned(9), _WITH_CDC),
        five_commits,
        asks_cdc=True,
    ),
    Recipe(
        "v9_mor_cdc",
        "Change data capture that logs the values before and after each change; merge-on-read.",
        merge_on_read(BUCKETS, version_unpinned(9), _WITH_CDC),
        five_commits,
        asks_cdc=True,
    ),
    Recipe(
        "v9_cow_clustered",
        "Inline clustering after every second commit.",
        copy_on_write(version_unpinned(9), _CLUSTERED),
        five_commits,
    ),
    Recipe(
        "v9_mor_insert_overwrite",
        "A partition is overwritten: its file groups are replaced.",
        merge_on_read(version_unpinned(9)),
        _insert_overwrite,
    ),
    Recipe(
        "v9_mor_evolved",
        "A column is added and an int becomes a long; the base files still have the old schema.",
        merge_on_read(
            BUCKETS, version_unpinned(9), {"hoodie.datasource.write.reconcile.schema": "true"}
        ),
        _evolved,
        asks_of_the_past=(),
    ),
    Recipe(
        "v9_mor_hive_complex_ts",
        "Two key and two partition columns, Hive-style and URL-encoded paths.",
        merge_on_read(
            version_unpinned(9),
            _HIVE_STYLE_AND_ENCODED,
            keyed_by("ComplexKeyGenerator", record="id,qty0", partition="region,day0"),
        ),
        _hive_style,
        asks_of_the_past=(),
    ),
    Recipe(
        "v9_mor_nonpartitioned_multiorder",
        "No partitions; two ordering columns.",
        merge_on_read(
            BUCKETS,
            version_unpinned(9),
            keyed_by("NonpartitionedKeyGenerator", partition=""),
            {"hoodie.table.ordering.fields": "ts,qty"},
        ),
        _several_orderings,
    ),
    Recipe(
        "v9_mor_rollback",
        "A completed delta commit is rolled back; more commits follow.",
        merge_on_read(BUCKETS, version_unpinned(9)),
        _rolled_back,
    ),
    Recipe(
        "v9_mor_savepoint_restore",
        "The table is restored to a savepoint; more commits follow.",
        merge_on_read(BUCKETS, version_unpinned(9)),
        _restored,
    ),
)
