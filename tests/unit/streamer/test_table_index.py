"""``lakemark table index`` creates, lists and drops indexes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakemark.operations.metadata_table import metadata_differences
from lakemark.storage import StorageLocation, open_storage
from streamer.cli import main
from tests.tables import Row, commit, lookup_writer, make, writer

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def place(tmp_path: Path) -> str:
    storage = open_storage(StorageLocation(str(tmp_path / "t")))
    make(storage)
    commit(lookup_writer(storage), [Row("a", 1, 1), Row("b", 1, 2, region="south")])
    return str(tmp_path / "t")


@pytest.fixture
def run(place: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command of ``table index``, and return the rows that it prints."""

    def execute(command: str, *more: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["table", "index", command, place, *more, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return execute


def test_indexes_are_planned_created_listed_and_dropped(run: Run, place: str) -> None:
    assert run("list") == []
    planned = {"index": "record_index", "column": None, "partition": "record_index"}
    assert run("create", "record_index") == [planned]
    assert run("list") == [], "a plan that is printed changes nothing"
    (created,) = run("create", "record_index", "--run")
    assert created["state"] == "complete"
    assert run("create", "record_index", "--run") == []
    (values,) = run("create", "by_v", "--column", "v", "--run")
    assert (values["index"], values["kind"], values["columns"]) == ("by_v", "secondary_index", "v")
    assert run("list") == [values, created]
    assert metadata_differences(_table(place)) == []
    assert run("drop", "by_v") == [values]
    assert len(run("list")) == 2
    run("drop", "by_v", "--run")
    run("drop", "record_index", "--run")
    assert run("list") == []
    assert metadata_differences(_table(place)) == []


def test_columns_with_statistics_are_planned_and_chosen(run: Run, place: str) -> None:
    assert run("statistics", "--column", "v") == [{"statistics": "v"}]
    assert _table(place).properties.statistics_columns is None, "a plan changes nothing"
    assert run("statistics", "--column", "v", "--run") == [{"statistics": "v"}]
    assert _table(place).properties.statistics_columns == ("v",)
    assert run("statistics", "--column", "v", "--run") == []
    assert metadata_differences(_table(place)) == []
    assert run("statistics", "--default", "--run") == [{"statistics": "default"}]
    assert _table(place).properties.statistics_columns is None


def test_a_partitioned_record_index_is_listed_as_such(run: Run, place: str) -> None:
    assert run("create", "record_index", "--partitioned") == [
        {"index": "record_index", "column": None, "partition": "record_index"}
    ]
    (created,) = run("create", "record_index", "--partitioned", "--run")
    assert created["kind"] == "record_index (partitioned)"
    assert run("list") == [created]
    assert metadata_differences(_table(place)) == []


def test_an_expression_index_is_planned_created_and_dropped(run: Run, place: str) -> None:
    expression = "from_unixtime(v, yyyy-MM-dd)"
    planned = {
        "index": "days",
        "expression": expression,
        "kind": "column_stats",
        "partition": "expr_index_days",
    }
    assert run("create", "days", "--expression", expression) == [planned]
    (created,) = run("create", "days", "--expression", expression, "--run")
    assert (created["kind"], created["columns"], created["state"]) == (
        "column_stats",
        "v",
        "complete",
    )
    assert created["expression"] == "from_unixtime(v, 'yyyy-MM-dd')"
    assert run("create", "days", "--expression", created["expression"], "--run") == []
    assert metadata_differences(_table(place)) == []
    run("drop", "days", "--run")
    assert run("list") == []


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["create", "by_v", "--column", "v"], "has no record index"),
        (["create", "files"], "there is no index 'files'"),
        (["create", "bloom_filters", "--partitioned"], "for the index record_index only"),
        (["drop", "by_v"], "has no index 'by_v'; it has: none"),
    ],
)
def test_a_command_that_cannot_work_names_the_reason(
    command: list[str], error: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    action, *rest = command
    assert main(["table", "index", action, place, *rest, "--run"]) != 0
    assert error in " ".join(capsys.readouterr().err.split())


def test_secondary_index_of_a_table_with_buckets_names_no_remedy_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "b")))
    make(storage)
    commit(writer(storage), [Row("a", 1, 1)])
    table = str(tmp_path / "b")
    assert main(["table", "index", "create", table, "by_v", "--column", "v", "--run"]) != 0
    error = " ".join(capsys.readouterr().err.split())
    assert "has a bucket index" in error
    assert "create it first" not in error


@pytest.mark.parametrize("step", [(), ("--run",)])
def test_the_record_index_is_announced_to_pipelines_that_do_not_move_rows(
    place: str, capsys: pytest.CaptureFixture[str], step: tuple[str, ...]
) -> None:
    note = "needs table.partition_change: move at its next start"
    command = ["table", "index", "create", place]
    assert main([*command, "record_index", "--partitioned"]) == 0
    assert note not in capsys.readouterr().err
    assert main([*command, "record_index", *step]) == 0
    assert note in capsys.readouterr().err
    assert main([*command, "bloom_filters", *step]) == 0
    assert note not in capsys.readouterr().err


def _table(place: str) -> Any:
    return lookup_writer(open_storage(StorageLocation(place))).table
