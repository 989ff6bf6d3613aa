"""Dead letters are replayed while the corrected pipeline reads the topic."""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakemark.errors import Refused, Retriable
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer import pipeline
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.events import BatchWritten, Event, PartitionsExpired, UnresolvedLettersExpire
from streamer.replay import open_replay
from tests.fixtures.kafka import Kafka, Message
from tests.rejection_days import Days, count_by_path
from tests.stream.orders_pipeline import pipeline_tree

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

REPLAYED_WITHIN_S = 300.0


def _message(number: int, **more: object) -> Message:
    return b"", json.dumps({"id": f"o{number}", "ts": number, **more}).encode()


@pytest.mark.parametrize("mode", ["single_writer", "multi_writer"])
def test_each_record_is_inserted_once_although_both_write_at_the_same_time(
    kafka: Kafka, spark: SparkSession, mode: str, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(), tmp_path / "orders"
    tree = pipeline_tree(
        kafka.bootstrap,
        topic,
        str(path),
        decode={"schema": {"id": "string", "ts": "bigint"}},
        dead_letters={"tolerated": 100},
        concurrency={"mode": mode, "clock_skew_ms": 1},
    )
    tree["source"]["max_records_per_batch"] = 10
    tree["table"] = {"path": str(path), "record_key": [], "operation": "insert"}
    corrected = validated(tree)
    tree["decode"]["unknown_fields"] = "reject"
    kafka.produce(topic, [_message(number, note="x") for number in range(5)])
    _run(validated(tree))
    kafka.produce(topic, [_message(number, note="x") for number in range(5, 60)])
    with ThreadPoolExecutor(1) as elsewhere:
        passed = elsewhere.submit(_replay, corrected)
        batches = _run(corrected)
        assert passed.result() == 5
    assert len(batches) > 1
    table = open_table(StorageLocation(str(path)))
    found = table.scan(columns=["id"]).to_table().column("id").to_pylist()
    assert Counter(found) == {f"o{number}": 1 for number in range(60)}
    assert metadata_differences(table) == []
    assert open_replay(corrected).run(None).passed == 0


def test_retention_deletes_old_days_and_the_run_continues(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, path = kafka.create_topic(), tmp_path / "orders"
    tree = pipeline_tree(
        kafka.bootstrap,
        topic,
        str(path),
        decode={"schema": {"id": "string", "ts": "bigint"}, "unknown_fields": "reject"},
        dead_letters={"tolerated": 100},
    )
    tree["table"] = {"path": str(path), "record_key": "id", "ordering": "ts"}
    days = Days(monkeypatch, datetime.now(UTC) - timedelta(days=41))
    letters, events = StorageLocation(f"{path}_dead_letters"), list[Event]()
    for first in (0, 10):
        kafka.produce(topic, [_message(first + n, **{"x": 1} if n < 4 else {}) for n in range(8)])
        _run(validated(tree))
        days.advance(20)
    old, kept = count_by_path(letters)
    tree["decode"]["unknown_fields"] = "ignore"
    assert open_replay(validated(tree)).run("offset < 3").passed == 3

    tree["decode"]["unknown_fields"], tree["dead_letters"]["retention"] = "reject", "30d"
    kafka.produce(topic, [_message(20, x=1), _message(21)])
    batches = _run(validated(tree), events)
    assert [one.records_read for one in batches] == [2]
    (reported,) = [one for one in events if isinstance(one, UnresolvedLettersExpire)]
    assert (reported.letters, reported.partitions) == (1, (old,))
    (deleted,) = [one for one in events if isinstance(one, PartitionsExpired)]
    assert deleted.partitions == (old,)
    new = f"rejected_on={days.now:%Y-%m-%d}"
    assert count_by_path(letters) == {kept: 4, new: 1}
    assert not _run(validated(tree))
    assert metadata_differences(open_table(letters)) == []
    tree["decode"]["unknown_fields"] = "ignore"
    assert open_replay(validated(tree)).run(None).passed == 5
    found = open_table(StorageLocation(str(path))).scan(columns=["id"]).to_table()
    expected = {f"o{first + n}" for first in (0, 10) for n in range(8)} | {"o20", "o21"}
    assert set(found.column("id").to_pylist()) == expected - {"o3"}


def _run(config: PipelineConfig, events: list[Event] | None = None) -> list[BatchWritten]:
    events = [] if events is None else events
    with pipeline.build(config, events.append) as built:
        built.loop.run()
    return [event for event in events if isinstance(event, BatchWritten)]


def _replay(config: PipelineConfig) -> int:
    """Replay letters as an operator does, who repeats the command until it is not refused.

    Returns:
        How many letters passed, also in commands that were refused later.
    """
    deadline, passed = time.monotonic() + REPLAYED_WITHIN_S, 0
    while True:
        replay = None
        try:
            replay = open_replay(config)
            return passed + replay.run(None).passed
        except (Refused, Retriable):
            passed += replay.result.passed if replay is not None else 0
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
