"""Partitions of the metadata table: secondary and expression indexes, statistics."""

from __future__ import annotations

from collections.abc import Callable

from tests.golden.make.options import CONSISTENT_HASHING, copy_on_write, merge_on_read, version
from tests.golden.make.recipe import Recipe
from tests.golden.make.recipes.histories import (
    HARD_DELETED,
    INSERTED,
    LAST,
    LATE_AND_DELETED,
    UPDATED,
)
from tests.golden.make.table_in_making import TableInMaking

_RECORD_INDEX = {
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
    # CREATE INDEX acts like a second writer
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}
_PARTITIONED_RECORD_INDEX = {
    "hoodie.metadata.record.level.index.enable": "true",
    "hoodie.index.type": "RECORD_LEVEL_INDEX",
    "hoodie.metadata.record.level.index.min.filegroup.count": "2",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}
_STATISTICS = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
}
_COMPACTED_METADATA = {"hoodie.metadata.compact.max.delta.commits": "3"}


_SECONDARY = "create index idx_note on {table} (note)"
_DAY_OF_SECONDS = (
    "create index idx_ts_day on {table} using column_stats(ts) "
    "options(expr='from_unixtime', format='yyyy-MM-dd')"
)
# of a column without nulls, at which Apache Hudi fails
_UPPER_ID = "create index idx_id_upper on {table} using bloom_filters(id) options(expr='upper')"


def _with_indexes(*statements: str) -> Callable[[TableInMaking], None]:
    def write(table: TableInMaking) -> None:
        table.write("insert", INSERTED)
        table.write("upsert", UPDATED)
        for statement in statements:
            table.sql(statement)
        table.write("upsert", LATE_AND_DELETED)
        table.write("delete", HARD_DELETED)
        table.write("upsert", LAST)

    return write


def _with_split_buckets(table: TableInMaking) -> None:
    table.write("upsert", INSERTED)
    table.write("upsert", UPDATED)
    table.write(
        "upsert",
        LATE_AND_DELETED,
        options={"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"},
    )
    table.write("delete", HARD_DELETED)
    table.write("upsert", LAST)


RECIPES = (
    Recipe(
        "v9_mor_consistent_hashing",
        "A bucket index with consistent hashing, whose buckets a clustering has split.",
        merge_on_read(version(9), CONSISTENT_HASHING),
        _with_split_buckets,
    ),
    Recipe(
        "v8_mor_secondary_index",
        "Record index and a secondary index on note.",
        merge_on_read(version(8), _RECORD_INDEX),
        _with_indexes(_SECONDARY),
    ),
    Recipe(
        "v9_mor_secondary_index",
        "Record index and a secondary index on note.",
        merge_on_read(version(9), _RECORD_INDEX),
        _with_indexes(_SECONDARY),
    ),
    Recipe(
        "v9_mor_partitioned_record_index",
        "A record index whose keys are unique within a partition, in a compacted metadata table.",
        merge_on_read(version(9), _PARTITIONED_RECORD_INDEX, _COMPACTED_METADATA),
        _with_indexes(),
    ),
    Recipe(
        "v9_cow_expression_index",
        "Statistics of from_unixtime(ts) and Bloom filters of upper(id).",
        copy_on_write(version(9), _RECORD_INDEX),
        _with_indexes(_DAY_OF_SECONDS, _UPPER_ID),
    ),
    Recipe(
        "v9_cow_column_stats",
        "Column and partition statistics in a metadata table that was compacted.",
        copy_on_write(version(9), _STATISTICS, _COMPACTED_METADATA),
        _with_indexes(),
    ),
    Recipe(
        "v8_mor_column_stats",
        "Column and partition statistics in a metadata table that was compacted.",
        merge_on_read(version(8), _STATISTICS, _COMPACTED_METADATA),
        _with_indexes(),
    ),
)
