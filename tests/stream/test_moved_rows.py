"""Streams that move rows to other partitions, or only insert rows, in tables without buckets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from checkpoints.commit_keys import decode
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline.locks.open_lock import open_lock
from sinks.audit import Audit
from streamer import pipeline
from streamer.config.load import validated
from streamer.events import BatchWritten, Event
from tests.fixtures.kafka import Kafka, Message
from tests.short_lived import short_lived
from tests.stream.orders_pipeline import pipeline_tree
from tests.tables import make

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

#: A folder that is empty until a batch writes its files.
MARKERS = ".hoodie/.temp"
WRITES_WITHIN_S = 120.0
COLUMNS = {"id": "string", "region": "string", "ts": "bigint", "v": "int"}


def _pipeline(
    kafka: Kafka, topic: str, path: Path, tombstone_key: str = "json", **table: object
) -> dict[str, Any]:
    decoding = {"schema": COLUMNS, "tombstone_key": tombstone_key}
    keys = {"record_key": ["id"], "ordering": ["ts"], **table}
    tree = pipeline_tree(kafka.bootstrap, topic, str(path), decode=decoding, table=keys)
    del tree["table"]["buckets"]
    return tree


def _row(key: str, region: str, ts: int) -> Message:
    value = {"id": key, "region": region, "ts": ts, "v": ts}
    return key.encode(), json.dumps(value).encode()


def _run(tree: Mapping[str, Any]) -> list[BatchWritten]:
    events: list[Event] = []
    with pipeline.build(validated(tree), events.append) as built:
        built.loop.run()
    return [event for event in events if isinstance(event, BatchWritten)]


def _kill_before_publication(tree: Mapping[str, Any], folder: Path) -> None:
    """Kill a run that has written files, and waits for the lock of the table."""
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(tree))
    storage = open_storage(StorageLocation(tree["table"]["path"]))
    lease = open_lock(storage, lease_s=600.0).acquire(0)
    command = [sys.executable, "-m", "lakemark", "run", str(file), "--once"]
    with subprocess.Popen(command, env=short_lived(), start_new_session=True) as run:
        try:
            deadline = time.monotonic() + WRITES_WITHIN_S
            while not any(".parquet" in one.path for one in storage.list_tree(MARKERS)):
                assert run.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            os.killpg(run.pid, signal.SIGKILL)
    lease.release()


def _rows(table: OpenTable) -> list[tuple[str, str, int]]:
    rows = table.scan(columns=["id", "region", "ts", "_hoodie_partition_path"]).to_table()
    assert rows["region"] == rows["_hoodie_partition_path"]
    return sorted((row["id"], row["region"], row["ts"]) for row in rows.to_pylist())


@pytest.mark.parametrize(
    "has_record_index",
    [
        pytest.param(False, marks=pytest.mark.slow, id="lookup, killed"),
        pytest.param(True, id="record index"),
    ],
)
def test_rows_move_and_tombstones_need_only_the_key(
    kafka: Kafka, spark: SparkSession, has_record_index: bool, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(), tmp_path / "orders"
    location = StorageLocation(str(path))
    if has_record_index:
        make(open_storage(location), indexes=["record_index"])
    tree = _pipeline(kafka, topic, path, "raw", partition_change="move")
    kafka.produce(topic, [_row(key, "north", 5) for key in "abcd"])
    assert [batch.rows_moved for batch in _run(tree)] == [0]
    late = [_row("a", "south", 7), _row("a", "west", 6), _row("b", "south", 4)]
    kafka.produce(topic, [*late, (b"c", None), (b"unknown", None), _row("e", "west", 1)])
    if not has_record_index:
        _kill_before_publication(tree, tmp_path)
    (batch,) = _run(tree)
    assert (batch.records_read, batch.rows_moved, batch.rows_deleted) == (6, 1, 1)
    table = open_table(location)
    expected = [("a", "south", 7), ("b", "north", 5), ("d", "north", 5), ("e", "west", 1)]
    assert _rows(table) == expected
    kafka.produce(topic, [_row("a", "north", 6), _row("d", "south", 9)])
    (batch,) = _run(tree)
    assert (batch.records_read, batch.rows_moved) == (2, 1)
    table = open_table(location)
    expected[2] = ("d", "south", 9)
    assert _rows(table) == expected, "an event that is older than the move does not undo it"
    newest = table.newest_metadata()
    assert newest is not None
    checkpoint, audited = decode(newest.extra_metadata), Audit.in_commit(newest.extra_metadata)
    assert checkpoint is not None and audited is not None
    assert sum(checkpoint.offsets_by_partition.values()) == 12
    assert (audited.records, audited.written, audited.merged) == (2, 1, 1)
    assert metadata_differences(table) == []
    assert not table.timeline.pending()


@pytest.mark.parametrize(
    ("record_key", "is_killed"),
    [
        pytest.param(["id"], False, id="keys"),
        pytest.param([], False, id="automatic keys"),
        pytest.param([], True, marks=pytest.mark.slow, id="automatic keys, killed"),
    ],
)
def test_each_record_is_inserted_once(
    kafka: Kafka, spark: SparkSession, record_key: list[str], is_killed: bool, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(), tmp_path / "orders"
    tree = _pipeline(kafka, topic, path, operation="insert", record_key=record_key)
    sent = [("a", "north", 1), ("a", "north", 1), ("b", "south", 2)]
    for run in range(2):
        kafka.produce(topic, [*(_row(*one) for one in sent), (b"a", None)])
        if run and is_killed:
            _kill_before_publication(tree, tmp_path)
        (batch,) = _run(tree)
        assert (batch.records_read, batch.rejects) == (4, 1)
    assert _run(tree) == []
    table = open_table(StorageLocation(str(path)))
    assert _rows(table) == sorted(sent * 2)
    keys = table.scan(columns=["_hoodie_record_key"]).to_table().column(0).to_pylist()
    assert len(set(keys)) == (2 if record_key else 6)
