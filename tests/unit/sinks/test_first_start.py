"""The first run records its start offsets in the table before it reads any record."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.config import keys
from lakemark.config.table_properties import TableType
from lakemark.errors import Fenced
from lakemark.model.action import COMMITS
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from sinks.audit import NOTHING_READ, Audit
from tests.json_stream import TOPIC, JsonStream

START = KafkaCheckpoint(TOPIC, {0: 7})


@pytest.fixture(params=TableType)
def stream(request: pytest.FixtureRequest) -> JsonStream:
    location = StorageLocation(f"memory://{uuid4().hex}/orders")
    return JsonStream(location, table_type=request.param)


def test_the_next_run_resumes_from_a_start_that_nothing_followed(stream: JsonStream) -> None:
    lost = [{"partition": 0, "from": 3, "to": 7}]
    commit = stream.sink.commit_start(START, "topic-id", lost)
    again = JsonStream(stream.location, table_type=stream.table_type)
    progress = again.sink.progress()
    assert progress is not None
    assert (progress.checkpoint, progress.topic_id) == (START, "topic-id")
    table = open_table(stream.location)
    metadata = table.store.read_commit(commit)
    assert metadata.write_stats == ()
    assert Audit.in_commit(metadata.extra_metadata) == NOTHING_READ
    assert json.loads(metadata.extra_metadata[keys.SOURCE_LOST]) == lost
    assert table.scan().to_reader().read_all().num_rows == 0
    again.write([{"id": "a", "ts": 1}])
    assert set(again.read()) == {"a"}
    assert again.sink.checkpoint() == KafkaCheckpoint(TOPIC, {0: 8})


def test_of_two_first_runs_only_one_records_its_start(stream: JsonStream) -> None:
    other = JsonStream(stream.location, table_type=stream.table_type)
    other.sink.commit_start(KafkaCheckpoint(TOPIC, {0: 9}))
    with pytest.raises(Fenced):
        stream.sink.commit_start(START)
    table = open_table(stream.location)
    assert len(table.timeline.completed(*COMMITS)) == 1
    assert not table.timeline.pending()
