"""Metrics and health of a real run, over HTTP."""

from __future__ import annotations

import time
import urllib.error
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamer import pipeline
from streamer.events import Alive, BatchWritten, Event, MetricsServed
from streamer.keepalive import emit_keepalives
from streamer.metrics.server import monitor_run
from tests.fixtures.kafka import Kafka
from tests.stream.monitoring import get, scraped
from tests.stream.orders_pipeline import pipeline_config
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


class Watcher:
    """Requests metrics and health while the run waits inside the event of its first batch."""

    def __init__(self) -> None:
        self.port = 0
        self.amid: dict[str, float] = {}
        self.alive: list[Alive] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Alive):
            self.alive.append(event)
        if isinstance(event, MetricsServed):
            self.port = event.port
            assert get(self.port, "/health") == (200, "starting\n")
            assert get(self.port, "/ready")[0] == 503
        if isinstance(event, BatchWritten) and event.batch_id == 0:
            until(lambda: scraped(self.port)["lakemark_table_file_groups"] >= 1)
            until(lambda: scraped(self.port)["lakemark_lag_seconds0"] > 0)
            self.amid = scraped(self.port)
            until(
                lambda: (
                    Alive({0: 15}, {0: 6}, 0, True) in [replace(a, idle_s=0) for a in self.alive]
                )
            )
            until(lambda: get(self.port, "/health")[0] == 503)
            assert get(self.port, "/health")[1].startswith("stuck for ")
            assert get(self.port, "/ready")[0] == 503


def test_metrics_and_health_of_a_real_run(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    began = time.time()
    topic = kafka.create_topic()
    row = b'{"order_id": "%d", "region": "north", "updated_at": 1}'
    kafka.produce(topic, [(b"%d" % n, row % n) for n in range(20)] + [(b"bad", b"{")])
    config = pipeline_config(
        kafka.bootstrap,
        topic,
        tmp_path / "orders",
        source={"max_records_per_batch": 15},
        metrics={"port": 0, "poll_interval_s": 0.1, "stuck_after_s": 15.0},
    )
    watcher = Watcher()
    with monitor_run(config, watcher) as monitor:
        listener = monitor.listener
        with (
            pipeline.build(config, listener) as built,
            monitor.watch(built),
            emit_keepalives(built.loop, built.source, listener, 0.1),
        ):
            built.loop.run()
        after = scraped(watcher.port)
        assert get(watcher.port, "/health") == (503, "stopped: caught up\n")
    assert watcher.amid["lakemark_lag_records0"] == 6
    assert 0 < watcher.amid["lakemark_lag_seconds0"] < 300
    assert watcher.amid["lakemark_next_offset0"] == 15
    assert watcher.amid["lakemark_table_file_groups"] >= 1
    assert watcher.amid["lakemark_table_active_instantsrows"] == 1
    assert watcher.amid["lakemark_failed_polls_total"] == 0
    assert after["lakemark_next_offset0"] == 21
    assert after["lakemark_lag_records0"] == after["lakemark_lag_seconds0"] == 0
    assert after["lakemark_records_read_total"] == 21
    assert after["lakemark_records_rejected_total"] == 1
    assert after["lakemark_batch_seconds_count"] == 2
    assert after["lakemark_files_written_total"] >= 2
    assert began < after["lakemark_last_commit_timestamp_seconds"] < time.time()
    assert began < after["lakemark_last_instant_timestamp_seconds"] < time.time()
    with pytest.raises(urllib.error.URLError):
        get(watcher.port, "/health")
