"""``lakemark table upgrade`` and ``downgrade`` do what their printed plan says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.cli import FAILED, MISUSED, OK, main
from tests.golden.golden_table import unpack


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_executed_plan_equals_the_printed_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = unpack("v6_cow_simple", tmp_path).root
    before = tree(root)
    command = ["table", "upgrade", str(root), "--to", "8", "--json"]
    assert main(command) == OK
    planned = capsys.readouterr().out
    assert tree(root) == before
    steps = [json.loads(line) for line in planned.splitlines()]
    assert {step["step"] for step in steps} >= {"rewrite", "set"}
    version = {"step": "set", "what": "hoodie.table.version=6", "becomes": "8"}
    assert version in steps
    assert main([*command, "--run"]) == OK
    assert capsys.readouterr().out == planned
    assert open_table(StorageLocation(str(root))).version == 8
    for step in steps:
        if step["step"] == "rewrite":
            assert not (root / step["what"]).exists()
            assert (root / step["becomes"]).exists()


def test_plan_for_an_old_table_asks_for_its_time_zone_as_the_execution_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = unpack("v2_mor_simple", tmp_path).root
    command = ["table", "upgrade", str(root), "--to", "6"]
    for step in ("--plan", "--run"):
        assert main([*command, step]) == MISUSED
        assert "--timeline-timezone" in capsys.readouterr().err
    for step in ("--plan", "--run"):
        assert main([*command, "--timeline-timezone", "UTC", step]) == OK
    assert open_table(StorageLocation(str(root))).version == 6


def test_the_way_back_is_the_other_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = unpack("v9_cow_simple", tmp_path).root
    assert main(["table", "upgrade", str(root), "--to", "8"]) == MISUSED
    assert "lakemark table downgrade TABLE --to 8" in capsys.readouterr().err


def test_pending_clean_must_be_completed_before_a_downgrade(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = unpack("v9_cow_simple", tmp_path)
    clean = Instant("29990101000000000", Action.CLEAN, State.REQUESTED)
    golden.table.store.create(clean)
    before = tree(golden.root)
    command = ["table", "downgrade", str(golden.root), "--to", "6"]
    for step in ("--plan", "--run"):
        assert main([*command, step]) == FAILED
        error = capsys.readouterr().err
        assert f"{clean} is pending in table" in error
        assert "let its writer or service complete it" in error
    assert tree(golden.root) == before


def test_savepoint_of_a_dead_process_must_be_removed_before_a_downgrade(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = unpack("v9_cow_simple", tmp_path)
    commit = golden.table.timeline.completed(Action.COMMIT)[-1].requested_at
    golden.table.store.create(Instant(commit, Action.SAVEPOINT, State.INFLIGHT))
    command = ["table", "downgrade", str(golden.root), "--to", "6", "--run"]
    assert main(command) == FAILED
    remedy = f"savepoint TABLE --delete {commit} --run"
    assert remedy in capsys.readouterr().err
    assert main(["table", *remedy.replace("TABLE", str(golden.root)).split()]) == OK
    assert main(command) == OK
