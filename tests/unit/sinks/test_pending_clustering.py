"""A clustering that Apache Hudi plans and cannot execute stops only conflicting batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from checkpoints.edit import write_checkpoint
from lakemark.errors import Refused
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.model.format_version import FormatVersion
from lakemark.operations.change_version import change_table_version, plan_version_change
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.transaction.conflicts import ClusteringExecuted, ClusteringPlanned
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from streamer.cli import FAILED, OK, main
from streamer.stream_failure import is_transient
from tests.json_stream import JsonStream
from tests.writers import plan_clustering
from transforms.decode.schema_policy import SchemaPolicy

ROWS = [{"id": key, "ts": 1} for key in "abcd"]


@pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V6])
def test_a_batch_is_refused_once_and_goes_on_when_the_plan_was_removed(
    tmp_path: Path, version: FormatVersion, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = JsonStream(StorageLocation(str(tmp_path / "t")), version=version)
    stream.write(ROWS)
    table = stream.rows.table
    planned = plan_clustering(table.storage, table.view().latest_slices()[0].group)
    with pytest.raises(ClusteringPlanned) as refused:
        stream.write([{"id": key, "ts": 2} for key in "abcd"])
    assert is_transient(refused.value), "the plan may be executed or removed"
    assert stream.exchange.attempts == [4, 4], "it was tried once"
    timeline = table.store.load()
    assert len(timeline.completed(Action.ROLLBACK)) == 1
    assert [i.requested_at for i in timeline.pending()] == [planned.requested_at]

    for _ in range(2):  # nothing more is written in vain
        again = JsonStream(StorageLocation(str(tmp_path / "t")), version=version)
        with pytest.raises(ClusteringPlanned):
            again.write([{"id": key, "ts": 2} for key in "abcd"])
        assert table.store.load().instants == timeline.instants

    command = ["table", "rollback", str(tmp_path / "t"), planned.requested_at]
    assert " ".join([*command[:2], "TABLE", command[3], "--run"]) in str(refused.value)
    assert main(command) == OK
    assert table.store.load().pending(), "planned only"
    beat = f"{HEARTBEAT_FOLDER}/{planned.requested_at}"
    table.storage.put(beat, b"")
    assert main([*command, "--run"]) == FAILED
    assert "heartbeat is alive" in capsys.readouterr().err
    table.storage.delete([beat])
    assert main([*command, "--run"]) == OK
    assert not table.store.load().pending()

    again = JsonStream(StorageLocation(str(tmp_path / "t")), version=version)
    again.write([{"id": key, "ts": 2} for key in "abcd"])
    assert {key: row["ts"] for key, row in again.read().items()} == dict.fromkeys("abcd", 2)
    assert metadata_differences(again.rows.table) == []


@pytest.mark.parametrize("change", [{"new": 1}, {"n": 1 << 40}], ids=["new", "wider"])
@pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V6])
def test_first_batch_that_changes_columns_is_refused_before_it_requests_an_instant(
    tmp_path: Path, version: FormatVersion, change: dict[str, object]
) -> None:
    location, policy = StorageLocation(str(tmp_path / "t")), SchemaPolicy("evolve", "evolve")
    stream = JsonStream(location, policy, version=version)
    stream.write(ROWS)
    table = stream.rows.table
    groups = [one.group for one in table.view().latest_slices()]
    plan_clustering(table.storage, groups[0])
    instants = table.store.load().instants

    again = JsonStream(location, policy, version=version)
    changed = [{"id": key, "ts": 2, **change} for key in "abcd"]
    with pytest.raises(ClusteringPlanned):
        again.write(changed)
    assert table.store.load().instants == instants
    free = [one for one in changed if not _is_in(again, str(one["id"]), groups[0].file_id)]
    (name,) = change
    assert name in " ".join(again.write(free).schema_changes)
    assert len(table.store.load().completed(Action.ROLLBACK)) == 0, "one attempt was enough"
    read = again.read()
    assert [read[str(one["id"])] for one in free] == free


def test_a_batch_is_written_once_while_another_writer_executes_the_plan(tmp_path: Path) -> None:
    stream = JsonStream(StorageLocation(str(tmp_path / "t")))
    stream.write(ROWS)
    table = stream.rows.table
    planned = plan_clustering(table.storage, table.view().latest_slices()[0].group)
    table.storage.put(f"{HEARTBEAT_FOLDER}/{planned.requested_at}", b"")
    with pytest.raises(ClusteringExecuted):
        stream.write([{"id": key, "ts": 2} for key in "abcd"])
    assert stream.exchange.attempts == [4, 4], "it was tried once"


def test_a_start_keeps_the_plan_and_writes_what_it_does_not_replace(tmp_path: Path) -> None:
    for version in (FormatVersion.V9, FormatVersion.V6):
        location = StorageLocation(str(tmp_path / version.name))
        stream = JsonStream(location, version=version)
        stream.write(ROWS)
        table = stream.rows.table
        groups = [one.group for one in table.view().latest_slices()]
        plan_clustering(table.storage, groups[0])
        again = JsonStream(location, version=version)
        assert table.store.load().pending(), "the start did not undo it"
        free = next(row for row in ROWS if not _is_in(again, str(row["id"]), groups[0].file_id))
        again.write([{**free, "ts": 3}])
        assert again.read()[str(free["id"])]["ts"] == 3


@pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V6])
def test_a_plan_stops_neither_compaction_nor_checkpoints_nor_looks_like_a_dead_writer(
    tmp_path: Path, version: FormatVersion
) -> None:
    location = StorageLocation(str(tmp_path / "t"))
    stream = JsonStream(location, version=version, multi_writer=MultiWriter(clock_skew_ms=0))
    stream.write(ROWS)
    table = stream.rows.table
    groups = [one.group for one in table.view().latest_slices()]
    planned = plan_clustering(table.storage, groups[0])
    free = next(row for row in ROWS if not _is_in(stream, str(row["id"]), groups[0].file_id))
    stream.write([{**free, "ts": 3}])
    stream.compact()
    table = open_table(location)
    assert [len(one.logs) for one in table.view().latest_slices() if one.group != groups[0]] == [0]
    write_checkpoint(table, DEFAULT_IDENTITY, None)
    assert [i.requested_at for i in table.store.load().pending()] == [planned.requested_at]


@pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V6])
def test_a_change_of_version_names_the_plan_and_how_to_remove_it(
    tmp_path: Path, version: FormatVersion
) -> None:
    location = StorageLocation(str(tmp_path / "t"))
    stream = JsonStream(location, version=version)
    stream.write(ROWS)
    planned = plan_clustering(
        stream.rows.table.storage, stream.rows.table.view().latest_slices()[0].group
    )
    table = open_table(location)
    for change in (plan_version_change, partial(change_table_version, runner=LocalRunner(1))):
        with pytest.raises(Refused, match=f"table rollback TABLE {planned.requested_at} --run"):
            change(table, FormatVersion.V8)


def _is_in(stream: JsonStream, key: str, file_id: str) -> bool:
    scan = stream.rows.table.scan(record_keys=[key])
    slices = [one for one in scan.slices if one.group.file_id == file_id]
    return bool(scan.with_slices(slices).to_table().num_rows)
