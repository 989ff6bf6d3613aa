"""Which partitions expire: by their last commit, or by their creation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

import lakemark
from lakemark.errors import InvalidConfig
from lakemark.operations.open_table import open_table
from lakemark.operations.partition_expiry import find_expired
from lakemark.services.partition_lifetime import (
    MAX_EXPIRED,
    ExpireBy,
    PartitionLifetime,
    end_of_lifetimes,
    expired_partitions,
)
from lakemark.storage import StorageLocation
from lakemark.timeline.clock import UTC_CLOCK
from tests.unit.operations.tables import SCHEMA, contents, instants, rows

NOW = datetime(2026, 5, 1, tzinfo=UTC)
DAY = PartitionLifetime(timedelta(days=1))


def expired(table: lakemark.Table, by: ExpireBy, since: str) -> list[str]:
    """Return the partitions whose lifetime began before an instant."""
    opened = open_table(StorageLocation(table.location))
    moment = UTC_CLOCK.parse(since)
    lifetime = PartitionLifetime(timedelta(hours=1), by)
    choose = find_expired(opened, lifetime, lambda: moment + timedelta(hours=1))
    return list(choose(opened.view()))


def made(table_type: str, version: int) -> lakemark.Table:
    return lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        version=version,
        buckets=1,
    )


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_later_commit_extends_only_the_lifetime_by_commit(table_type: str, version: int) -> None:
    table = made(table_type, version)
    first = table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1))).instant
    second = table.upsert(rows(("a", "north", 2, 2), ("c", "west", 2, 2))).instant
    assert first is not None
    assert second is not None
    after = UTC_CLOCK.format(UTC_CLOCK.parse(second) + timedelta(milliseconds=1))
    for by in ExpireBy:
        assert expired(table, by, first) == []
        assert sorted(expired(table, by, after)) == ["north", "south", "west"]
    assert expired(table, ExpireBy.COMMIT, second) == ["south"]
    assert expired(table, ExpireBy.CREATION, second) == ["north", "south"]


@pytest.mark.parametrize("by", list(ExpireBy))
def test_a_partition_that_was_deleted_begins_a_new_lifetime(by: ExpireBy) -> None:
    table = made("merge_on_read", 9)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    deleted = table.delete_partitions("north").instant
    assert deleted is not None
    later = table.upsert(rows(("a", "north", 1, 1))).instant
    assert later is not None
    assert expired(table, by, deleted) == ["south"]
    assert expired(table, by, later) == ["south"]


def archive(table: lakemark.Table) -> None:
    """Clean and archive all but the newest commits to another partition."""
    for n in range(8):
        table.upsert(rows(("b", "south", n, n)))
    table.clean(retain_commits=1)
    table.archive(min_commits=1, max_commits=2, retain_commits=1)


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_deletion_begins_a_new_lifetime_even_after_it_was_archived(
    table_type: str, version: int
) -> None:
    table = made(table_type, version)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    deleted = table.delete_partitions("north").instant
    again = table.upsert(rows(("a", "north", 1, 1))).instant
    assert deleted is not None
    assert again is not None
    archive(table)
    assert not instants(table, "replacecommit")
    assert expired(table, ExpireBy.CREATION, again) == ["south"]
    after = UTC_CLOCK.format(UTC_CLOCK.parse(again) + timedelta(milliseconds=1))
    assert expired(table, ExpireBy.CREATION, after) == ["south", "north"]


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_updates_do_not_extend_the_lifetime_by_creation_after_an_archived_deletion(
    table_type: str, version: int
) -> None:
    """Clean removes the slice of the first rows, whose commit is in the archive."""
    table = made(table_type, version)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    deleted = table.delete_partitions("north").instant
    table.upsert(rows(("b", "south", 2, 2)))
    again = table.upsert(rows(("a", "north", 1, 1))).instant
    assert deleted is not None
    assert again is not None
    for ts in (2, 3):
        updated = table.upsert(rows(("a", "north", ts, ts))).instant
        if table.properties.is_merge_on_read:
            table.compact()
    archive(table)
    assert not instants(table, "replacecommit")
    assert updated not in instants(table, "deltacommit", "commit")
    assert expired(table, ExpireBy.CREATION, again) == ["south"]
    after = UTC_CLOCK.format(UTC_CLOCK.parse(again) + timedelta(milliseconds=1))
    assert expired(table, ExpireBy.CREATION, after) == ["south", "north"]


def test_a_lifetime_by_creation_begins_with_the_first_rows_after_a_deletion() -> None:
    table = made("merge_on_read", 9)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    table.delete_partitions("north")
    table.upsert(rows(("b", "south", 1, 1)))
    again = table.upsert(rows(("a", "north", 1, 1))).instant
    table.upsert(rows(("a", "north", 2, 2)))
    assert again is not None
    assert expired(table, ExpireBy.CREATION, again) == ["south"]
    after = UTC_CLOCK.format(UTC_CLOCK.parse(again) + timedelta(milliseconds=1))
    assert expired(table, ExpireBy.CREATION, after) == ["south", "north"]


def undone_by_rollback(table: lakemark.Table, instant: str) -> None:
    table.rollback(instant)


def undone_by_restore(table: lakemark.Table, instant: str) -> None:
    table.restore(instants(table, "deltacommit", "commit")[0])


def undone_by_restore_to_empty(table: lakemark.Table, instant: str) -> None:
    table.restore(to_empty=True)


@pytest.mark.parametrize("is_archived", [False, True], ids=["active", "archived"])
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(
    "undo", [undone_by_rollback, undone_by_restore, undone_by_restore_to_empty]
)
def test_a_lifetime_by_creation_does_not_begin_with_a_commit_that_was_undone(
    undo: Callable[[lakemark.Table, str], None], version: int, is_archived: bool
) -> None:
    """The metafile of the partition stays, and names the undone commit."""
    table = made("merge_on_read", version)
    undone = table.upsert(rows(("a", "north", 1, 1))).instant
    assert undone is not None
    undo(table, undone)
    table.upsert(rows(("b", "south", 1, 1)))
    again = table.upsert(rows(("a", "north", 1, 1))).instant
    assert again is not None
    if is_archived:
        archive(table)
    else:
        table.upsert(rows(("a", "north", 2, 2)))
    assert expired(table, ExpireBy.CREATION, again) == ["south"]
    after = UTC_CLOCK.format(UTC_CLOCK.parse(again) + timedelta(milliseconds=1))
    assert expired(table, ExpireBy.CREATION, after) == ["south", "north"]


@pytest.mark.parametrize("version", [6, 8, 9])
def test_an_archived_commit_to_logs_extends_the_lifetime_by_commit(version: int) -> None:
    table = made("merge_on_read", version)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    newest = table.upsert(rows(("a", "north", 2, 2))).instant
    assert newest is not None
    archive(table)
    assert newest not in instants(table, "deltacommit")
    assert expired(table, ExpireBy.COMMIT, newest) == []
    later = UTC_CLOCK.format(UTC_CLOCK.parse(newest) + timedelta(hours=1))
    assert sorted(expired(table, ExpireBy.COMMIT, later)) == ["north", "south"]


def test_a_partition_without_a_known_commit_does_not_expire() -> None:
    began = {"bootstrapped": "00000000000002", "old": "20250101000000"}
    assert expired_partitions(began, "2026") == ["old"]


def test_only_expired_partitions_are_deleted() -> None:
    table = made("merge_on_read", 9)
    table.upsert(rows(("a", "north", 1, 1)))
    assert table.expire_partitions(timedelta(days=1)).partitions == ()
    planned = table.expire_partitions(timedelta(microseconds=1), by="creation", dry_run=True)
    assert [one.path for one in planned.partitions] == ["north"]
    assert len(contents(table)) == 1
    assert table.expire_partitions(timedelta(microseconds=1)).instant is not None
    assert contents(table) == {}


def test_the_oldest_partitions_are_deleted_first() -> None:
    began = {f"p{n}": f"{20250101000000000 + n}" for n in reversed(range(MAX_EXPIRED + 5))}
    found = expired_partitions(began, end_of_lifetimes(DAY, NOW, UTC_CLOCK))
    assert found == [f"p{n}" for n in range(MAX_EXPIRED)]


def test_impossible_lifetimes_are_refused() -> None:
    for wrong in (timedelta(0), timedelta(seconds=-1), timedelta(days=400_000)):
        with pytest.raises(InvalidConfig, match="lifetime"):
            PartitionLifetime(wrong)
    longest = PartitionLifetime(timedelta(days=360_000))
    assert expired_partitions({"p": "2026"}, end_of_lifetimes(longest, NOW, UTC_CLOCK)) == []
    table = made("merge_on_read", 9)
    with pytest.raises(InvalidConfig, match="by"):
        table.expire_partitions(timedelta(days=1), by="age")
    flat = lakemark.create(f"memory://{uuid4().hex}/t", schema=SCHEMA, record_key="id")
    with pytest.raises(InvalidConfig, match="is not partitioned, so that no partition expires"):
        flat.expire_partitions(timedelta(days=1))
