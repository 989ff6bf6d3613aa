"""Two Python programs write one table: no row is lost, and no delete misses a row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lakemark
from lakemark.operations import commit_attempts
from lakemark.operations.table_writer import TableWriter
from tests.unit.operations.tables import contents, create, instants, reopen, rows

TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")


@contextmanager
def before_first_commit(
    patch: pytest.MonkeyPatch, meanwhile: Callable[[], object]
) -> Iterator[None]:
    """Call ``meanwhile`` when the next write has written its files and not yet committed."""
    original, done = TableWriter.commit, threading.Event()

    def commit(self: TableWriter, *args: object, **kwargs: object) -> object:
        if not done.is_set():
            done.set()
            meanwhile()
        return original(self, *args, **kwargs)  # type: ignore[arg-type]

    patch.setattr(TableWriter, "commit", commit)
    yield
    assert done.is_set()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_attempts, "_LONGEST_PAUSE_S", 0.01)


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("version", [6, 8, 9])
def test_conflicting_upsert_is_written_again_on_the_other(
    table_type: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = create(str(tmp_path / "orders"), table_type, version, buckets=1)
    ours.upsert(rows(("a", "north", 1, 1), ("b", "north", 1, 1)))
    theirs = reopen(ours.location)

    def meanwhile() -> None:
        theirs.upsert(rows(("b", "north", 2, 2), ("c", "north", 2, 2)))

    with before_first_commit(monkeypatch, meanwhile):
        ours.upsert(rows(("a", "north", 3, 3)))
    assert contents(ours) == {
        "a": ("north", 3, 3),
        "b": ("north", 2, 2),
        "c": ("north", 2, 2),
    }
    assert not reopen(ours.location).timeline.pending()
    assert len(instants(ours, "rollback")) <= 1, "the attempt that conflicted"


@pytest.mark.parametrize("table_type", TYPES)
def test_delete_also_finds_rows_that_another_writer_adds_meanwhile(
    table_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = create(str(tmp_path / "orders"), table_type, buckets=1)
    ours.upsert(rows(("a", "north", 1, 9), ("b", "north", 1, 1)))
    theirs = reopen(ours.location)

    def meanwhile() -> None:
        theirs.upsert(rows(("b", "north", 2, 9), ("c", "north", 2, 9)))

    with before_first_commit(monkeypatch, meanwhile):
        assert ours.delete(where="v = 9").deletes == 3
    assert contents(ours) == {}


def test_added_columns_of_both_writers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = create(str(tmp_path / "orders"), buckets=1)
    ours.upsert(rows(("a", "north", 1, 1)))
    theirs = reopen(ours.location)
    some = rows(("b", "north", 1, 1))

    def meanwhile() -> None:
        theirs.upsert(some.append_column("x", some["id"]), add_columns=True)

    with before_first_commit(monkeypatch, meanwhile):
        ours.upsert(rows(("c", "north", 1, 1)).append_column("y", some["ts"]), add_columns=True)
    found = reopen(ours.location).snapshot(["id", "x", "y"]).read_all().to_pylist()
    assert {row["id"]: (row["x"], row["y"]) for row in found} == {
        "a": (None, None),
        "b": ("b", None),
        "c": (None, 1),
    }


def test_conflict_that_never_ends_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = create(str(tmp_path / "orders"), buckets=1)
    ours.upsert(rows(("a", "north", 0, 0)))
    theirs, original = reopen(ours.location), TableWriter.commit
    counts = iter(range(1, 100))

    def commit(self: TableWriter, *args: object, **kwargs: object) -> object:
        if self.table is ours._table:
            ts = next(counts)
            theirs.upsert(rows(("a", "north", ts, ts)))
        return original(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(TableWriter, "commit", commit)
    with pytest.raises(lakemark.WriteConflict, match="file group"):
        ours.upsert(rows(("b", "north", 1, 1)))
    assert set(contents(ours)) == {"a"}
    assert not reopen(ours.location).timeline.pending()


def test_many_writers_lose_no_row(tmp_path: Path) -> None:
    table = create(str(tmp_path / "orders"), buckets=1)
    failures: list[BaseException] = []

    def write(name: str) -> None:
        own = reopen(table.location)
        try:
            for n in range(4):
                own.upsert(rows((f"{name}{n}", name, n, n)))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("x", "y", "z")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert contents(table) == {f"{name}{n}": (name, n, n) for name in "xyz" for n in range(4)}
