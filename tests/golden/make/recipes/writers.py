"""Concurrent writers: delta commits that overlap in time."""

from __future__ import annotations

from tests.golden.make.options import (
    BUCKETS,
    NO_METADATA,
    Options,
    copy_on_write,
    merge_on_read,
    version,
)
from tests.golden.make.recipe import Recipe
from tests.golden.make.recipes.histories import INSERTED
from tests.golden.make.rows import rows
from tests.golden.make.table_in_making import TableInMaking

_SHARED_LOCK = {
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": ("org.apache.hudi.client.transaction.lock.InProcessLockProvider"),
}
_OPTIMISTIC = {
    **_SHARED_LOCK,
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
}
_NON_BLOCKING = {
    **_SHARED_LOCK,
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
}
_EVERY_COMMIT = {"hoodie.compact.inline.max.delta.commits": "1"}

_SCHEDULE = "call run_compaction(op => 'schedule', table => '{table}')"
_RUN = "call run_compaction(op => 'run', table => '{table}')"


def _other_partitions(table: TableInMaking) -> None:
    """Overlap the commit of a slow writer with commits of other partitions: none conflicts."""
    table.write("insert", INSERTED)
    with table.held_write(rows(range(0, 30, 3), version=1, ts=200)):
        table.write("upsert", rows(range(1, 30, 3), version=2, ts=200))
        table.write("upsert", rows(range(2, 30, 6), version=3, ts=50))
    table.write("upsert", rows(range(0, 30, 4), version=4, ts=210))


def _overlap(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    with table.held_write(rows(range(10), version=1, ts=200)):
        table.write("upsert", rows(range(5, 15), version=2, ts=200))
        table.write("upsert", rows(range(12, 20), version=3, ts=210))
        table.sql(_SCHEDULE, _EVERY_COMMIT)
        table.write("upsert", rows(range(4), version=4, ts=150))
    table.write("upsert", rows([3, 4], version=5, ts=300))


def _overlap_and_compact(table: TableInMaking) -> None:
    _overlap(table)
    table.sql(_RUN)
    table.write("upsert", rows([4, 5], version=6, ts=190))


def _recipe(name: str, shows: str, options: Options, compacted: bool = False) -> Recipe:
    history = _overlap_and_compact if compacted else _overlap
    return Recipe(name, shows, options, history, asks_each_instant=True, may_be_refused=("as_of",))


RECIPES = (
    Recipe(
        "v6_mor_overlapping_writers",
        "Two writers in different partitions; the writer that began first completes last.",
        merge_on_read(BUCKETS, NO_METADATA, version(6), _OPTIMISTIC),
        _other_partitions,
        asks_each_instant=True,
    ),
    Recipe(
        "v9_mor_overlapping_writers",
        "Two writers in different partitions; the writer that began first completes last.",
        merge_on_read(BUCKETS, NO_METADATA, version(9), _OPTIMISTIC),
        _other_partitions,
        asks_each_instant=True,
    ),
    Recipe(
        "v9_cow_overlapping_writers",
        "Two writers in different partitions; the writer that began first completes last.",
        copy_on_write(NO_METADATA, version(9), _OPTIMISTIC),
        _other_partitions,
        asks_each_instant=True,
    ),
    _recipe(
        "v8_mor_non_blocking_writers",
        "Two writers of the same file groups; one completes between plan and execution of a "
        "compaction.",
        merge_on_read(BUCKETS, NO_METADATA, version(8), _NON_BLOCKING),
        compacted=True,
    ),
    _recipe(
        "v9_mor_non_blocking_writers",
        "Two writers of the same file groups; one completes between plan and execution of a "
        "compaction.",
        merge_on_read(BUCKETS, NO_METADATA, version(9), _NON_BLOCKING),
        compacted=True,
    ),
    _recipe(
        "v9_mor_non_blocking_pending",
        "Two writers of the same file groups; one completes while a compaction is pending.",
        merge_on_read(BUCKETS, NO_METADATA, version(9), _NON_BLOCKING),
    ),
)
