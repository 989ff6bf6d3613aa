"""``lakemark compare`` compares two tables at the newest offsets that both have reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakemark
from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.common_position import is_same, reached_positions
from checkpoints.edit import write_checkpoint
from lakemark.operations.compact import request_if_due
from lakemark.operations.open_table import open_table
from lakemark.services.compaction_plan import ALWAYS
from lakemark.storage import StorageLocation
from streamer.cli import FAILED, MISUSED, OK, main

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("amount", pa.decimal128(10, 2))])


def rows(*numbers: int, ts: int = 1) -> pa.Table:
    values = [{"id": str(n), "ts": ts, "amount": n} for n in numbers]
    return pa.Table.from_pylist(values, SCHEMA)


class Written:
    """A table whose commits record offsets."""

    def __init__(self, path: Path, schema: pa.Schema = SCHEMA, **options: Any) -> None:
        given = {"record_key": ["id"], "ordering": ["ts"], **options}
        self.table = lakemark.create(path, schema=schema, **given)
        self.path = str(path)

    def read_to(self, offset: int, changes: pa.Table | None = None) -> None:
        """Write offsets, then rows, which belong to these offsets."""
        opened = open_table(StorageLocation(self.path))
        write_checkpoint(opened, "", KafkaCheckpoint("orders", {0: offset, 1: 0}))
        self.table.refresh()
        if changes is not None:
            self.table.upsert(changes)


@pytest.fixture
def old(tmp_path: Path) -> Written:
    return Written(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Written:
    return Written(tmp_path / "new", table_type="copy_on_write")


def test_later_commits_of_either_table_are_not_compared(
    old: Written, new: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    old.read_to(3, rows(1, 2, 3))
    old.read_to(9, rows(1, ts=9))
    for n in (1, 2, 3):
        new.read_to(n, rows(n))
    new.read_to(4, rows(4))
    assert main(["compare", old.path, new.path]) == OK
    printed = capsys.readouterr().out
    assert "compared at orders,0:3,1:0:" in printed
    assert "not compared: later commits of the old table, up to orders,0:9,1:0" in printed
    assert "equal rows: 3\n" in printed
    new.table.upsert(rows(5))  # at 0:4, which the old table does not have
    assert main(["compare", old.path, new.path, "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["rows"]["equal"] == 3


def test_tables_without_common_offsets_are_refused(
    old: Written, new: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    old.read_to(3, rows(1))
    assert main(["compare", old.path, new.path]) == FAILED
    assert "no active commit of" in capsys.readouterr().err
    new.read_to(4, rows(1))
    assert main(["compare", old.path, new.path]) == FAILED
    printed = capsys.readouterr().err
    assert "the newest ones are orders,0:3,1:0 and orders,0:4,1:0" in printed


def test_times_may_be_chosen(
    old: Written, new: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in (old, new):
        one.table.upsert(rows(1, 2))
    old_at, new_at = (one.table.timeline.completed()[-1].requested_at for one in (old, new))
    new.table.upsert(rows(3))
    command = ["compare", old.path, new.path, "--old-as-of", old_at]
    assert main(command) == MISUSED
    assert "--old-as-of and --new-as-of are used together" in capsys.readouterr().err
    assert main([*command, "--new-as-of", new_at]) == OK


def test_types_and_columns_that_differ_are_named(
    old: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int32()), ("note", pa.string())])
    other = Written(tmp_path / "other", schema)
    old.read_to(1, rows(1, 2))
    other.read_to(1, pa.Table.from_pylist([{"id": "1", "ts": 1}, {"id": "2", "ts": 7}], schema))
    command = ["compare", old.path, other.path]
    assert main(command) == FAILED
    printed = capsys.readouterr().out
    assert "ts: bigint in the old table, int in the new one" in printed
    assert "columns only in the old table: amount" in printed
    assert "columns only in the new table: note" in printed
    assert 'id="2": ts 1 -> 7' in printed
    assert main([*command, "--ignore", "ts,amount,note"]) == OK


def test_tables_with_other_record_keys_need_the_columns_to_match(
    old: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Written(tmp_path / "other", record_key=["id", "ts"])
    for one in (old, other):
        one.read_to(1, rows(1, 2))
    command = ["compare", old.path, other.path]
    assert main(command) == MISUSED
    assert "is id, and that of" in capsys.readouterr().err
    assert main([*command, "--key", "id"]) == OK
    assert main([*command, "--key", "none"]) == MISUSED
    assert "column none: not both tables have it" in capsys.readouterr().err
    ignored = ["--key", "id", "--ignore", "id,ts,amount"]
    assert main([*command, *ignored]) == MISUSED
    assert "have no column whose values can be compared" in capsys.readouterr().err


def test_partition_of_which_nothing_was_read_may_be_omitted() -> None:
    with_empty = KafkaCheckpoint("orders", {0: 5, 1: 0})
    assert is_same(with_empty, KafkaCheckpoint("orders", {0: 5}))
    assert not is_same(with_empty, KafkaCheckpoint("orders", {0: 5, 1: 1}))
    assert not is_same(with_empty, KafkaCheckpoint("other", {0: 5}))


def test_commit_without_offsets_belongs_to_the_offsets_before_it(old: Written) -> None:
    old.table.upsert(rows(9))
    old.read_to(3, rows(1))
    old.table.upsert(rows(1, ts=5))
    last = old.table.timeline.completed()[-1].requested_at
    old.read_to(7)
    opened = open_table(StorageLocation(old.path))
    found = [(str(one.position), one.commit.requested_at) for one in reached_positions(opened)]
    assert [position for position, _ in found] == ["orders,0:7,1:0", "orders,0:3,1:0"]
    assert found[1][1] == last


def test_compaction_does_not_hide_the_delta_commits_requested_while_it_ran(
    old: Written, new: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in (old, new):
        one.read_to(3, rows(1, 2))
        one.table.upsert(rows(1, ts=2))
        one.read_to(4, rows(1, ts=3))
    planned = request_if_due(open_table(StorageLocation(old.path)), ALWAYS)
    assert planned is not None
    for one in (old, new):
        one.read_to(7, rows(3))
    old.table.compact()  # completes last, as of a time before row 3
    assert main(["compare", old.path, new.path, "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert found["position"] == "orders,0:7,1:0"
    assert found["rows"]["equal"] == 3
    assert found["old"]["commit"] > planned[0].requested_at
