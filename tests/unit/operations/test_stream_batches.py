"""A batch of a stream is written once, although its writer repeats it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lakemark
from lakemark.errors import InvalidConfig, WriteConflict
from lakemark.operations.commit_attempts import CommitAttempts
from lakemark.operations.stream_batch import BATCH_KEY
from lakemark.transaction.transaction import Transaction
from tests.unit.operations.tables import create, operations, reopen, rows


def values(table: lakemark.Table) -> dict[str, int]:
    found = lakemark.open(table.location).snapshot(["id", "v"]).read_all().to_pylist()
    return {row["id"]: row["v"] for row in found}


def recorded(table: lakemark.Table) -> list[dict[str, str]]:
    """Return what each commit records, in order."""
    opened = lakemark.open(table.location)
    store = opened._table.store
    commits = (store.read_commit(instant) for instant in opened.timeline.completed())
    found = (commit.extra_metadata.get(BATCH_KEY) for commit in commits)
    return [json.loads(text) for text in found if text is not None]


@pytest.mark.parametrize("version", [6, 9])
def test_a_repeated_batch_writes_nothing(tmp_path: Path, version: int) -> None:
    table = create(str(tmp_path / "orders"), version=version)
    with table.batch("orders", 0):
        first = table.upsert(rows(("a", "r", 1, 1)))
    for again in (table, lakemark.open(table.location)):
        before = operations(again)
        with again.batch("orders", 0):
            repeated = again.upsert(rows(("a", "r", 2, 2)))
        assert (repeated.repeats, repeated.instant, repeated.files) == (first.instant, None, 0)
        assert operations(again) == before
    with table.batch("orders", 1):
        assert table.upsert(rows(("a", "r", 3, 3))).repeats is None
    with table.batch("orders", 0):
        assert table.delete(["a"]).repeats is not None, "a later batch was written"
    with table.batch("others", 0):
        assert table.upsert(rows(("b", "r", 1, 5))).repeats is None, "streams are independent"
    assert values(table) == {"a": 3, "b": 5}
    assert recorded(table) == [{"orders": "0"}, {"orders": "1"}, {"others": "0"}]


def test_the_record_of_a_batch_outlives_archival(tmp_path: Path) -> None:
    table = create(str(tmp_path / "orders"))
    with table.batch("orders", 7):
        first = table.upsert(rows(("a", "r", 1, 1)))
    for number in range(6):
        table.upsert(rows(("b", "r", number, number)))
    table.compact()
    table.clean(retain_commits=1)
    table.archive(min_commits=2, max_commits=3, retain_commits=1)
    opened = lakemark.open(table.location)
    assert first.instant is not None
    assert opened.timeline.find(first.instant) is None, "the commit is archived"
    with opened.batch("orders", 7):
        assert opened.upsert(rows(("a", "r", 9, 9))).repeats == first.instant
    assert values(table)["a"] == 1


def test_a_batch_that_was_rolled_back_is_written_again(tmp_path: Path) -> None:
    table = create(str(tmp_path / "orders"))
    with table.batch("orders", 3):
        first = table.upsert(rows(("a", "r", 1, 1)))
    assert first.instant is not None
    table.rollback(first.instant)
    with table.batch("orders", 3):
        assert table.upsert(rows(("a", "r", 2, 2))).repeats is None
    assert values(table) == {"a": 2}


def test_two_writers_of_one_stream_write_a_batch_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second writer commits while the first one, which has found no record, is writing."""
    table = create(str(tmp_path / "orders"))
    other = reopen(table.location)
    original, wrote = Transaction.commit, list[str | None]()

    def commit(self: Transaction, *args: Any, **given: Any) -> Any:
        if not wrote:
            wrote.append("")
            with other.batch("orders", 0):
                wrote[0] = other.upsert(rows(("b", "s", 1, 1))).instant
        return original(self, *args, **given)

    monkeypatch.setattr(Transaction, "commit", commit)
    with table.batch("orders", 0):
        result = table.upsert(rows(("a", "r", 1, 1)))
    assert result.repeats == wrote[0]
    assert values(table) == {"b": 1}
    assert not lakemark.open(table.location).timeline.pending()


def test_a_batch_is_one_commit(tmp_path: Path) -> None:
    """A second call is refused, also when the first one finds that the batch is repeated."""
    table = create(str(tmp_path / "orders"))
    for _ in range(2):
        with table.batch("orders", 0):
            table.upsert(rows(("a", "r", 1, 1)))
            with pytest.raises(InvalidConfig, match="a batch is one commit"):
                table.upsert(rows(("b", "r", 1, 1)))
    assert values(table) == {"a": 1}
    with (
        table.batch("orders", 1),
        pytest.raises(InvalidConfig, match="before the end"),
        table.batch("orders", 2),
    ):
        pass
    with table.batch("orders", 1):
        table.upsert(rows())
        with pytest.raises(InvalidConfig, match="batch 1 of stream 'orders' is written by"):
            table.upsert(rows(("b", "r", 1, 1)))
    wrong: list[tuple[Any, Any]] = [("", 1), ("orders", -1), ("orders", True), (3, 1), ("o", "1")]
    for stream, number in wrong:
        with (
            pytest.raises(InvalidConfig, match=r"is (''|-1|True|3|'1'); pass"),
            table.batch(stream, number),
        ):
            pass


def test_a_failed_batch_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(str(tmp_path / "orders"))

    def fail(*_: object) -> None:
        message = "another writer"
        raise WriteConflict(message)

    with monkeypatch.context() as patch:
        patch.setattr(CommitAttempts, "_check", fail)
        with pytest.raises(WriteConflict), table.batch("orders", 0):
            table.upsert(rows(("a", "r", 1, 1)))
    with table.batch("orders", 0):
        assert table.upsert(rows(("a", "r", 1, 1))).repeats is None
    assert recorded(table) == [{"orders": "0"}]
