"""``lakemark checkpoint`` shows and changes the offsets from which the next run resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from checkpoints import commit_keys
from checkpoints.edit import write_checkpoint
from lakemark.config import keys
from lakemark.config.table_properties import TableType
from lakemark.errors import Fenced, LockTimeout, WriteConflict
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction import carried_metadata, transaction
from lakemark.transaction.transaction import Transaction
from streamer.cli import FAILED, MISUSED, OK, main
from streamer.commands.table import timeline_rows
from tests.json_stream import TOPIC, JsonStream
from tests.tables import Row, commit, make, writer

Run = Callable[..., dict[str, object]]
NO_WAIT = ("--clock-skew-ms", "0")


@pytest.fixture(params=TableType)
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> JsonStream:
    """A table that has read three records."""
    made = JsonStream(StorageLocation(str(tmp_path / "orders")), table_type=request.param)
    made.write([{"id": key, "ts": 1} for key in "abc"])
    return made


@pytest.fixture
def run(stream: JsonStream, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs an action on the table, and returns its JSON output."""

    def on_table(action: str, *options: str) -> dict[str, object]:
        step = [] if action == "get" else ["--run"]
        command = ["checkpoint", action, stream.location.url, *options, *step, *NO_WAIT, "--json"]
        assert main(command) == OK
        printed: dict[str, object] = json.loads(capsys.readouterr().out)
        return printed

    return on_table


def newest(stream: JsonStream) -> OpenTable:
    return open_table(stream.location)


def test_get_shows_offsets_commit_and_key(
    stream: JsonStream, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (written,) = newest(stream).timeline.completed()
    assert run("get") == {
        "id": "",
        "topic": TOPIC,
        "offsets": {"0": 3},
        "checkpoint": f"{TOPIC},0:3",
        "set_by": written.requested_at,
        "key": carried_metadata.CHECKPOINT_KEY,
        "topic_id": None,
        "other_ids": [],
    }
    assert main(["checkpoint", "get", stream.location.url, "--id", "a"]) == MISUSED
    assert "id 'a'; ids with a checkpoint: (default)" in capsys.readouterr().err


def test_next_run_resumes_from_the_set_checkpoint(stream: JsonStream, run: Run) -> None:
    before = stream.read()
    reported = run("set", f"{TOPIC},0:2")
    table = newest(stream)
    written = table.timeline.completed()[-1]
    assert (reported["commit"], reported["checkpoint"]) == (written.requested_at, f"{TOPIC},0:2")
    metadata = table.store.read_commit(written)
    assert metadata.write_stats == ()
    assert commit_keys.decode(metadata.extra_metadata, "") is not None
    assert stream.read() == before, "the rows are as they were"
    again = JsonStream(stream.location, table_type=stream.table_type)
    assert again.offset == 2
    again.write([{"id": "d", "ts": 1}])
    assert set(again.read()) == set("abcd")
    assert run("get")["offsets"] == {"0": 3}


def test_without_run_a_plan_is_printed_and_nothing_is_written(
    stream: JsonStream, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("set", f"{TOPIC},0:3,1:10,2:7")
    there = newest(stream).timeline.instants
    change = ["checkpoint", "set", stream.location.url, f"{TOPIC},1:4,2:9,3:1"]
    assert main([*change, "--json"]) == OK
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [tuple(row.values()) for row in printed] == [
        (TOPIC, 0, 3, 3, 0, 0),
        (TOPIC, 1, 10, 4, 6, 0),
        (TOPIC, 2, 7, 9, 0, 2),
        (TOPIC, 3, None, 1, None, None),
    ]
    assert list(printed[0]) == ["topic", "partition", "from", "to", "read_again", "skipped"]
    assert main(["checkpoint", "reset", stream.location.url]) == OK
    header, first, *_ = capsys.readouterr().out.splitlines()
    assert header.split() == ["topic", "partition", "from", "to", "read", "again", "skipped"]
    assert first.split() == [TOPIC, "0", "3", "source.starting_offsets", "none", "none"]
    assert newest(stream).timeline.instants == there


def test_partitions_that_are_not_named_stay_where_they_are(stream: JsonStream, run: Run) -> None:
    run("set", f"{TOPIC},0:3,1:10,2:7")
    assert run("set", f"{TOPIC},1:4")["offsets"] == {"0": 3, "1": 4, "2": 7}
    assert run("set", "other,1:4")["offsets"] == {"1": 4}, "those of another topic do not"


def test_get_refuses_run(stream: JsonStream, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "get", stream.location.url, "--run"]) == MISUSED
    assert "checkpoint get changes nothing; remove --run" in capsys.readouterr().err


def test_a_plan_for_another_topic_says_that_the_offsets_of_the_known_one_go(
    stream: JsonStream, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "set", stream.location.url, "ordes,0:1", *NO_WAIT]) == OK
    assert f"belongs to topic {TOPIC!r}, not 'ordes'" in capsys.readouterr().err
    assert main(["checkpoint", "set", stream.location.url, f"{TOPIC},0:1", *NO_WAIT]) == OK
    assert "belongs to topic" not in capsys.readouterr().err


