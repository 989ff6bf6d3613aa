"""Pauses and the status of runs that read Kafka with Spark."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakemark
from streamer import pipeline
from streamer.events import BatchWritten, Event, MetricsServed, RunStarted
from streamer.metrics.server import monitor_run
from tests.fixtures.kafka import Kafka
from tests.stream.monitoring import get, post
from tests.stream.orders_pipeline import pipeline_config
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TOKEN = "0123456789abcdef"


def test_paused_run_shows_its_lag_and_resumes_without_loss_or_repetition(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    events, ports = list[Event](), list[int]()
    config = pipeline_config(
        kafka.bootstrap,
        topic,
        tmp_path / "orders",
        run={"mode": "continuous"},
        metrics={"port": 0, "poll_interval_s": 0.1, "action_token": TOKEN},
    )

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, MetricsServed):
            ports.append(event.port)

    def produce(first: int, count: int) -> None:
        text = '{"order_id": "%d", "region": "north", "updated_at": 1}'
        numbers = range(first, first + count)
        kafka.produce(topic, [(b"%d" % n, (text % n).encode()) for n in numbers])

    def status() -> Any:
        return json.loads(get(ports[0], "/status.json")[1])["pipelines"][0]

    def act(action: str) -> None:
        assert post(ports[0], f"/pipelines/orders/{action}", TOKEN)[0] == 202

    def read() -> int:
        return sum(one.records_read for one in events if isinstance(one, BatchWritten))

    produce(0, 20)
    with monitor_run(config, listen) as monitor:
        with (
            pipeline.build(config, monitor.listener, paused=monitor.control.paused) as built,
            monitor.watch(built),
        ):
            monitor.control.bind_stop(built.loop.stop)
            thread = threading.Thread(target=built.loop.run, daemon=True)
            thread.start()
            until(lambda: read() == 20)
            act("pause")
            until(lambda: status()["state"] == "paused")
            produce(20, 5)
            until(lambda: status()["lag_records"] == 5)
            until(lambda: status()["lag_s"] is not None)
            (partition,) = status()["details"]["lag"]["partitions"]
            assert (partition["partition"], partition["next_offset"]) == (0, 20)
            assert (partition["records"], read()) == (5, 20)
            act("resume")
            until(lambda: read() == 25)
            until(lambda: status()["lag_records"] == 0)
            act("stop")
            thread.join(60)
            assert not thread.is_alive()
    assert sum(isinstance(one, RunStarted) for one in events) == 1
    found = lakemark.open(str(tmp_path / "orders")).scan().to_table()["order_id"].to_pylist()
    assert sorted(found, key=int) == [str(n) for n in range(25)]
