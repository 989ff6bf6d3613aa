"""What processes of lakemark do in a random history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pyarrow as pa

from lakemark.errors import Retriable, WriteConflict
from lakemark.model.row_order import RowOrder
from lakemark.operations.cluster import schedule_clustering
from lakemark.operations.compact import request_compaction
from lakemark.operations.compact_logs import schedule_log_compaction
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.table import Table
from lakemark.transaction.conflicts import ClusteringPlanned
from tests.interop.random_history.history import History, OpenCommit
from tests.interop.random_history.kinds import Kind, writer_of
from tests.interop.random_history.model import (
    KEYS,
    REGIONS,
    Rows,
    deleted,
    upserted,
    without_partition,
)
from tests.tables import SCHEMA, Row, write_files

Act = Callable[[History], None]

PIPELINES = ("ann", "bob")


def as_table(rows: list[Row]) -> pa.Table:
    given = [{"id": row.id, "region": row.region, "ts": row.ts, "v": row.v} for row in rows]
    return pa.Table.from_pylist(given, SCHEMA)


# Pipelines, whose commits overlap with other acts


def write(history: History, name: str) -> None:
    """Begin a commit and write its files."""
    if name in history.open:
        publish(history, name)
        return
    rows = history.some_rows()
    process = history.process()
    to = process.writer()
    to.recover()
    files = write_files(to, rows)
    history.open[name] = OpenCommit(process, to, files, rows)
    history.note(f"{name} writes {[(row.id, row.ts) for row in rows]} at {to.pending_instant}")


def publish(history: History, name: str) -> None:
    """Publish the commit of a pipeline, if it has an open one."""
    if name not in history.open:
        return
    one = history.open.pop(name)
    try:
        one.to.commit(one.files, {})
    except (WriteConflict, ClusteringPlanned) as conflict:
        assert not history.kind.non_blocking, conflict
        history.note(f"{name} conflicts: {str(conflict)[:200]}")
        with suppress(Retriable):
            one.to.abandon()
    else:
        history.note(f"{name} publishes")
        history.model.rows = upserted(history.model.rows, one.rows)
    one.process.storage.die()


def die(history: History, name: str) -> None:
    """Let the process of an open commit die."""
    if name in history.open:
        history.note(f"{name} dies")
        history.open.pop(name).process.storage.die()
        history.bury()


def abandon(history: History, name: str) -> None:
    """Let a pipeline roll its open commit back."""
    if name in history.open:
        history.note(f"{name} abandons its commit")
        one = history.open.pop(name)
        one.to.abandon()
        one.process.storage.die()


# Python programs


def upsert(history: History) -> None:
    rows, before = history.some_rows(), history.model.rows
    history.act("upsert", lambda t: t.upsert(as_table(rows)), lambda: upserted(before, rows))


def delete(history: History) -> None:
    names, before = history.draw.sample([*KEYS], 2), history.model.rows
    history.act(
        f"delete {names}",
        lambda t: t.delete(pa.array(names)),
        lambda: deleted(before, names),
    )


def overwrite(history: History) -> None:
    region, before = history.draw.choice(REGIONS), history.model.rows
    rows = history.some_rows(region)
    history.act(
        f"overwrite {region}",
        lambda t: t.insert_overwrite(as_table(rows)),
        lambda: upserted(without_partition(before, region), rows),
    )


def overwrite_table(history: History) -> None:
    rows = history.some_rows()
    history.act(
        "overwrite the table",
        lambda t: t.insert_overwrite_table(as_table(rows)),
        lambda: upserted({}, rows),
    )


def delete_partition(history: History) -> None:
    region, before = history.draw.choice(REGIONS), history.model.rows
    history.act(
        f"delete partition {region}",
        lambda t: t.delete_partitions([f"{region}*"]),
        lambda: without_partition(before, region),
    )


# Table services


def recover(history: History) -> None:
    """Start a pipeline, which undoes what dead writers left."""
    kind = history.kind
    history.act("recover", lambda t: writer_of(kind, t._table).recover())


def compact(history: History) -> None:
    history.act("compact", lambda t: t.compact())


def plan_compaction(history: History) -> None:
    history.act("plan a compaction", lambda t: request_compaction(t._table))


def compact_logs(history: History) -> None:
    history.act("compact logs", lambda t: t.compact_logs(min_logs=2))


def plan_log_compaction(history: History) -> None:
    history.act("plan a log compaction", lambda t: schedule_log_compaction(t._table, 2))


def cluster(history: History) -> None:
    history.act("cluster", lambda t: t.cluster("v"))


def plan_clustering(history: History) -> None:
    policy = ClusteringPolicy(order=RowOrder(("v",)))
    history.act("plan a clustering", lambda t: schedule_clustering(t._table, policy))


def clean(history: History) -> None:
    commits = history.draw.choice((1, 3))
    history.act(f"clean, {commits} commits", lambda t: t.clean(retain_commits=commits))


def archive(history: History) -> None:
    history.act("archive", lambda t: t.archive(min_commits=2, max_commits=4, retain_commits=1))


def rebuild(history: History) -> None:
    history.act("rebuild the metadata table", lambda t: t.rebuild_metadata_table())


def change_index(history: History) -> None:
    """Create bloom filters or a secondary index, or drop it."""
    name, column = history.draw.choice(_indexes(history.kind))

    def change(table: Table) -> None:
        if name in {one.name for one in table.indexes}:
            table.drop_index(name)
        else:
            table.create_index(name, column=column)

    history.act(f"create or drop index {name}", change)


def _indexes(kind: Kind) -> list[tuple[str, str | None]]:
    filters: list[tuple[str, str | None]] = [("bloom_filters", None)]
    return [*filters, ("of_v", "v")] if kind.index == "record_index" else filters


# Undoing


def savepoint(history: History) -> None:
    history.act("savepoint", lambda t: t.savepoint())


def delete_savepoint(history: History) -> None:
    def delete_oldest(table: Table) -> None:
        for name in sorted(table.savepoints)[:1]:
            table.delete_savepoint(name)

    history.act("delete a savepoint", delete_oldest)


def newest_to_roll_back(history: History) -> tuple[str, Rows] | None:
    """Return the newest completed instant and the rows before it, if it may be undone."""
    past = history.model.past
    if history.open or len(past) < 2 or past[-2][1] is None:
        return None
    if not history.model.is_isolated(len(past) - 1):
        return None
    return past[-1][0].requested_at, past[-2][1]


def roll_back(history: History) -> None:
    found = newest_to_roll_back(history)
    if found is not None:
        name, before = found
        history.act_in_stages(f"roll back {name}", lambda t: t.rollback(name), before)


def restore(history: History) -> None:
    """Restore to one of the newest commits; finish the restore if its process dies."""
    past = history.model.past
    numbers = [n for n in range(len(past)) if history.model.is_isolated(n)][-4:]
    if not numbers or history.open:
        return
    instant, rows = past[history.draw.choice(numbers)]
    if rows is None:
        return
    name = instant.requested_at
    history.act_in_stages(f"restore to {name}", lambda t: t.restore(name), rows)


def acts_of(kind: Kind) -> Iterator[tuple[Act, int]]:
    """Yield the acts of a table, with their weights."""
    for name in PIPELINES:
        yield partial(write, name=name), 6
        yield partial(publish, name=name), 6
        yield partial(die, name=name), 1
        yield partial(abandon, name=name), 1
    yield from ((upsert, 4), (recover, 1), (clean, 3), (archive, 2))
    yield from ((savepoint, 1), (delete_savepoint, 1), (roll_back, 2), (restore, 1))
    if kind.has_metadata:
        yield from ((rebuild, 1), (change_index, 2))
    if kind.is_merge_on_read:
        yield from ((compact, 3), (plan_compaction, 2), (compact_logs, 2), (plan_log_compaction, 2))
    if not kind.non_blocking:
        yield from ((delete, 2), (overwrite, 2), (overwrite_table, 1), (delete_partition, 2))
    if not kind.has_buckets:
        yield from ((cluster, 3), (plan_clustering, 2))
