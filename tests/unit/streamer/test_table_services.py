"""``table compact``, ``clean``, ``archive``, ``rollback``, ``savepoint`` and ``restore``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamer.cli import FAILED, MISUSED, OK, main
from table.config.table_properties import TableType
from table.model.action import Action
from table.storage import Storage, StorageLocation, open_storage
from table.timeline.timeline import Timeline
from tests.golden.golden_table import unpack
from tests.tables import Row, commit, contents, make, write_files, writer

Rows = list[dict[str, Any]]
Run = Callable[..., Rows]


def table_at(folder: Path, table_type: TableType = TableType.MERGE_ON_READ) -> Storage:
    """A table of three commits of one row each, the second over the first."""
    storage = open_storage(StorageLocation(str(folder)))
    make(storage, table_type)
    for row in (Row("a", 1, 1), Row("a", 2, 2), Row("b", 3, 3)):
        commit(writer(storage), [row])
    return storage


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command on the table in ``t``, and returns the rows that it printed."""

    def on_table(what: str, *options: str) -> Rows:
        capsys.readouterr()
        assert main(["table", what, str(tmp_path / "t"), *options, "--json"]) == OK
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return on_table


def timeline(storage: Storage) -> Timeline:
    return writer(storage).table.timeline


def names(storage: Storage) -> list[str]:
    return [i.requested_at for i in timeline(storage).completed(Action.DELTA_COMMIT)]


