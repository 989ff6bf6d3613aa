"""Two pipelines, each with its own topic and identity, write to one table at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.errors import Retriable
from lakemark.execution.runner import LocalRunner
from lakemark.operations.open_table import open_table
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from tests.json_stream import JsonStream, Record

BATCHES, SIZE = 4, 4

#: Longer than the test, so that no heartbeat expires because the machine is busy.
SHARING = MultiWriter(HeartbeatPolicy(60.0, 2), clock_skew_ms=1)

#: The identity of each pipeline, and its topic.
PIPELINES = (("", "orders"), ("returns", "refunds"))


@pytest.mark.parametrize(
    "sharing", [SHARING, replace(SHARING, non_blocking=True)], ids=["multi_writer", "non_blocking"]
)
def test_each_row_and_each_dead_letter_is_written_once(
    sharing: MultiWriter, tmp_path: Path
) -> None:
    location = StorageLocation(str(tmp_path / "orders"))
    for identity, topic in PIPELINES:
        open_stream(location, identity, topic, sharing)
    with ThreadPoolExecutor(2) as pool:
        streams = list(pool.map(lambda one: feed(location, one[0], one[1], sharing), PIPELINES))

    # Of a key that both pipelines write, the later event wins, in any order of commits.
    expected: dict[str, Record] = {}
    for _, topic in PIPELINES:
        for record in records_of(topic):
            if not isinstance(record, bytes):
                seen = expected.get(str(record["id"]), record)
                assert not isinstance(seen, bytes)
                newer = max(seen, record, key=lambda one: int(str(one["ts"])))
                expected[str(record["id"])] = newer
    assert streams[0].read() == expected
    assert rejected(streams[0]) == sorted(
        (topic, offset)
        for _, topic in PIPELINES
        for offset, record in enumerate(records_of(topic))
        if isinstance(record, bytes)
    )
    for identity, topic in PIPELINES:
        resumed = open_stream(location, identity, topic, sharing)
        assert resumed.sink.checkpoint() == KafkaCheckpoint(topic, {0: BATCHES * SIZE})


def feed(location: StorageLocation, identity: str, topic: str, sharing: MultiWriter) -> JsonStream:
    """Run a pipeline to the end of its topic; after a conflict it restarts from the table."""
    records = records_of(topic)
    stream = open_stream(location, identity, topic, sharing)
    while stream.offset < len(records):
        try:
            stream.write(records[stream.offset : stream.offset + SIZE])
            stream.rows.compact_if_due(CompactionPolicy(4), LocalRunner(1))
        except Retriable:
            stream = open_stream(location, identity, topic, sharing)
    return stream


def open_stream(
    location: StorageLocation, identity: str, topic: str, sharing: MultiWriter
) -> JsonStream:
    return JsonStream(location, topic=topic, identity=identity, multi_writer=sharing)


def records_of(topic: str) -> list[Record]:
    """Create records of own keys, of keys in both topics, and one per batch that is not JSON."""
    step = [name for _, name in PIPELINES].index(topic)
    records: list[Record] = []
    for number in range(BATCHES):
        ts = 10 * number + step
        records += [
            {"id": f"{topic}{number}", "ts": ts, "n": number},
            {"id": f"both{number % 2}", "ts": ts, "n": 100 * step + number},
            b"no JSON",
            {"id": topic, "ts": ts, "n": number},
        ]
    return records


def rejected(stream: JsonStream) -> list[tuple[str, int]]:
    rows = open_table(stream.rejects.table.location).scan().to_reader().read_all().to_pylist()
    return sorted((row["topic"], row["offset"]) for row in rows)
