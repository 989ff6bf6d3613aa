"""A Python program writes a table that streamers write, and their progress survives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest

import lakemark
from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.lookup import find_progress, find_table_progress
from lakemark.config import keys
from lakemark.config.table_properties import TableType
from lakemark.model.action import COMMITS
from lakemark.model.format_version import WRITTEN
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.transaction.carried_metadata import CHECKPOINT_KEY
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from tests.json_stream import TOPIC, JsonStream
from tests.unit.operations.tables import FAST, reopen

OTHER = "other"
KINDS = [(kind, version) for kind in TableType for version in WRITTEN]


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}-v{kind[1]:d}")
def streamer(request: pytest.FixtureRequest) -> JsonStream:
    table_type, version = request.param
    place = StorageLocation(f"memory://{uuid4().hex}/orders")
    return JsonStream(
        place, table_type=table_type, version=version, multi_writer=FAST, metadata_table=False
    )


def order(key: str, ts: int, n: int) -> pa.Table:
    return pa.table({"id": [key], "ts": pa.array([ts], pa.int64()), "n": pa.array([n], pa.int32())})


def restarted(stream: JsonStream, identity: str = DEFAULT_IDENTITY) -> JsonStream:
    return replace(stream, topic=identity or TOPIC, identity=identity)


def write_and_compact(table: lakemark.Table, times: Iterable[int]) -> None:
    for ts in times:
        table.upsert(order("a", ts, ts))
        if table.properties.is_merge_on_read and ts % 4 == 0:
            table.compact()


def newest_commit(stream: JsonStream) -> str:
    return open_table(stream.location).timeline.completed(*COMMITS)[-1].requested_at


def newest_extra(stream: JsonStream) -> dict[str, str]:
    table = open_table(stream.location)
    newest = table.timeline.completed(*COMMITS)[-1]
    return dict(table.store.read_commit(newest).extra_metadata)


def test_a_write_records_the_progress_of_all_streamers(streamer: JsonStream) -> None:
    streamer.write([{"id": "a", "ts": 1, "n": 1}])
    other = restarted(streamer, OTHER)
    other.write([{"id": "b", "ts": 1, "n": 1}, {"id": "c", "ts": 1, "n": 1}])
    table = reopen(streamer.location.url)
    table.upsert(order("a", 2, 7))
    table.delete(["b"])

    opened = open_table(streamer.location)
    known = find_table_progress(opened, opened.timeline).streamers
    assert known[DEFAULT_IDENTITY].checkpoint == KafkaCheckpoint(TOPIC, {0: 1})
    assert known[OTHER].checkpoint == KafkaCheckpoint(OTHER, {0: 2})
    extra = newest_extra(streamer)
    assert f'"{TOPIC},0:1"' in extra[keys.CHECKPOINTS]
    assert f'"{OTHER},0:2"' in extra[keys.CHECKPOINTS]
    assert CHECKPOINT_KEY not in extra, "Apache Hudi's streamer would take it for its own"
    assert {key: row["n"] for key, row in streamer.read().items()} == {"a": 7, "c": 1}


def test_a_running_streamer_continues_after_a_write(streamer: JsonStream) -> None:
    streamer.write([{"id": "a", "ts": 1, "n": 1}])
    reopen(streamer.location.url).upsert(order("b", 1, 2))
    streamer.write([{"id": "a", "ts": 2, "n": 3}])
    assert restarted(streamer).offset == 2
    assert {key: row["n"] for key, row in streamer.read().items()} == {"a": 3, "b": 2}


def test_archival_keeps_the_position_of_each_streamer(streamer: JsonStream) -> None:
    table = reopen(streamer.location.url)
    restarted(streamer, OTHER).write([{"id": "b", "ts": 1, "n": 1}])
    write_and_compact(table, range(1, 9))
    streamer = restarted(streamer)
    streamer.write([{"id": "a", "ts": 10, "n": 10}])
    position = newest_commit(streamer)
    write_and_compact(table, range(11, 19))
    archived = table.archive(min_commits=2, max_commits=3, retain_commits=1).instants
    assert archived
    assert position not in archived, "Apache Hudi's streamer would resume from this commit"
    opened = open_table(streamer.location)
    for identity in (DEFAULT_IDENTITY, OTHER):
        progress = find_progress(opened, opened.timeline, identity)
        assert progress is not None
        assert progress.checkpoint == KafkaCheckpoint(identity or TOPIC, {0: 1})
        assert progress.commit == position or progress.commit in archived
        assert restarted(streamer, identity).offset == 1


def test_rollback_of_a_write_leaves_the_position(streamer: JsonStream) -> None:
    streamer.write([{"id": "a", "ts": 1, "n": 1}])
    table = reopen(streamer.location.url)
    written = table.upsert(order("a", 2, 7)).instant
    assert written is not None
    table.rollback(written)
    again = restarted(streamer)
    assert again.offset == 1
    again.write([{"id": "b", "ts": 1, "n": 1}])
    assert {key: row["n"] for key, row in streamer.read().items()} == {"a": 1, "b": 1}


def test_only_writer_refuses_while_a_streamer_writes() -> None:
    place = StorageLocation(f"memory://{uuid4().hex}/orders")
    streamer = JsonStream(place, multi_writer=FAST, metadata_table=False)
    streamer.write([{"id": "a", "ts": 1, "n": 1}])
    streamer.rows.begin()
    table = lakemark.open(place.url, only_writer=True)
    with pytest.raises(lakemark.WriterAlive, match="another writer is writing to this table"):
        table.upsert(order("b", 1, 1))
    streamer.rows.abandon()
    table.upsert(order("b", 1, 1))
    assert sorted(streamer.read()) == ["a", "b"]
