"""What Apache Hudi does in a random history."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from lakemark.model.action import Action
from tests.interop.oracle import CLEANS_AND_ARCHIVES
from tests.interop.random_history.history import History
from tests.interop.random_history.kinds import Kind
from tests.interop.random_history.lakemark_acts import Act, as_table, newest_to_roll_back
from tests.interop.random_history.model import (
    KEYS,
    REGIONS,
    deleted,
    upserted,
    without_partition,
)
from tests.tables import Row

#: A check before the commit that always fails, so that a write leaves its files behind.
REFUSED = {
    "hoodie.precommit.validators": (
        "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator"
    ),
    "hoodie.precommit.validators.single.value.sql.queries": "select count(*) from <TABLE_NAME>#-1",
}

#: Apache Hudi replaces no partition of a table that has a secondary index.
_HAS_SECONDARY_INDEX = "on secondary index"

#: Apache Hudi executes no log compaction that was planned before another compaction.
_IS_BEFORE_COMPACTION = "since a compaction instant with greater timestamp exists"

#: Apache Hudi does not complete a restore to a commit that is older than the metadata table.
_HAS_NO_OLDER_METADATA = (
    "since there is no base file in MDT lesser than the commit to restore to",
    "Unable to find completion time for instant",
)

#: Apache Hudi does not complete a restore if its own refused ``DROP PARTITION`` is pending: it
#: cannot read the empty metadata of this replace commit.
_HAS_REFUSED_DROP = 'HoodieReplaceCommitMetadata.getPartitionToReplaceFileIds()" is null'


def upsert(history: History) -> None:
    rows, before = history.some_rows(), history.model.rows
    table = as_table(rows)
    history.ask_apache(
        f"upsert {[(row.id, row.ts) for row in rows]}",
        lambda: history.oracle.write(history.path, table, history.kind.twin()),
        lambda: upserted(before, rows),
    )


def upsert_with_services(history: History) -> None:
    """Upsert, clean and archive in one call."""
    if saves_an_empty_partition(history):
        return
    rows, before = history.some_rows(), history.model.rows
    table, options = as_table(rows), dict(CLEANS_AND_ARCHIVES)
    if history.open:  # documented: its archival ignores the base of open commits
        options["hoodie.archive.automatic"] = "false"
    history.ask_apache(
        "upsert, clean and archive",
        lambda: history.oracle.write(history.path, table, history.kind.twin(), options=options),
        lambda: upserted(before, rows),
    )


def failing_upsert(history: History) -> None:
    """Upsert, and fail before the commit."""
    table = as_table(history.some_rows())

    def fail() -> None:
        history.oracle.write(history.path, table, history.kind.twin(), options=REFUSED)
        message = "Apache Hudi has committed although the check before the commit fails"
        raise AssertionError(message)

    history.ask_apache("upsert that fails before its commit", fail, may_fail=["alidat"])


def delete(history: History) -> None:
    names, before = history.draw.sample([*KEYS], 2), history.model.rows
    table = as_table([Row(name, history.ordering, 0, KEYS[name]) for name in names])
    history.ask_apache(
        f"delete {names}",
        lambda: history.oracle.write(history.path, table, history.kind.twin(), "delete"),
        lambda: deleted(before, names),
    )


def overwrite(history: History) -> None:
    region, before = history.draw.choice(REGIONS), history.model.rows
    rows = history.some_rows(region)
    history.ask_apache(
        f"overwrite {region}",
        lambda: history.oracle.write(
            history.path, as_table(rows), history.kind.twin(), "insert_overwrite"
        ),
        lambda: upserted(without_partition(before, region), rows),
        may_fail=[_HAS_SECONDARY_INDEX],
    )


def delete_partition(history: History) -> None:
    region, before = history.draw.choice(REGIONS), history.model.rows
    history.ask_apache(
        f"delete partition {region}",
        lambda: run_sql(history, f"ALTER TABLE orders DROP PARTITION (region = '{region}')"),
        lambda: without_partition(before, region),
        may_fail=[_HAS_SECONDARY_INDEX, "HoodieDeletePartitionPendingTableServiceException"],
    )


def run_sql(history: History, statement: str) -> None:
    oracle = history.oracle
    with oracle.named("orders", history.path), oracle.settings(history.kind.twin().write_options()):
        oracle.execute(statement)


def call(history: History, procedure: str) -> None:
    """Call a procedure of Apache Hudi; ``{path}`` is the path of the table."""
    with history.oracle.settings(history.kind.twin().write_options()):
        history.oracle.query("CALL " + procedure.format(path=history.path))


def _options(history: History) -> dict[str, str]:
    return history.kind.twin().write_options()


def plan_compaction(history: History) -> None:
    history.ask_apache(
        "plan a compaction",
        lambda: history.oracle.compact(history.path, "schedule", options=_options(history)),
    )


def compact(history: History) -> None:
    """Execute one of the pending compactions."""
    for pending in history.opened().timeline.pending(Action.COMPACTION)[:1]:
        name = pending.requested_at
        run = partial(history.oracle.compact, history.path, "run", instant=name)
        history.ask_apache(f"compact {name}", partial(run, options=_options(history)))


def plan_log_compaction(history: History) -> None:
    history.ask_apache(
        "plan a log compaction",
        lambda: history.oracle.compact_logs(history.path, options=_options(history)),
    )


def compact_logs(history: History) -> None:
    """Execute one of the pending log compactions."""
    for pending in history.opened().timeline.pending(Action.LOG_COMPACTION)[:1]:
        name = pending.requested_at
        run = partial(history.oracle.compact_logs, history.path, name, options=_options(history))
        history.ask_apache(f"compact logs {name}", run, may_fail=[_IS_BEFORE_COMPACTION])


def cluster(history: History, how: str) -> None:
    order = ", order => 'ts,v'" if how != "execute" else ""
    history.ask_apache(
        f"clustering: {how}",
        lambda: call(history, f"run_clustering(path => '{{path}}', op => '{how}'{order})"),
    )


def clean(history: History) -> None:
    if not saves_an_empty_partition(history):
        history.ask_apache(
            "clean",
            lambda: call_named(history, "run_clean(table => 'orders', retain_commits => 2)"),
        )


def saves_an_empty_partition(history: History) -> bool:
    """Return whether a savepoint keeps files of a partition whose file groups were all replaced.

    Documented: a clean of Apache Hudi deletes the folder of such a partition with these files.
    """
    table = history.opened()
    kept = {one.group.partition_path for one in table.view().latest_slices()}
    saved = map(table.store.read_savepoint, table.timeline.completed(Action.SAVEPOINT))
    return any(not one.files.keys() <= kept for one in saved)


def call_named(history: History, procedure: str) -> None:
    oracle = history.oracle
    with oracle.named("orders", history.path), oracle.settings(history.kind.twin().write_options()):
        oracle.query(f"CALL {procedure}")


def archive(history: History) -> None:
    if not history.open:
        procedure = (
            "archive_commits(table => 'orders', min_commits => 3, max_commits => 5, "
            f"retain_commits => 2, enable_metadata => {str(history.kind.has_metadata).lower()})"
        )
        history.ask_apache("archive", lambda: call_named(history, procedure))


def savepoint(history: History) -> None:
    past = history.model.past
    if past:
        name = past[-1][0].requested_at
        history.ask_apache(
            f"savepoint {name}",
            lambda: call_named(
                history, f"create_savepoint(table => 'orders', commit_time => '{name}')"
            ),
        )


def roll_back(history: History) -> None:
    found = newest_to_roll_back(history)
    if found is not None and not history.opened().timeline.pending():
        name, before = found
        options = _options(history)
        history.ask_apache(
            f"roll back {name}",
            lambda: history.oracle.rollback(history.path, name, options),
            lambda: before,
            may_fail=["Could not rollback a savepointed commit"],
        )


def restore(history: History) -> None:
    """Restore to a savepoint with which no other commit overlaps."""
    saved = {i.requested_at for i in history.opened().timeline.completed(Action.SAVEPOINT)}
    found = [
        (instant.requested_at, rows)
        for number, (instant, rows) in enumerate(history.model.past)
        if instant.requested_at in saved and history.model.is_isolated(number) and rows is not None
    ]
    if found and not history.open:
        name, rows = found[-1]
        history.ask_apache(
            f"restore to {name}",
            lambda: call(
                history, f"rollback_to_savepoint(path => '{{path}}', instant_time => '{name}')"
            ),
            lambda: rows,
            may_fail=[*_HAS_NO_OLDER_METADATA, _HAS_REFUSED_DROP],
        )
        if history.opened().timeline.pending(Action.RESTORE):
            history.act_in_stages("complete the restore", lambda table: table.restore(), rows)


def create_index(history: History) -> None:
    if not history.open:
        history.ask_apache(
            "create index of_v",
            lambda: run_sql(history, "CREATE INDEX of_v ON orders (v)"),
            may_fail=["Index already exists"],
        )


def acts_of(kind: Kind) -> Iterator[tuple[Act, int]]:
    """Yield the acts of a table, with their weights."""
    yield from ((upsert, 6), (upsert_with_services, 2), (failing_upsert, 2), (clean, 1))
    yield from ((archive, 1), (savepoint, 1), (roll_back, 1), (restore, 1))
    if kind.is_merge_on_read:
        yield from ((plan_compaction, 2), (compact, 3), (plan_log_compaction, 1), (compact_logs, 2))
    if not kind.non_blocking:
        yield from ((delete, 2), (overwrite, 2), (delete_partition, 1))
    if not kind.has_buckets:
        yield partial(cluster, how="scheduleAndExecute"), 1
        yield partial(cluster, how="schedule"), 1
        yield partial(cluster, how="execute"), 2
    if kind.index == "record_index":
        yield create_index, 1
