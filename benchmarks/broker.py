"""A Kafka broker for one measurement: its own process, its own folder, gone at the end."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.orders import KAFKA_PARTITIONS, Orders, as_json
from streamer.toolchain import find_java, kafka_jars

_START_TIMEOUT_S = 60


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """A broker that keeps its data and log in ``folder``; gives its address, ``host:port``."""
    jars = ":".join(map(str, kafka_jars()))
    java = str(find_java().executable)
    address = f"127.0.0.1:{_free_port()}"
    properties = folder / "server.properties"
    properties.write_text(_server_properties(address, f"127.0.0.1:{_free_port()}", folder))
    with (folder / "broker.log").open("wb") as log:
        format_storage = ["kafka.tools.StorageTool", "format", "-t", "lakemarkBenchmark00000w"]
        subprocess.run(
            [java, "-cp", jars, *format_storage, "-c", str(properties), "--standalone"],
            check=True,
            stdout=log,
            stderr=log,
        )
        broker = subprocess.Popen(
            [java, "-Xmx1g", "-cp", jars, "kafka.Kafka", str(properties)], stdout=log, stderr=log
        )
    try:
        _await_broker(address, broker)
        yield address
    finally:
        broker.terminate()
        broker.wait(timeout=60)


def create_topic(address: str, topic: str) -> None:
    """An empty topic of four partitions."""
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics([NewTopic(topic, KAFKA_PARTITIONS, 1)]).values():
        created.result()


def produce(address: str, topic: str, orders: Orders) -> None:
    """Send the records, every one acknowledged before this returns."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "batch.size": 1_000_000})
    for chunk in orders.chunks():
        keys, values = chunk["order_id"].to_pylist(), as_json(chunk).to_pylist()
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            producer.produce(topic, value, key, partition=row % KAFKA_PARTITIONS)
        unsent = producer.flush(60)
        assert unsent == 0, f"{unsent} records were not taken by the broker at {address}"


def _server_properties(address: str, controller: str, folder: Path) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": controller,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / "kafka"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_broker(address: str, broker: subprocess.Popen[bytes]) -> None:
    host, port = address.split(":")
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s and broker.poll() is None:
        with closing(socket.socket()) as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.2)
    message = f"the broker did not come up at {address}; see broker.log beside its data"
    raise RuntimeError(message)
