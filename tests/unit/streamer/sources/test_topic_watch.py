"""Faults of the watch of topics: no idle pipeline sleeps for ever, and the watch comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.sources import topic_watch
from streamer.sources.topic_watch import TopicWatch, _Cluster
from tests.waiting import until

AWAY = "127.0.0.1:1"


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[TopicWatch]:
    """A watch whose cluster has no new records and no errors."""
    monkeypatch.setattr(_Cluster, "_find_changed", lambda *_: [])
    monkeypatch.setattr(_Cluster, "_lasting_error", lambda _: None)
    watch = TopicWatch(interval_s=0.01)
    yield watch
    watch.close()


def source(**consumer: object) -> KafkaSourceConfig:
    given = {"bootstrap_servers": AWAY, "topic": "orders", "consumer": consumer}
    return KafkaSourceConfig.model_validate(given)


class Waiting:
    """An idle pipeline."""

    def __init__(self, watch: TopicWatch) -> None:
        self.topic = watch.of(source())
        assert self.topic.can_be_watched
        self._gives_up = threading.Event()
        read_to = KafkaCheckpoint("orders", {0: 0})
        arguments = (read_to, "", self._gives_up.is_set)
        self._thread = threading.Thread(target=self.topic.wait, args=arguments, daemon=True)
        self._thread.start()
        until(lambda: bool(self.cluster._waiters))

    @property
    def cluster(self) -> _Cluster:
        cluster = self.topic._cluster()
        assert cluster is not None
        return cluster

    @property
    def is_woken(self) -> bool:
        return not self._thread.is_alive()

    def give_up(self) -> None:
        self._gives_up.set()
        self._thread.join(120)


def _fail(*_: object) -> Any:
    message = "the answer is not understood"
    raise AttributeError(message)


@pytest.mark.parametrize("failing", ["_find_changed", "_lasting_error"])
def test_unexpected_error_wakes_the_pipelines(
    watch: TopicWatch,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failing: str,
) -> None:
    waiting = Waiting(watch)
    monkeypatch.setattr(_Cluster, failing, _fail)
    until(lambda: waiting.is_woken)
    assert "AttributeError: the answer is not understood" in caplog.text


def test_watch_is_tried_again_some_time_after_a_lasting_error(
    watch: TopicWatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    late_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late_s)
    monkeypatch.setattr(topic_watch, "time", clock)
    waiting = Waiting(watch)
    with monkeypatch.context() as failing:
        failing.setattr(_Cluster, "_lasting_error", lambda _: KafkaError(KafkaError._SSL))
        until(lambda: waiting.is_woken)
        assert not waiting.topic.can_be_watched
    assert f"cannot watch the topics at {AWAY}: " in caplog.text
    assert not waiting.topic.can_be_watched
    late_s = topic_watch._RETRY_AFTER_S
    assert waiting.topic.can_be_watched


def test_client_without_a_waiting_pipeline_is_closed(
    watch: TopicWatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Waiting(watch)
    monkeypatch.setattr(topic_watch, "_UNUSED_S", 0.05)
    cluster = waiting.cluster
    waiting.give_up()
    until(lambda: not hasattr(cluster, "_admin"))
    monkeypatch.setattr(topic_watch, "_UNUSED_S", 300.0)
    assert waiting.topic.can_be_watched
    assert waiting.cluster is not cluster
    assert topic_watch.__name__ not in {record.name for record in caplog.records}, "no failure"


def test_secret_may_be_missing_once_it_was_read_and_may_be_replaced(
    watch: TopicWatch, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    login = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required username='a' password="
    )
    secured = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": {"file": str(secret)},
    }
    assert not watch.of(source(**secured)).can_be_watched
    secret.write_text(f"{login}'geheim';")
    topic = watch.of(source(**secured))
    assert topic.can_be_watched
    secret.unlink()
    assert topic.can_be_watched
    before = topic._cluster()
    secret.write_text(f"{login}'another';")
    assert topic.can_be_watched
    assert topic._cluster() is not before, "the client has the new secret"
