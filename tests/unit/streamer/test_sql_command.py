"""``lakemark sql``, and conditions of ``lakemark query`` that DuckDB evaluates."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from streamer.cli import MISUSED, OK, main
from tests.unit.operations.tables import create, rows

pytest.importorskip("duckdb")

Run = Callable[..., list[dict[str, object]]]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    table = create(str(tmp_path / "lake" / "orders"), buckets=1)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 5), ("c", "west", 1, 9)))
    table.upsert(rows(("b", "south", 2, 6)))
    monkeypatch.chdir(tmp_path)
    return "lake/orders"


@pytest.fixture
def run(path: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a command, and returns the JSON objects that it prints."""

    def in_folder(*arguments: str) -> list[dict[str, object]]:
        assert main([*arguments, "--json"]) == OK
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return in_folder


def test_rows_are_printed_and_written_to_files(
    path: str, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"select region, sum(v) as total from '{path}' group by 1 order by total desc"
    expected = [("west", 9), ("south", 6), ("north", 1)]
    assert run("sql", text) == [{"region": name, "total": total} for name, total in expected]
    assert main(["sql", text, "--limit", "2"]) == OK
    assert capsys.readouterr().out.split() == ["region", "total", "west", "9", "south", "6"]
    assert main(["sql", text, "--out", "totals.parquet"]) == OK
    assert "3 rows in totals.parquet" in capsys.readouterr().err
    assert pq.read_table("totals.parquet")["total"].to_pylist() == [9, 6, 1]
    monkeypatch.setattr(sys, "stdin", io.StringIO(text + ";\n"))
    assert main(["sql", "-", "--out", "totals.csv"]) == OK
    assert Path("totals.csv").read_text().split() == [
        '"region","total"',
        '"west",9',
        '"south",6',
        '"north",1',
    ]


def test_explain_prints_what_each_scan_reads(
    path: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"select max(v) from '{path}' where region <> 'north' and v < 7 and id like '%b%'"
    (scan,) = run("sql", text, "--explain")
    assert scan["table"] == f"snapshot of {path}"
    assert scan["columns"] == ["id", "v"]
    assert "(v < 7)" in str(scan["condition"])
    groups = scan["file_groups"]
    assert isinstance(groups, list)
    assert [(one["partition"], one["skipped_by"]) for one in groups] == [
        ("north", "partition"),
        ("south", None),
        ("west", "statistics"),
    ]
    assert main(["sql", text, "--explain"]) == OK
    assert "reads 1 of 3 file groups; skips 1 by partition" in capsys.readouterr().out
    assert main(["sql", "select 1", "--explain"]) == OK
    assert capsys.readouterr().out == "reads no table\n"


def test_explain_of_changes_prints_no_file_groups(run: Run) -> None:
    table = lakemark.create(
        "changes",
        schema=pa.schema([("id", pa.string())]),
        record_key="id",
        cdc="data_before_after",
        table_type="copy_on_write",
    )
    table.upsert(pa.table({"id": ["a"]}))
    (scan,) = run("sql", "select op from cdc('changes', 'earliest')", "--explain")
    assert scan["file_groups"] is None


def test_errors_are_one_message(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", f"select regoin from '{path}'"]) == MISUSED
    error = capsys.readouterr().err
    assert error.startswith("lakemark: the query cannot be executed: ")
    assert error.count("\n") == 1
    assert "region" in error
    assert main(["sql", f"select * from '{path}'", "--explain", "--limit", "1"]) == MISUSED
    assert "--limit cannot be combined with --explain" in capsys.readouterr().err
    assert main(["sql", f"select * from '{path}'", "--out", "rows.txt"]) == MISUSED
    assert "expected a name that ends in" in capsys.readouterr().err


def test_condition_of_a_query_may_be_any_expression(path: str, run: Run) -> None:
    ids = {
        "id like '%b%' and v + 1 = 7": ["b"],
        "v between 5 and 9": ["b", "c"],
        "upper(region) in ('WEST') or ts == 1 and id = 'a'": ["a", "c"],
        "_hoodie_record_key like 'c'": ["c"],
        "id like '%' -- all": ["a", "b", "c"],
        "1 = 0": [],
    }
    for condition, expected in ids.items():
        found = run("query", path, "--where", condition)
        assert sorted(str(row["id"]) for row in found) == expected, condition
        assert all([*row] == ["id", "region", "ts", "v"] for row in found)
    assert run("query", path, "--where", "id like 'b'", "--columns", "v") == [{"v": 6}]
    optimized = ("query", path, "--type", "read_optimized", "--columns", "v")
    assert run(*optimized, "--where", "id like 'b'") == [{"v": 5}]
    assert run("query", path, "--where", "id like '%'", "--key", "b", "--columns", "v") == [
        {"v": 6}
    ]


def test_explain_of_such_a_condition_prints_the_pruning(path: str, run: Run) -> None:
    def skipped(condition: str) -> list[object]:
        groups = run("query", path, "--explain", "--where", condition)
        return [one["skipped_by"] for one in groups]

    assert skipped("region in ('north', 'south') and v * 2 > 3") == [None, None, "partition"]
    assert skipped("v between 8 and 9 and id like '%'") == ["statistics", "statistics", None]
    assert skipped("1 = 0") == ["partition"] * 3


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("v >", 'syntax error at or near ">", at character 3'),
        ("id like", 'near "like", at character 4\n'),
        ("v > 1) or (1 = 1", 'near ")", at character 6'),
        ("v in (select 1)", "without a subquery"),
        ("v > 1; select 1", "expected one expression"),
        ("v > 1 limit 1", "expected one expression"),
        ("v > 1 union select 1", "expected one expression"),
        ("regoin like 'a'", 'column "regoin" not found'),
        ("sum(v) > 1", "aggregate"),
    ],
)
def test_wrong_condition_is_refused(
    path: str, condition: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", path, "--where", condition]) == MISUSED
    assert message in capsys.readouterr().err


def test_condition_without_duckdb_names_the_remedy(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["query", path, "--where", "id like '%b%'"]) == MISUSED
    assert "pip install '/path/to/lakemark[sql]'" in capsys.readouterr().err
    assert main(["query", path, "--where", "id = 'b'"]) == OK


def test_condition_is_checked_before_the_first_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = create(str(tmp_path / "new"))
    assert main(["query", table.location, "--where", "id like '%'"]) == OK
    assert main(["query", table.location, "--where", "id like"]) == MISUSED