def test_a_reset_lets_the_next_run_start_as_its_pipeline_says(stream: JsonStream, run: Run) -> None:
    reported = run("reset")
    assert (reported["checkpoint"], reported["offsets"]) == (None, {})
    again = JsonStream(stream.location, table_type=stream.table_type)
    assert again.sink.checkpoint() is None
    again.write([{"id": "d", "ts": 1}])
    assert run("get")["offsets"] == {"0": 1}


def test_one_of_several_streamers_is_set_alone(stream: JsonStream, run: Run) -> None:
    run("set", "other,0:5,1:7", "--id", "a")
    assert run("get", "--id", "a")["offsets"] == {"0": 5, "1": 7}
    assert run("get")["offsets"] == {"0": 3}
    stream.rows.table.refresh()
    stream.write([{"id": "d", "ts": 1}])
    assert run("get", "--id", "a")["offsets"] == {"0": 5, "1": 7}
    assert run("get")["offsets"] == {"0": 4}


def test_invalid_checkpoint_id_is_refused(
    stream: JsonStream, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a b", "a\n", "é", "a" * 250):
        assert main(["checkpoint", "reset", stream.location.url, "--id", name]) == MISUSED
        assert f"source.checkpoint_id {name!r}: expected" in capsys.readouterr().err
    assert len(newest(stream).timeline.completed()) == 1


def test_run_whose_checkpoint_was_changed_publishes_nothing_more(
    stream: JsonStream, run: Run
) -> None:
    run("set", f"{TOPIC},0:0")
    with pytest.raises(Fenced, match="this run continued at"):
        stream.write([{"id": "d", "ts": 1}])
    assert set(stream.read()) == set("abc")


def test_damaged_checkpoint_can_be_replaced(stream: JsonStream, run: Run) -> None:
    context = stream.rows.begin()
    assert context.instant
    stream.rows.commit([], {carried_metadata.CHECKPOINT_KEY: "damaged"})
    assert main(["checkpoint", "get", stream.location.url]) == FAILED
    run("set", f"{TOPIC},0:1")
    assert run("get")["offsets"] == {"0": 1}


def test_running_writer_continues_unless_its_own_checkpoint_was_changed(
    stream: JsonStream, run: Run
) -> None:
    for identity, outcome in (("a", nullcontext()), ("", pytest.raises(Fenced))):
        stream.rows.begin()
        run("set", f"{TOPIC},0:1", "--id", identity)
        with outcome:
            stream.rows.commit([], {}, stream.sink._progress.check)
    assert run("get", "--id", "a")["offsets"] == {"0": 1}


def test_pending_instant_of_another_engine_blocks_a_checkpoint_change(
    stream: JsonStream, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    table = newest(stream)
    at = table.context.generate_time(table.timeline.newest_time)
    pending = Instant(at, Action.DELTA_COMMIT, State.REQUESTED)
    table.store.create(pending)
    command = ["checkpoint", "reset", stream.location.url, *NO_WAIT]
    assert main(command) == FAILED
    assert f"instant {pending.requested_at} of another engine" in capsys.readouterr().err
    table.store.create(pending.inflight(), b"")
    assert main(command) == FAILED
    run("set", f"{TOPIC},0:1", "--id", "a")
    assert run("get")["offsets"] == {"0": 3}


def test_the_lock_of_the_tables_writers_is_taken(
    stream: JsonStream, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "LOCK_WAIT_S", 0.1)
    held = Path(stream.location.url) / ".hoodie/lock"  # Apache Hudi's, on a disk
    held.touch()
    command = ["checkpoint", "reset", stream.location.url, "--lock", "file_system", *NO_WAIT]
    command.append("--run")
    assert main(command) == FAILED
    assert len(newest(stream).timeline.instants) == 1
    held.unlink()
    assert main(command) == OK


def test_unpublished_checkpoint_is_not_left_pending(
    stream: JsonStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = newest(stream)
    own = FolderStorage(table.storage, METADATA_FOLDER)
    publish, reported = table.store.publish, []

    def too_late(pending: Instant, completed_at: str, check_lock: Callable[[], None]) -> Instant:
        monkeypatch.undo()
        reported.append(TimelineStore.of_table(own, read_properties(own)).load().completed()[-1])
        table.store.withdraw(pending)
        return publish(pending, completed_at, check_lock)

    monkeypatch.setattr(table.store, "publish", too_late)
    with pytest.raises(Fenced):
        write_checkpoint(table, "", None)
    again = newest(stream).timeline
    assert not again.pending()
    assert len(again.completed(*COMMITS)) == 1
    assert again.find(reported[0].requested_at) is None
    assert metadata_differences(newest(stream)) == [], "the metadata table no longer has it"
    monkeypatch.setattr(transaction, "LOCK_WAIT_S", 0.1)
    with newest(stream).context.lock.hold(1), pytest.raises(LockTimeout):
        write_checkpoint(table, "", None)
    assert newest(stream).timeline == again


def before_publication(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call a function once, after a commit has begun and before it acquires the lock."""
    publish = Transaction.commit

    def after_another(transaction: Transaction, *arguments: Any) -> tuple[Instant, Timeline]:
        monkeypatch.undo()
        act()
        return publish(transaction, *arguments)

    monkeypatch.setattr(Transaction, "commit", after_another)


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
def test_another_pipeline_may_commit_meanwhile_where_it_is_known_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: FormatVersion
) -> None:
    location = StorageLocation(str(tmp_path / "orders"))
    JsonStream(location, version=version).write([{"id": "a", "ts": 1}])
    other = JsonStream(location, version=version, identity="a", topic="returns")
    table = open_table(location)
    before_publication(monkeypatch, lambda: other.write([{"id": "b", "ts": 1}]))
    is_refused = version is FormatVersion.V6
    with pytest.raises(WriteConflict) if is_refused else nullcontext():
        write_checkpoint(table, "", None)
    assert not open_table(location).timeline.pending()
    again = JsonStream(location, version=version, identity="a", topic="returns")
    assert again.offset == 1, "what the other has read is not lost"


@pytest.mark.parametrize(
    "meanwhile", [{carried_metadata.CHECKPOINT_KEY: "t,0:2"}, {keys.SCHEMA: "other"}]
)
def test_concurrent_commit_is_not_overridden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: dict[str, str]
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "orders")))
    make(storage)
    commit(writer(storage), [Row("a")], {carried_metadata.CHECKPOINT_KEY: "t,0:1"})
    table = open_table(storage.location)
    before_publication(monkeypatch, lambda: commit(writer(storage), [Row("b")], meanwhile))
    with pytest.raises(WriteConflict, match="since the change was planned"):
        write_checkpoint(table, "", None)
    table = open_table(storage.location)
    assert not table.timeline.pending()
    assert not [f for f in storage.list_tree(".hoodie") if "/prepared/" in f.path]
    assert len(table.timeline.completed()) == 2


def test_checkpoint_of_a_table_without_commits_is_refused_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "orders")))
    make(storage)
    assert main(["checkpoint", "set", storage.location.url, "t,0:1"]) == MISUSED
    assert (
        "has no commit yet; name the offsets in source.starting_offsets" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["set", "t"], "checkpoint set expects the offsets to resume from"),
        (["set", "t", "t,0"], "found '0' in 't,0'"),
        (["set", "t", "t"], "found no partition in 't'"),
        (["reset", "t", "t,0:1"], "checkpoint reset accepts no offsets; remove 't,0:1'"),
        (["get", "t", "t,0:1"], "checkpoint get accepts no offsets"),
    ],
    ids=str,
)
def test_checkpoint_arguments_are_checked_before_the_table_is_opened(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", *arguments]) == MISUSED
    assert problem in capsys.readouterr().err


def test_reset_repeats_schema_and_buckets(stream: JsonStream, run: Run) -> None:
    before = newest(stream).newest_metadata()
    run("reset")
    after = newest(stream).newest_metadata()
    assert before is not None
    assert after is not None
    for key in (keys.SCHEMA, keys.BUCKET_COUNT, keys.BUCKET_HASH_FIELDS):
        assert after.extra_metadata[key] == before.extra_metadata[key]


def test_timeline_shows_the_counts_of_each_batch(stream: JsonStream, run: Run) -> None:
    stream.write([{"id": "a", "ts": ts} for ts in (2, 3)])
    run("reset")
    reported = [
        [row[name] for name in ("records", "merged", "rejected", "skipped")]
        for row in timeline_rows(newest(stream))
    ]
    assert reported == [[3, 0, 0, 0], [2, 1, 0, 0], [None] * 4]


def test_offsets_that_cannot_be_parsed_are_refused_with_an_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "set", str(tmp_path), "orders:1200"]) == MISUSED
    assert "such as orders,0:1200,1:900" in capsys.readouterr().err
