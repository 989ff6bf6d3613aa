"""The commands that delete partitions print their plan, and execute it with ``--run``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakemark
from streamer.cli import FAILED, MISUSED, OK, main
from tests.unit.operations.tables import SCHEMA, contents, rows


@pytest.fixture
def table(tmp_path: Path) -> lakemark.Table:
    made = lakemark.create(
        tmp_path / "orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type="copy_on_write",
        buckets=1,
    )
    made.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1), ("c", "west", 1, 1)))
    return made


def run(*words: str) -> int:
    return main(["table", *words, "--clock-skew-ms", "0", "--json"])


def printed(capsys: pytest.CaptureFixture[str]) -> list[tuple[object, ...]]:
    lines = capsys.readouterr().out.splitlines()
    found = [json.loads(line) for line in lines]
    return [(row["partition"], row["file_groups"], row["files"], row["rows"]) for row in found]


def test_delete_partitions_prints_its_plan_and_executes_it(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("delete-partitions", table.location, "*th", "west")
    expected = [("north", 1, 1, 1), ("south", 1, 1, 1), ("west", 1, 1, 1)]
    assert run(*command) == OK
    assert printed(capsys) == expected
    assert len(contents(table)) == 3
    assert run("delete-partitions", table.location, "*th", "--run") == OK
    assert printed(capsys) == expected[:2]
    assert contents(table) == {"c": ("west", 1, 1)}
    assert run("delete-partitions", table.location, "*th", "--run") == OK
    assert printed(capsys) == []
    assert run("delete-partitions", table.location, "east", "--run") == MISUSED
    assert "no partition 'east'" in capsys.readouterr().err


def test_unknown_numbers_of_rows_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = lakemark.create(
        tmp_path / "orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type="merge_on_read",
        buckets=1,
    )
    made.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    made.upsert(rows(("a", "north", 2, 2)))
    capsys.readouterr()
    assert main(["table", "delete-partitions", made.location, "*th"]) == OK
    north, south = capsys.readouterr().out.splitlines()[1:]
    assert north.endswith("  not known (logs)")
    assert south.split()[-1] == "1"
    assert run("delete-partitions", made.location, "*th") == OK
    assert printed(capsys) == [("north", 1, 2, None), ("south", 1, 1, 1)]


def test_expire_partitions_prints_its_plan_and_executes_it(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("expire-partitions", table.location, "--by", "creation", "--older-than")
    assert run(*command, "30d", "--run") == OK
    assert printed(capsys) == []
    assert len(contents(table)) == 3
    table.delete_partitions("*")
    table.upsert(rows(("a", "north", 1, 1)))
    assert run(*command, "1h") == OK
    assert printed(capsys) == []
    assert run(*command, "0s") == MISUSED
    assert "lifetime" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["30", "d", "-1d", "1.5h", "٣d", ""])
def test_a_lifetime_needs_a_number_and_a_unit(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        run("expire-partitions", table.location, f"--older-than={text}")
    assert ended.value.code == MISUSED
    assert "such as 30d" in capsys.readouterr().err


def test_commands_refuse_a_table_that_is_not_partitioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "flat")
    lakemark.create(path, schema=SCHEMA, record_key="id")
    assert run("delete-partitions", path, "*") == MISUSED
    assert "is not partitioned" in capsys.readouterr().err
    assert run("expire-partitions", str(tmp_path / "none"), "--older-than", "1d") == FAILED
