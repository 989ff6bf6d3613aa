"""Each commit, of any writer, records how far every streamer of the table has read."""

from __future__ import annotations

from uuid import uuid4

import pytest

from checkpoints import commit_keys
from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.lookup import newest_table_progress
from checkpoints.position import Position
from checkpoints.progress import decode_progress
from lakemark.config import keys
from lakemark.errors import Fenced
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.transaction import carried_metadata
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from tests.json_stream import TOPIC, JsonStream

OTHER = "other"


def new_stream(location: StorageLocation | None = None, identity: str = "") -> JsonStream:
    place = location or StorageLocation(f"memory://{uuid4().hex}/orders")
    topic = identity or TOPIC
    return JsonStream(place, topic=topic, identity=identity, metadata_table=False)


def told_by_newest(stream: JsonStream) -> dict[str, Position | None]:
    """Return the checkpoint of each streamer that the newest commit records."""
    table = open_table(stream.location)
    newest = table.timeline.completed()[-1]
    extra = table.store.read_commit(newest).extra_metadata
    told = newest_table_progress([(newest, extra)])
    return {identity: progress.checkpoint for identity, progress in told.streamers.items()}


def test_commit_tells_the_progress_of_other_streamers() -> None:
    first = new_stream()
    first.write([{"id": "a", "ts": 1}])
    second = new_stream(first.location, OTHER)
    second.write([{"id": "b", "ts": 1}, {"id": "c", "ts": 1}])

    assert told_by_newest(first) == {
        DEFAULT_IDENTITY: KafkaCheckpoint(TOPIC, {0: 1}),
        OTHER: KafkaCheckpoint(OTHER, {0: 2}),
    }


def test_compaction_tells_the_progress_of_all_streamers() -> None:
    first = new_stream()
    second = new_stream(first.location, OTHER)
    for stream in (first, second):
        stream.write([{"id": "a", "ts": 1}])
    again = new_stream(first.location)
    again.write([{"id": "a", "ts": 2}])
    again.compact()

    table = open_table(first.location)
    (compaction,) = table.timeline.completed(Action.COMMIT)
    extra = table.store.read_commit(compaction).extra_metadata
    assert commit_keys.decode(extra) == KafkaCheckpoint(TOPIC, {0: 2})
    assert told_by_newest(first) == {
        DEFAULT_IDENTITY: KafkaCheckpoint(TOPIC, {0: 2}),
        OTHER: KafkaCheckpoint(OTHER, {0: 1}),
    }


def test_batch_is_refused_if_another_run_moved_the_checkpoint() -> None:
    stale = new_stream()
    stale.write([{"id": "a", "ts": 1}])
    new_stream(stale.location).write([{"id": "b", "ts": 1, "n": 1}])

    with pytest.raises(Fenced, match="has read up to"):
        stale.write([{"id": "b", "ts": 2, "n": 2}])

    assert stale.read()["b"]["n"] == 1


def test_each_batch_of_a_run_goes_on_from_the_one_before() -> None:
    stream = new_stream()
    for ts in range(3):
        stream.write([{"id": "a", "ts": ts}])

    assert stream.sink.checkpoint() == KafkaCheckpoint(TOPIC, {0: 3})


def test_batch_hands_back_what_apache_hudis_streamer_has_obeyed() -> None:
    stream = new_stream()
    stream.write([{"id": "a", "ts": 1}])
    writer = stream.rows
    writer.begin()
    schema = writer.table.newest_metadata() or CommitMetadata()
    applied = {carried_metadata.RESET_KEY: "0"}
    checkpoint = commit_keys.encode(KafkaCheckpoint(TOPIC, {0: 1}))
    kept = {keys.SCHEMA: schema.extra_metadata[keys.SCHEMA]}
    writer.commit([], {**kept, **applied, **checkpoint})

    again = new_stream(stream.location)
    again.write([{"id": "a", "ts": 2}])

    table = open_table(stream.location)
    newest = table.timeline.completed()[-1]
    extra = table.store.read_commit(newest).extra_metadata
    assert extra[carried_metadata.RESET_KEY] == "0"
    assert decode_progress(extra, newest, "").streamers[DEFAULT_IDENTITY].applied == applied
