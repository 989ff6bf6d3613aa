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
from tests.tables import Row, commit, lookup_writer, make

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


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["create", "by_v", "--column", "v"], "has no record index"),
        (["create", "files"], "there is no index 'files'"),
        (["drop", "by_v"], "has no index 'by_v'; it has: none"),
    ],
)
def test_a_command_that_cannot_work_names_the_reason(
    command: list[str], error: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    action, *rest = command
    assert main(["table", "index", action, place, *rest, "--run"]) != 0
    assert error in " ".join(capsys.readouterr().err.split())


def _table(place: str) -> Any:
    return lookup_writer(open_storage(StorageLocation(place))).table
