"""Checks of whole batches judge a real topic, with each exchange, and stop a run unpublished."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from checkpoints.commit_keys import decode
from lakemark.config import keys
from lakemark.model.action import Action
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from sinks.hudi.exchange import StreamExchange
from streamer import pipeline
from streamer.config.load import validated
from streamer.events import ChecksViolated, Event
from tests.fixtures.kafka import Kafka
from tests.short_lived import short_lived
from tests.stream.orders_pipeline import assert_offsets_chain
from tests.stream.test_expectations import EXCHANGES
from tests.waiting import until
from transforms.batch_checks import BatchCheckFailed

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

UNIQUE = {
    "check": "select id from batch group by id having count(*) > 1 order by id",
    "name": "ids are unique",
    "otherwise": "fail",
}
NEW = {
    "check": "select id, s.n as old from batch join stored s using (id) where s.n < 99 order by id",
    "name": "ids are new",
    "otherwise": "warn",
}
#: It ends only with its process.
ENDLESS = {
    "check": "select 1 from range(9000000000) a, range(9000000000) b, batch where a.range < -1",
    "otherwise": "warn",
}


def tree(kafka: Kafka, topic: str, path: str, *checks: Mapping[str, object]) -> dict[str, Any]:
    return {
        "source": {"bootstrap_servers": kafka.bootstrap, "topic": topic},
        "decode": {"schema": {"id": "int", "n": "int", "note": "string"}},
        "expect": [*checks],
        "table": {"path": path, "record_key": "id", "buckets": 2},
        "run": {"mode": "once", "trigger_interval_s": 0},
    }


def produce(kafka: Kafka, topic: str, *ids: int) -> None:
    values = [{"id": n, "n": n, "note": "x" * n} for n in ids]
    kafka.produce(topic, [(str(v["id"]).encode(), json.dumps(v).encode()) for v in values])


def stored(path: str) -> list[int]:
    table = open_table(StorageLocation(path))
    if not commits(table):
        return []
    rows = table.scan().to_reader().read_all()
    return sorted(rows.column("id").to_pylist())


def commits(table: OpenTable) -> list[Mapping[str, str]]:
    done = table.timeline.completed(Action.DELTA_COMMIT)
    return [table.store.read_commit(one).extra_metadata for one in done]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_failed_check_publishes_nothing_and_a_mended_one_continues(
    kafka: Kafka, spark: SparkSession, exchange: str, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(partitions=2), str(tmp_path / "rows")
    events: list[Event] = []
    moved: StreamExchange[Any] = EXCHANGES[exchange]

    def run(*checks: Mapping[str, object]) -> list[ChecksViolated]:
        events.clear()
        config = validated(tree(kafka, topic, path, *checks))
        with pipeline.build(config, events.append, moved) as built:
            built.loop.run()
        return [one for one in events if isinstance(one, ChecksViolated)]

    produce(kafka, topic, *range(40))
    assert not run(UNIQUE, NEW)
    assert stored(path) == [*range(40)]

    produce(kafka, topic, 50, 7, 51, 51, 50)
    with pytest.raises(BatchCheckFailed, match="returned 2 rows, the first: id=50; id=51; nothing"):
        run(UNIQUE, NEW)
    (failed,) = [one for one in events if isinstance(one, ChecksViolated)]
    assert [(one.check, one.result.count) for one in failed.violations] == [
        ("ids are unique", 2),
        ("ids are new", 1),
    ]
    assert stored(path) == [*range(40)]

    (warned,) = run({**UNIQUE, "otherwise": "warn"}, NEW)
    assert [one.result.first for one in warned.violations] == [("id=50", "id=51"), ("id=7, old=7",)]
    assert stored(path) == [*range(40), 50, 51]
    found = commits(open_table(StorageLocation(path)))
    assert [one["violations"] for one in json.loads(found[-1][keys.EXPECTATIONS])] == [2, 1]


def test_run_that_is_killed_during_a_check_or_fails_it_loses_and_repeats_nothing(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(partitions=2), str(tmp_path / "rows")
    file, events = tmp_path / "pipeline.yaml", tmp_path / "events.jsonl"
    command = [sys.executable, "-m", "lakemark", "run", str(file), "--events", str(events)]

    def configure(*checks: Mapping[str, object]) -> None:
        file.write_text(yaml.safe_dump(tree(kafka, topic, path, *checks)))

    def is_pending() -> bool:
        assert process.poll() is None, "the run ended by itself"
        return any(Path(path, ".hoodie").glob("timeline/*.deltacommit.inflight"))

    produce(kafka, topic, *range(20), 3)
    configure(ENDLESS)
    with subprocess.Popen(command, env=short_lived(), stdout=subprocess.DEVNULL) as process:
        try:
            until(is_pending, "the instant of the batch")
        finally:
            process.kill()
    assert stored(path) == []

    configure(UNIQUE)
    for _ in range(2):
        failed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert failed.returncode != 0
        assert "check 'ids are unique'" in failed.stderr + failed.stdout
        assert "returned 1 row: id=3" in failed.stderr + failed.stdout
        assert stored(path) == []

    configure({**UNIQUE, "otherwise": "warn"})
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    table = open_table(StorageLocation(path))
    assert stored(path) == [*range(20)]
    newest = table.newest_metadata()
    assert newest is not None
    checkpoint = decode(newest.extra_metadata)
    assert checkpoint is not None
    assert sum(checkpoint.offsets_by_partition.values()) == 21
    assert_offsets_chain(table.location, checkpoint)
