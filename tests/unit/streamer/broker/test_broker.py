"""The broker keeps its topics, ends with its parent, and reports why it cannot start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from lakemark.errors import InvalidConfig
from streamer.broker import BrokerFailed, EmbeddedBroker, start_detached, status, stop_detached
from streamer.broker.data_folder import HOST, Ports, free_ports, prepare
from streamer.broker.process import ProcessIdentity
from streamer.cli import FAILED, MISUSED, OK, main
from tests.fixtures.kafka import Kafka
from tests.waiting import until

_DOCKER_SETTINGS = Path(__file__).parents[4] / "docker" / "kafka" / "server.properties"


def listens(bootstrap: str) -> bool:
    host, port = bootstrap.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Read the first ``count`` values of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, 120)]
    finally:
        consumer.close()


@pytest.mark.kafka
def test_acknowledged_records_survive_a_crash_of_the_broker(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "a folder, with a comma")
    with pytest.raises(InvalidConfig, match="never started"):
        _ = broker.bootstrap
    with broker:
        bootstrap = broker.bootstrap
        assert broker.start() == bootstrap
        kafka = Kafka(bootstrap)
        topic = kafka.create_topic()
        kafka.produce(topic, [(b"k", b"%d" % i) for i in range(100)])
        broker.kill()
        assert not broker.is_running
        assert not listens(bootstrap)
        assert broker.start() == bootstrap
        assert values(bootstrap, topic, 100) == [b"%d" % i for i in range(100)]
    assert not broker.is_running
    assert not listens(bootstrap)
    broker.stop()


@pytest.mark.kafka
def test_the_broker_ends_when_its_parent_was_killed(tmp_path: Path) -> None:
    program = (
        "import pathlib, time; from streamer.broker import EmbeddedBroker\n"
        "print(EmbeddedBroker(pathlib.Path('data')).start(), flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    bootstrap = parent.stdout.readline().strip()
    assert listens(bootstrap)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    until(lambda: not listens(bootstrap))


@pytest.mark.kafka
def test_a_detached_broker_is_one_until_it_is_stopped(tmp_path: Path) -> None:
    assert status(tmp_path) is None
    assert stop_detached(tmp_path) is None
    started = start_detached(tmp_path)
    try:
        assert start_detached(tmp_path) == started == status(tmp_path)
        assert listens(started.bootstrap)
    finally:
        assert stop_detached(tmp_path) == started
    assert status(tmp_path) is None
    assert not listens(started.bootstrap)
    assert ProcessIdentity.of(started.pid) is None


@pytest.mark.kafka
def test_a_topic_is_created_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = ["--home", str(tmp_path)]
    create = ["broker", "create-topic", "readings", "--partitions", "2", *home]
    assert main(create) == FAILED
    assert f"lakemark broker start --home {tmp_path}" in capsys.readouterr().err
    assert main(["broker", "start", *home]) == OK
    try:
        for text in ("created topic readings with 2 partitions", "readings exists already with 2"):
            capsys.readouterr()
            assert main(create) == OK
            create[4] = "5"
            assert text in capsys.readouterr().out
        running = status(tmp_path / "broker")
        assert running is not None
        topics = AdminClient({"bootstrap.servers": running.bootstrap}).list_topics(timeout=30)
        assert len(topics.topics["readings"].partitions) == 2
        assert main(["broker", "create-topic", "a b", *home]) == FAILED
        assert "'a b'" in capsys.readouterr().err
    finally:
        assert main(["broker", "stop", *home]) == OK


@pytest.mark.kafka
def test_a_broker_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    prepare(tmp_path, free_ports())
    (tmp_path / "topics" / "meta.properties").write_text("version=7\n")
    broker = EmbeddedBroker(tmp_path)
    with pytest.raises(BrokerFailed, match=r"broker\.log(.|\n)*version") as caught:
        broker.start()
    assert caught.value.log == broker.log
    assert not broker.is_running


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BrokerFailed, match=f"port {port}"):
            EmbeddedBroker(tmp_path / "attached", port=port).start()
        with pytest.raises(BrokerFailed, match=f"port {port}"):
            start_detached(tmp_path / "detached", port=port)


def test_a_broker_that_runs_is_not_moved_to_another_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = ProcessIdentity.of(os.getpid())
    assert process is not None
    home = tmp_path / "broker"
    home.mkdir()
    record = {"process": asdict(process), "ports": asdict(Ports(9092, 9093))}
    (home / "broker.json").write_text(json.dumps(record))
    running = status(home)
    assert running is not None
    assert start_detached(home) == start_detached(home, 9092) == running
    assert main(["broker", "start", "--home", str(tmp_path), "--port", "9094"]) == MISUSED
    reported = capsys.readouterr().err
    assert f"the broker of {home} already runs on port 9092; stop it first" in reported


@pytest.mark.parametrize("text", ["", "{", "[]", '{"process": 1, "ports": {}}', "\x00"])
def test_incomplete_broker_record_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker.json").write_text(text)
    assert status(tmp_path) is None


def test_the_broker_in_docker_differs_only_in_where_it_listens(tmp_path: Path) -> None:
    prepare(tmp_path, Ports(1, 2))
    assert settings(tmp_path / "server.properties") == settings(_DOCKER_SETTINGS)


def settings(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    places = ("listeners", "advertised.listeners", "controller.quorum.voters")
    pairs = (line.split("=", 1) for line in lines)
    return {key: value for key, value in pairs if key not in places}