def test_compact_plans_schedules_and_runs(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    expected, before = contents(storage), timeline(storage)
    (planned,) = run("compact")
    assert (planned["instant"], planned["partition"], planned["logs"]) == (None, "north", 1)
    assert timeline(storage) == before, "a plan that is printed changes nothing"

    (scheduled,) = run("compact", "--schedule")
    assert run("compact", "--schedule") == [], "what is pending is not planned again"
    assert run("compact", "--plan") == [scheduled]
    commit(writer(storage), [Row("a", 4, 4)], {"deltastreamer.checkpoint.key": "t,0:4"})
    (done,) = run("compact", "--run")
    assert scheduled["instant"] == done["instant"]
    assert (done["slices"], done["rows"]) == (1, 1)
    assert contents(storage) == {**expected, "a": (4, 4)}
    extra = writer(storage).table.newest_metadata()
    assert extra is not None
    assert extra.extra_metadata["deltastreamer.checkpoint.key"] == "t,0:4"
    assert extra.extra_metadata["lakemark.bucket.count"] == "2"

    assert [row["rows"] for row in run("compact", "--run")] == [1], "the log since the plan"
    assert run("compact", "--run") == []
    assert contents(storage) == {**expected, "a": (4, 4)}


@pytest.mark.spark
def test_compact_runs_in_a_spark_session(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    expected, jobs = contents(storage), spark.sparkContext.statusTracker()
    before = set(jobs.getJobIdsForGroup())
    (done,) = run("compact", "--run", "--runner", "spark")
    assert (done["slices"], done["rows"]) == (1, 1)
    assert set(jobs.getJobIdsForGroup()) > before, "it was done in the session"
    assert contents(storage) == expected
    assert not [one for one in writer(storage).table.view().latest_slices() if one.logs]


def test_clean_keeps_what_is_retained_and_what_a_savepoint_keeps(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    first = timeline(storage).completed(Action.COMMIT)[0].requested_at
    (planned,) = run("clean", "--retain-versions", "1")
    assert first in planned["file"]
    assert run("clean", "--plan") == [], "ten commits are retained"
    (kept,) = run("savepoint", "--create", first, "--user", "ann", "--comment", "why")
    assert (kept["instant"], kept["user"], kept["files"]) == (first, "ann", 1)
    assert run("clean", "--retain-versions", "1") == []
    assert run("savepoint", "--delete", first) == []

    (scheduled,) = run("clean", "--schedule", "--retain-versions", "1")
    assert run("clean") == [scheduled]
    assert scheduled["file"] == planned["file"]
    assert run("clean", "--run") == [scheduled]
    assert storage.head(f"north/{planned['file']}") is None
    assert contents(storage) == {"a": (2, 2), "b": (3, 3)}


def test_a_commit_whose_predecessor_was_cleaned_stays(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    commit(writer(storage), [Row("b", 4, 4)])
    assert run("clean", "--run", "--retain-versions", "1")
    _, second, *_, newest = timeline(storage).completed(Action.COMMIT)
    told = main(["table", "rollback", str(tmp_path / "t"), newest.requested_at, "--run"])
    assert (told, "was cleaned away" in capsys.readouterr().err) == (FAILED, True)
    told = main(["table", "restore", str(tmp_path / "t"), "--to", second.requested_at])
    assert (told, "may be gone" in capsys.readouterr().err) == (FAILED, True)
    assert contents(storage) == {"a": (2, 2), "b": (4, 4)}


def test_archive_moves_what_is_over_the_limit(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    # With one, all instants since its newest compaction stay.
    writer(storage).table.drop_metadata_table()
    assert run("archive") == []
    limits = ("--min-commits", "1", "--max-commits", "2", "--retain-versions", "1")
    planned = run("archive", *limits)
    first = timeline(storage).completed(Action.COMMIT)[0].requested_at
    assert planned[0]["instant"] == first
    assert run("archive", "--run", *limits) == planned
    assert timeline(storage).find(first) is None
    assert contents(storage) == {"a": (2, 2), "b": (3, 3)}


def test_rollback_undoes_the_newest_commit(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    newest = names(storage)[-1]
    planned = run("rollback", newest)
    assert [newest in row["file"] for row in planned] == [True]
    assert contents(storage) == {"a": (2, 2), "b": (3, 3)}
    assert run("rollback", newest, "--run") == planned
    assert contents(storage) == {"a": (2, 2)}
    assert newest not in names(storage)


def test_restore_undoes_all_that_is_later(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    first, second, third = names(storage)
    assert [row["instant"] for row in run("restore", "--to", first)] == [third, second]
    assert contents(storage) == {"a": (2, 2), "b": (3, 3)}
    undone = run("restore", "--to", first, "--run")
    assert [row["instant"] for row in undone] == [third, second]
    assert contents(storage) == {"a": (1, 1)}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("rollback {t} 20200101000000000", MISUSED, "is not on the active timeline"),
        ("rollback {t} {first} --run", FAILED, "came after it; roll that back first"),
        ("savepoint {t} --create 20200101000000000", MISUSED, "is no completed commit"),
        ("savepoint {t} --delete {first}", MISUSED, "there is no savepoint"),
        ("restore {t} --run", MISUSED, "no restore is pending; name what to restore to"),
        ("restore {t} --to 20200101000000000", MISUSED, "is no completed commit"),
        ("archive {t} --min-commits 3 --max-commits 2", MISUSED, "at most 2 active commits"),
        ("compact {t}/nowhere", FAILED, "no Hudi table"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, code: int, message: str
) -> None:
    storage = table_at(tmp_path / "t")
    text = words.format(t=tmp_path / "t", first=names(storage)[0])
    assert main(["table", *text.split()]) == code
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert contents(storage) == {"a": (2, 2), "b": (3, 3)}


def test_the_newest_commit_stays_while_another_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = table_at(tmp_path / "t")
    write_files(writer(storage), [Row("c", 4, 4)])
    assert main(["table", "rollback", str(tmp_path / "t"), names(storage)[-1], "--run"]) == FAILED
    assert "is being written; stop its writer" in capsys.readouterr().err


def test_copy_on_write_tables_have_nothing_to_compact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    assert main(["table", "compact", str(tmp_path / "t"), "--run"]) == FAILED
    assert "is copy-on-write" in capsys.readouterr().err


@pytest.mark.parametrize(
    "what", ["compact", "clean", "archive", "rollback", "savepoint", "restore"]
)
def test_a_table_of_an_older_version_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    root = unpack("v6_mor_parquet_bucket", tmp_path).root
    operands = ["20200101000000000"] if what == "rollback" else []
    assert main(["table", what, str(root), *operands]) == FAILED
    assert "is of version 6" in capsys.readouterr().err
