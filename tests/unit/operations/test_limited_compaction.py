"""A compaction rewrites the file groups that a program, a command or a pipeline asks for."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import lakemark
from lakemark.model.action import Action
from lakemark.operations.compact import pending_compactions
from streamer.cli import MISUSED, OK, main
from tests.unit.operations.tables import contents, create, location, rows

REGIONS = ("north", "south", "west")
EXPECTED = {f"{region}-{n}": (region, 2, 2) for region in REGIONS for n in range(3)}


@pytest.fixture(params=[6, 8, 9])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakemark.Table:
    """A table of three partitions with a log each; those of west are the largest."""
    made = create(location("disk", tmp_path), version=request.param, buckets=1)
    made.upsert(rows(*((key, row[0], 1, 1) for key, row in EXPECTED.items())))
    made.upsert(rows(*((key, row[0], 2, 2) for key, row in EXPECTED.items())))
    made.upsert(rows(*((f"west-{n % 3}", "west", 2, 2) for n in range(50))))
    return made


def with_logs(table: lakemark.Table) -> set[str]:
    """Return the partitions that have logs; check that queries return all rows."""
    assert contents(table) == EXPECTED
    assert table.metadata_differences() == []
    found = lakemark.open(table.location)._table.view().latest_slices()
    return {one.group.partition_path.removeprefix("region=") for one in found if one.logs}


def test_limited_compactions_follow_each_other(table: lakemark.Table) -> None:
    assert table.compact(max_io_bytes=1).files
    assert with_logs(table) == {"north", "south"}
    assert table.compact(order="newest_partitions", max_partitions=1).files
    assert with_logs(table) == {"north"}
    assert table.compact(["*south", "regex:^(region=)?west$"]) == lakemark.ServiceResult()
    assert table.compact(["regex:n.rth"]).files
    assert with_logs(table) == set()


def test_compaction_is_not_planned_before_it_is_due(table: lakemark.Table) -> None:
    nothing = lakemark.ServiceResult()
    assert table.compact(after_commits=5) == nothing, "the first of four commits has the columns"
    assert table.compact(after=timedelta(hours=1)) == nothing
    assert table.compact(after_log_bytes=1 << 30) == nothing
    assert table.compact(after_commits=4, after_log_bytes=1 << 30, when="all") == nothing
    assert table.compact(after_commits=4, after_log_bytes=1 << 30).files
    assert with_logs(table) == set()


def test_wrong_words_and_partitions_are_refused(table: lakemark.Table) -> None:
    with pytest.raises(lakemark.InvalidConfig, match="no partition 'east'"):
        table.compact(["east"])
    with pytest.raises(lakemark.InvalidConfig, match="when is 'both'; choose one of 'any', 'all'"):
        table.compact(when="both")
    with pytest.raises(lakemark.InvalidConfig, match="order is 'newest'; choose one of"):
        table.compact(order="newest")


def test_command_compacts_what_its_options_say(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*options: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        words = ["table", "compact", table.location, *options, "--clock-skew-ms=0", "--json"]
        assert main(words) == OK
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    def partitions(*options: str) -> list[str]:
        return [row["partition"].removeprefix("region=") for row in run(*options)]

    assert (partitions()[0], len(partitions())) == ("west", 3)
    assert partitions("--order=newest_partitions") == ["west", "south", "north"]
    assert partitions("*th", "--order=oldest_partitions") == ["north", "south"]
    assert partitions("--after=1h") == []
    assert partitions("--after-commits=9", "--after-log-bytes=1") == partitions()
    assert partitions("--after-commits=9", "--after-log-bytes=1", "--when=all") == []
    assert partitions("--schedule", "--max-partitions=1") == ["west"]
    assert len(pending_compactions(lakemark.open(table.location)._table)) == 1
    (done,) = run("--run", "--after-commits=9")
    assert done["slices"] == 1, "a pending compaction is executed in any case"
    (done,) = run("--run", "--max-io-bytes=1")
    assert len(with_logs(table)) == 1
    assert main(["table", "compact", table.location, "east"]) == MISUSED
    timeline = lakemark.open(table.location).timeline
    assert len(timeline.completed(Action.COMMIT)) == 2
