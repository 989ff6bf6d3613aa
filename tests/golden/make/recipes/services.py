"""Table services that are pending or done, and writers that died."""

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
from tests.golden.make.recipes.histories import (
    AFTERWARDS,
    HARD_DELETED,
    INSERTED,
    LAST,
    LATE_AND_DELETED,
    UPDATED,
    five_commits,
)
from tests.golden.make.rows import rows
from tests.golden.make.table_in_making import TableInMaking

_EVERY_COMMIT = {"hoodie.compact.inline.max.delta.commits": "1"}
_SMALL_FILES = {
    "hoodie.clustering.plan.strategy.sort.columns": "qty",
    "hoodie.clustering.plan.strategy.small.file.limit": "1000000000",
}
_LAZY = {
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": ("org.apache.hudi.client.transaction.lock.InProcessLockProvider"),
}
_CLEANED = {"hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": "1"}
_BY_MARKERS_NOT = {"hoodie.rollback.using.markers": "false"}


def _pending_compaction(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.sql("call run_compaction(op => 'schedule', table => '{table}')", _EVERY_COMMIT)
    table.write("upsert", LATE_AND_DELETED)
    table.write("delete", HARD_DELETED)
    table.write("upsert", LAST)


def _pending_clustering(table: TableInMaking) -> None:
    only_r0 = "selected_partitions => 'r0'"
    table.write("insert", INSERTED)
    table.write("insert", rows(range(40, 46), version=0, ts=100))
    table.sql(f"call run_clustering(op => 'schedule', table => '{{table}}', {only_r0})")
    table.write("upsert", rows(range(1, 20, 3), version=1, ts=200))
    table.write("insert", rows(range(50, 56), version=2, ts=100))


def _clustered(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.sql("call run_clustering(table => '{table}', order => 'qty')")
    table.write("upsert", LATE_AND_DELETED)
    table.write("delete", HARD_DELETED)


def _refused(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.write_that_fails(LATE_AND_DELETED)


def _refused_then_others(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write_that_fails(rows(range(5, 15), version=7, ts=500))
    table.write("upsert", UPDATED)
    table.write("upsert", LATE_AND_DELETED)


def _died_at_the_last_step(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.write("upsert", LATE_AND_DELETED)
    table.forget_completion()


def _refused_then_rolled_back(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.write_that_fails(rows(range(5, 15), version=7, ts=500))
    table.write("upsert", LATE_AND_DELETED)
    table.write("delete", HARD_DELETED)


def _rolled_back_on_purpose(table: TableInMaking) -> None:
    five_commits(table)
    table.roll_back_last_write()
    table.write("upsert", AFTERWARDS)


def _partition_deleted(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.write(
        "delete_partition",
        rows([0], version=0, ts=0),
        options={"hoodie.datasource.write.partitions.to.delete": "r1"},
    )
    table.write("upsert", rows([4, 5, 6, 7], version=4, ts=250))


def _overwritten(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.write("insert_overwrite_table", rows(range(10, 20), version=8, ts=100))
    table.write("upsert", rows(range(15, 25), version=9, ts=50))


def _savepoint_kept(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    instant = table.last_write()
    table.sql(f"call create_savepoint(table => '{{table}}', commit_time => '{instant}')")
    table.write("upsert", LATE_AND_DELETED)
    table.write("upsert", LAST)
    table.write("upsert", AFTERWARDS)
    table.write("upsert", rows(range(20, 30), version=7, ts=410))


def _with_pending_compaction(number: int) -> Recipe:
    return Recipe(
        f"v{number}_mor_pending_compaction",
        "A compaction is planned but not executed; delta commits follow.",
        merge_on_read(BUCKETS, NO_METADATA, version(number)),
        _pending_compaction,
        asks_each_instant=number == 9,
    )


def _with_pending_clustering(number: int) -> Recipe:
    return Recipe(
        f"v{number}_cow_pending_clustering",
        "A clustering of one partition is planned but not executed; other partitions are written.",
        copy_on_write(NO_METADATA, version(number), _SMALL_FILES),
        _pending_clustering,
    )


def _with_dead_writer(number: int, index: Options) -> Recipe:
    return Recipe(
        f"v{number}_mor_dead_writer",
        "The last writer died after it wrote its files: its instant is inflight.",
        merge_on_read(index, NO_METADATA, version(number)),
        _refused,
    )


def _with_command_blocks(number: int) -> Recipe:
    return Recipe(
        f"v{number}_mor_failed_write",
        "The next commit rolls back a failed delta commit by "
        + ("command blocks in that commit's logs." if number == 6 else "deleting its log files."),
        merge_on_read(BUCKETS, NO_METADATA, version(number)),
        _refused_then_rolled_back,
    )


RECIPES = (
    *(_with_pending_compaction(number) for number in (6, 8, 9)),
    *(_with_pending_clustering(number) for number in (6, 9)),
    Recipe(
        "v9_mor_clustered",
        "Clustering of file groups that have logs.",
        merge_on_read(NO_METADATA, version(9), _SMALL_FILES),
        _clustered,
    ),
    _with_dead_writer(6, BUCKETS),
    _with_dead_writer(9, BUCKETS),
    Recipe(
        "v9_cow_dead_writer",
        "The last writer died after it wrote its base files: its instant is inflight.",
        copy_on_write(NO_METADATA, version(9)),
        _refused,
    ),
    Recipe(
        "v9_mor_dead_writer_lazy",
        "A writer died, and others continued: its inflight instant lies between completed ones.",
        merge_on_read(BUCKETS, NO_METADATA, version(9), _LAZY),
        _refused_then_others,
        asks_each_instant=True,
        may_be_refused=("as_of",),
    ),
    Recipe(
        "v6_mor_dead_writer_lazy",
        "A writer died, and others continued: its blocks are in the same log files as theirs.",
        merge_on_read(BUCKETS, NO_METADATA, version(6), _LAZY),
        _refused_then_others,
        asks_each_instant=True,
        may_be_refused=("as_of", "incremental"),
    ),
    Recipe(
        "v9_mor_died_before_completion",
        "A writer died after it wrote to the metadata table, before its instant completed.",
        merge_on_read(BUCKETS, version(9)),
        _died_at_the_last_step,
    ),
    _with_command_blocks(6),
    _with_command_blocks(9),
    Recipe(
        "v6_mor_rollback",
        "A completed delta commit is rolled back by command blocks; more commits follow.",
        merge_on_read(BUCKETS, NO_METADATA, version(6), _BY_MARKERS_NOT),
        _rolled_back_on_purpose,
    ),
    Recipe(
        "v9_cow_delete_partition",
        "A partition is deleted and then written again.",
        copy_on_write(NO_METADATA, version(9)),
        _partition_deleted,
    ),
    Recipe(
        "v9_mor_delete_partition",
        "A partition is deleted and then written again.",
        merge_on_read(NO_METADATA, version(9)),
        _partition_deleted,
    ),
    Recipe(
        "v9_mor_insert_overwrite_table",
        "The whole table is overwritten and then written again.",
        merge_on_read(NO_METADATA, version(9)),
        _overwritten,
    ),
    Recipe(
        "v9_cow_savepoint",
        "A savepoint keeps its files while cleaning deletes other files.",
        copy_on_write(NO_METADATA, version(9), _CLEANED),
        _savepoint_kept,
        asks_each_instant=True,
        may_be_refused=("as_of", "incremental"),
    ),
)
