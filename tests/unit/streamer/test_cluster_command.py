"""``lakemark table cluster`` prints, schedules or executes its plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakemark
from streamer.cli import FAILED, MISUSED, OK, main
from tests.unit.operations.tables import SCHEMA, contents, files, reopen, rows


@pytest.fixture
def table(tmp_path: Path) -> lakemark.Table:
    made = lakemark.create(
        tmp_path / "orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        index="lookup",
    )
    for first in (0, 10):
        listed = [(f"k{n}", "north", 1, -n) for n in range(first, first + 10)]
        made.bulk_insert(rows(*listed, (f"s{first}", "south", 1, 1)))
    return made


def run(table: lakemark.Table, *words: str) -> int:
    return main(["table", "cluster", table.location, *words, "--clock-skew-ms", "0", "--json"])


def printed(capsys: pytest.CaptureFixture[str], *names: str) -> list[tuple[object, ...]]:
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [tuple(row[name] for name in names) for row in found]


def test_the_plan_is_printed_and_then_executed(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(table)
    assert run(table) == OK
    shown = printed(capsys, "instant", "partition", "file_groups", "files", "new_files")
    assert shown == [(None, "north", 2, 2, 1), (None, "south", 2, 2, 1)]
    assert len(files(table)) == 4
    assert run(table, "nor*", "--sort-by", "v", "--sort-by", "id", "--curve", "hilbert") == OK
    assert printed(capsys, "partition") == [("north",)]
    assert run(table, "nor*", "--sort-by", "v", "--run") == OK
    assert printed(capsys, "file_groups", "new_files", "rows") == [(2, 1, 20)]
    assert contents(table) == before
    values = reopen(table.location).snapshot(["v"], "region = 'north'").read_all()
    assert values.column("v").to_pylist() == sorted(range(-19, 1))
    assert run(table, "--run") == OK
    assert printed(capsys, "file_groups", "new_files", "rows") == [(2, 1, 2)]
    assert run(table, "--run") == OK
    assert printed(capsys, "rows") == []


def test_a_scheduled_plan_is_executed_by_run(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ("--small-file-bytes", "1000000", "--target-file-bytes", "1000000")
    assert run(table, *limits, "--max-group-bytes", "2000000", "--max-groups", "1") == OK
    assert printed(capsys, "partition") == [("north",)]
    assert run(table, "--schedule") == OK
    ((instant, _), _) = printed(capsys, "instant", "partition")
    assert run(table) == OK
    assert [name for (name,) in printed(capsys, "instant")] == [instant] * 2
    assert run(table, "--run") == OK
    assert printed(capsys, "instant", "file_groups", "rows") == [(instant, 4, 22)]
    assert len(files(table)) == 2


def test_new_clustering_is_shown_only_if_none_is_pending(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(table, "north", "--schedule") == OK
    scheduled = printed(capsys, "instant", "partition")
    assert run(table, "south") == OK
    assert printed(capsys, "instant", "partition") == scheduled
    assert run(table, "south", "--run") == OK
    assert printed(capsys, "instant") == [(scheduled[0][0],)]
    assert run(table) == OK
    assert printed(capsys, "instant", "partition") == [(None, "south")]


def test_a_wrong_column_or_partition_is_refused(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(table, "--sort-by", "w") == MISUSED
    assert "no column 'w'" in capsys.readouterr().err
    assert run(table, "east", "--run") == MISUSED
    assert "no partition 'east'" in capsys.readouterr().err


def test_a_table_with_buckets_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = lakemark.create(
        tmp_path / "bucketed", schema=SCHEMA, record_key="id", partition_by="region", buckets=1
    )
    assert run(made) == FAILED
    assert "has a bucket index" in capsys.readouterr().err
