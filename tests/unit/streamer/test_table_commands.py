"""``query`` and ``table`` on a table that Apache Hudi wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest

from streamer.cli import MISUSED, OK, main
from tests.golden.golden_table import GoldenTable, unpack

Run = Callable[..., str]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenTable:
    return unpack("v9_mor_parquet_bucket", tmp_path_factory.mktemp("golden"))


@pytest.fixture
def run(golden: GoldenTable, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command on the table, and returns what it printed."""

    def on_table(command: str, *options: str) -> str:
        assert main([*command.split(), str(golden.root), *options]) == OK
        return capsys.readouterr().out

    return on_table


@pytest.mark.parametrize("kind", ["snapshot", "read_optimized"])
def test_a_file_of_all_rows_is_what_apache_hudi_reads(
    run: Run, golden: GoldenTable, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "rows.parquet"
    run("query", "--type", kind, "--out", str(file), "--columns", "id,qty")
    found = pyarrow.parquet.read_table(file).sort_by("id")
    assert found.to_pydict() == (
        golden.expected(kind).select(["id", "qty"]).sort_by("id").to_pydict()
    )


def test_a_condition_may_name_columns_that_are_not_shown(run: Run, golden: GoldenTable) -> None:
    out = run("query", "--columns", "id", "--where", "qty > 300 and region = 'r1'", "--json")
    rows = golden.expected("snapshot").to_pylist()
    expected = {row["id"] for row in rows if row["qty"] > 300 and row["region"] == "r1"}
    assert expected
    assert {json.loads(line)["id"] for line in out.splitlines()} == expected


def test_the_screen_gets_some_rows_and_no_columns_of_the_format(run: Run) -> None:
    lines = run("query").splitlines()
    assert len(lines) == 1 + 20
    assert lines[0].startswith("id ")
    assert "_hoodie_commit_time" not in lines[0]
    assert len(run("query", "--limit", "3", "--columns", "_hoodie_commit_time").splitlines()) == 4


def test_a_column_that_is_not_there_is_told_with_those_that_are(
    golden: GoldenTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", str(golden.root), "--columns", "id,quantity"]) == MISUSED
    assert "no column quantity; there are" in capsys.readouterr().err
    assert main(["query", str(golden.root), "--where", "quantity = 1"]) == MISUSED
    assert "there is no column 'quantity'" in capsys.readouterr().err


def test_show_tells_what_the_table_is(run: Run) -> None:
    facts = json.loads(run("table show", "--json"))
    assert facts["type"] == "MERGE_ON_READ"
    assert facts["merge mode"] == "EVENT_TIME_ORDERING"
    assert (facts["record key"], facts["partitioned by"]) == (["id"], ["region"])
    assert (facts["partitions"], facts["file groups"], facts["commits"]) == (3, 6, 5)
    assert "merge mode       EVENT_TIME_ORDERING" in run("table show")


def test_timeline_and_files_list_every_one(run: Run, golden: GoldenTable) -> None:
    instants = [json.loads(line) for line in run("table timeline", "--json").splitlines()]
    assert [row["requested"] for row in instants] == [
        instant.requested_at for instant in golden.view.timeline.instants
    ]
    assert instants[0]["operation"] == "INSERT"
    files = [json.loads(line) for line in run("table files", "--json").splitlines()]
    assert {(row["partition"], row["file id"]) for row in files} == {
        (one.group.partition_path, one.group.file_id) for one in golden.view.latest_slices()
    }
    assert len(run("table timeline").splitlines()) == 1 + len(instants)
    assert len(run("table files").splitlines()) == 1 + len(files)
