"""Log blocks with special merging: partial updates, log compaction, HFile blocks."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tests.golden.make.options import BUCKETS, NO_METADATA, logs_of, merge_on_read, version
from tests.golden.make.recipe import Recipe
from tests.golden.make.recipes.histories import (
    HARD_DELETED,
    INSERTED,
    LAST,
    LATE_AND_DELETED,
    UPDATED,
    five_commits,
)
from tests.golden.make.rows import rows
from tests.golden.make.table_in_making import TableInMaking

_COMMIT_TIME = {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}
_COMPACTION_AFTER_THREE = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "3",
}
_LOG_COMPACTION = {
    "hoodie.log.compaction.inline": "true",
    "hoodie.log.compaction.blocks.threshold": "2",
}

# Apache Hudi would merge partial rows without the base file, which can end its process
_NOT_INCREMENTAL = ("as_of",)

_MERGE_NOTES = """
merge into {{table}} as t
using (
  select concat('k', lpad(id, 4, '0')) as id, concat('r', id % 3) as region,
         concat('merged-', id, '-{ts}') as note, cast({ts} as bigint) as ts
  from range({first}, {end})
) as s
on t.id = s.id and t.region = s.region
when matched then update set note = s.note, ts = s.ts
"""

_MERGE_PRICES = """
merge into {{table}} as t
using (
  select concat('k', lpad(id, 4, '0')) as id, concat('r', id % 3) as region,
         cast(id + 0.5 as decimal(12,2)) as price,
         cast(null as array<string>) as tags, cast({ts} as bigint) as ts
  from range({first}, {end})
) as s
on t.id = s.id and t.region = s.region
when matched then update set price = s.price, tags = s.tags, ts = s.ts
"""


def _without_marker(frame: DataFrame) -> DataFrame:
    # with that column, Apache Hudi cannot read its own partial blocks
    return frame.drop("_hoodie_is_deleted")


def _merges(table: TableInMaking) -> None:
    table.write("insert", INSERTED, shape=_without_marker)
    table.sql(_MERGE_NOTES.format(first=0, end=10, ts=200))
    table.sql(_MERGE_PRICES.format(first=5, end=15, ts=210))
    table.sql(_MERGE_NOTES.format(first=8, end=12, ts=50))
    newer = rows([6, 7, 20, 21], version=5, ts=220)
    table.write("upsert", newer, shape=_without_marker)
    table.write("delete", HARD_DELETED, shape=_without_marker)
    table.sql(_MERGE_PRICES.format(first=7, end=9, ts=230))


def _log_compactions(table: TableInMaking) -> None:
    five_commits(table)
    table.write("upsert", rows(range(8, 14), version=5, ts=350))
    table.write("upsert", rows(range(0, 36, 4), version=6, ts=360))


def _pending_log_compaction(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.write("upsert", LATE_AND_DELETED)
    table.schedule_log_compaction({"hoodie.log.compaction.blocks.threshold": "1"})
    table.write("upsert", LAST)


def _partial(number: int, block_format: str) -> Recipe:
    return Recipe(
        f"v{number}_mor_partial_{block_format}",
        f"MERGE INTO writes {block_format.title()} blocks that contain only some of the columns.",
        merge_on_read(BUCKETS, NO_METADATA, version(number), logs_of(block_format)),
        _merges,
        asks_of_the_past=_NOT_INCREMENTAL,
    )


def _log_compacted(number: int) -> Recipe:
    return Recipe(
        f"v{number}_mor_log_compacted",
        "Inline log compaction: a block replaces earlier blocks, which stay in their log files.",
        merge_on_read(BUCKETS, NO_METADATA, version(number), _LOG_COMPACTION),
        _log_compactions,
    )


def _hfile(number: int) -> Recipe:
    return Recipe(
        f"v{number}_mor_hfile_bucket",
        "Merge-on-read with a bucket index; data blocks are HFiles.",
        merge_on_read(BUCKETS, NO_METADATA, version(number), logs_of("hfile")),
        five_commits,
        asks_of_the_past=(),
        snapshot_by_java=True,
    )


RECIPES = (
    *(_partial(number, form) for number in (8, 9) for form in ("avro", "parquet")),
    Recipe(
        "v9_mor_partial_commit_time",
        "Blocks with only some of the columns, merged in the order of the commits.",
        merge_on_read(BUCKETS, NO_METADATA, version(9), logs_of("parquet"), _COMMIT_TIME),
        _merges,
        asks_of_the_past=_NOT_INCREMENTAL,
    ),
    Recipe(
        "v9_mor_partial_compacted",
        "Blocks with only some of the columns, before and after a compaction.",
        merge_on_read(BUCKETS, NO_METADATA, version(9), logs_of("avro"), _COMPACTION_AFTER_THREE),
        _merges,
        asks_of_the_past=_NOT_INCREMENTAL,
    ),
    *(_log_compacted(number) for number in (6, 8, 9)),
    Recipe(
        "v9_mor_pending_log_compaction",
        "A log compaction is planned but not executed; delta commits follow.",
        merge_on_read(BUCKETS, NO_METADATA, version(9)),
        _pending_log_compaction,
    ),
    *(_hfile(number) for number in (6, 9)),
)
