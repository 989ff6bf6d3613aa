"""A pipeline with rules reads a real topic, with each exchange, and continues after a failure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakemark.config import keys
from lakemark.execution.runner import LocalRunner
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from sinks.hudi.exchange import DriverExchange, StreamExchange
from sinks.hudi.spark_exchange import SparkExchange
from streamer import pipeline
from streamer.config.load import validated
from streamer.events import Event, RecordsRejected, RulesViolated
from tests.fixtures.kafka import Kafka
from transforms.violations import ExpectationFailed

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

EXCHANGES: dict[str, StreamExchange[Any]] = {
    "driver": DriverExchange(LocalRunner(2)),
    "spark": SparkExchange(2),
}


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_failed_rule_publishes_nothing_and_a_mended_one_continues(
    kafka: Kafka, spark: SparkSession, exchange: str, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(partitions=2), str(tmp_path / "rows")
    events: list[Event] = []

    def run(*rules: Mapping[str, object]) -> None:
        config = validated(
            {
                "source": {"bootstrap_servers": kafka.bootstrap, "topic": topic},
                "decode": {"schema": {"id": "int", "n": "int", "x": "double"}},
                "expect": [*rules],
                "table": {"path": path, "record_key": "id", "buckets": 2},
                "dead_letters": {"tolerated": 1_000},
                "run": {"mode": "once", "trigger_interval_s": 0},
            }
        )
        events.clear()
        with pipeline.build(config, events.append, EXCHANGES[exchange]) as built:
            built.loop.run()

    def produce(ids: range) -> None:
        values = [{"id": n, "n": n % 10 - 1, "x": -1.0 if n % 5 == 0 else 1.0} for n in ids]
        kafka.produce(topic, [(str(v["id"]).encode(), json.dumps(v).encode()) for v in values])

    def stored() -> dict[int, float | None]:
        rows = open_table(StorageLocation(path)).scan().to_reader().read_all().to_pylist()
        return {row["id"]: row["x"] for row in rows}

    def rejected() -> set[str]:
        letters = open_table(StorageLocation(f"{path}_dead_letters"))
        return {row["reason"] for row in letters.scan().to_reader().read_all().to_pylist()}

    positive = {"rule": "n >= 0", "name": "n is positive", "otherwise": "dead_letter"}
    not_null = {"rule": "x >= 0", "otherwise": "set_null"}
    produce(range(40))
    run(positive, not_null)
    expected = {n: None if n % 5 == 0 else 1.0 for n in range(40) if n % 10}
    assert stored() == expected
    assert rejected() == {"expect.0: rule 'n is positive' (n >= 0) is violated"}
    (violated,) = [event for event in events if isinstance(event, RulesViolated)]
    # A record that a rule rejects is not judged by the next rule.
    assert [(one.rule, one.count) for one in violated.violations] == [
        ("n is positive", 4),
        ("x >= 0", 4),
    ]
    (reject,) = [event for event in events if isinstance(event, RecordsRejected)]
    assert (reject.count, reject.first) == (
        4,
        f"{violated.violations[0].first}: {rejected().pop()}",
    )

    produce(range(40, 60))
    with pytest.raises(ExpectationFailed, match=r"expect.1: rule 'n != 3' is violated by 2 rows"):
        run(positive, {"rule": "n != 3", "otherwise": "fail"}, not_null)
    (violated,) = [event for event in events if isinstance(event, RulesViolated)]
    assert [one.count for one in violated.violations] == [2, 2, 2]
    assert stored() == expected
    assert len(open_table(StorageLocation(f"{path}_dead_letters")).scan().to_table()) == 4

    run(positive, {"rule": "n != 3", "otherwise": "warn"}, not_null)
    expected |= {n: None if n % 5 == 0 else 1.0 for n in range(40, 60) if n % 10}
    assert stored() == expected
    table = open_table(StorageLocation(path))
    newest = [one for one in table.timeline.instants if one.is_completed][-1]
    counts = json.loads(table.store.read_commit(newest).extra_metadata[keys.EXPECTATIONS])
    assert [one["violations"] for one in counts] == [2, 2, 2]
