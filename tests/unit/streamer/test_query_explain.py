"""``lakemark query --explain`` prints which file groups a query reads, and why it skips others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamer.cli import MISUSED, OK, main
from tests.unit.operations.tables import create, rows


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = create(str(tmp_path / "orders"), buckets=1)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 5), ("c", "west", 1, 9)))
    table.upsert(rows(("b", "south", 2, 6)))
    return table.location


def test_each_file_group_is_one_row(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["query", path, "--where", "region != 'north' and v < 7", "--explain"]
    assert main([*arguments, "--json"]) == OK
    north, south, west = map(json.loads, capsys.readouterr().out.splitlines())
    assert (north["partition"], north["read"], north["skipped_by"]) == ("north", False, "partition")
    assert (south["partition"], south["read"], south["skipped_by"]) == ("south", True, None)
    assert (west["read"], west["skipped_by"], west["columns"]) == (False, "statistics", ["v"])
    assert (south["logs"], west["logs"]) == (1, 0)
    assert main(arguments) == OK
    printed = capsys.readouterr().out
    assert "reads 1 of 3 file groups; skips 1 by partition, 1 by statistics" in printed


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (["--limit", "3"], "--limit cannot be combined with --explain"),
        (["--columns", "v"], "--columns cannot be combined with --explain"),
        (["--out", "rows.csv"], "--out cannot be combined with --explain"),
        (["--type", "cdc", "--begin", "earliest"], "--explain cannot be combined with --type cdc"),
    ],
)
def test_options_without_effect_are_refused(
    path: str, options: list[str], refused: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", path, "--explain", *options]) == MISUSED
    assert refused in capsys.readouterr().err
