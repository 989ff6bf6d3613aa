"""Avro on the whole way: Kafka, a schema registry, Spark's workers, the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from threading import Timer
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

import table
from sinks.hudi.exchange import DriverExchange, Exchange
from sinks.hudi.spark_exchange import SparkExchange
from streamer import pipeline
from streamer.config.load import validated
from table.execution.runner import LocalRunner
from tests.fixtures.kafka import Kafka
from tests.schema_registry import RegistryServer
from transforms.decode.registry import RegistryUnavailable

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

IN_WORKERS: Exchange = SparkExchange(2)
IN_DRIVER: Exchange = DriverExchange(LocalRunner(2))
ID = ("id", "string")


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def _record(*fields: tuple[str, object]) -> dict[str, Any]:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "order", "fields": listed}


def _framed(avro: Any, value: object, schema_id: int) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(avro), value)
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


def test_writers_that_change_their_schema_change_the_table(
    kafka: Kafka, spark: SparkSession, registry: RegistryServer, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(partitions=2), tmp_path / "orders"
    old, new = _record(ID, ("n", "int")), _record(ID, ("n", "long"), ("note", ["null", "string"]))
    key = "string"
    registry.schemas.update({1: json.dumps(old), 2: json.dumps(new), 3: json.dumps(key)})
    registry.subjects[f"{topic}-value"] = [{"schema": json.dumps(old)}]
    config = validated(
        {
            "source": {"bootstrap": kafka.bootstrap, "topic": topic},
            "decode": {
                "format": "avro",
                "schema_registry": {"url": registry.url, "patience_s": 20},
                "unknown_fields": "evolve",
                "wider_values": "evolve",
                "tombstone_key": "avro",
            },
            "table": {"path": str(path), "record_key": "id", "buckets": 2},
            "run": {"mode": "once", "trigger_interval_s": 0},
        }
    )
    sent = [(f"o{n}", _framed(old, {"id": f"o{n}", "n": n}, 1)) for n in range(20)]
    _send(kafka, topic, [*sent, ("x", _framed(old, {"id": "x", "n": 0}, 99)), ("y", b"\0junk")])
    _run(config, IN_WORKERS)
    newer = [_framed(new, {"id": f"o{n}", "n": n + 2**40, "note": "b"}, 2) for n in range(10)]
    _send(kafka, topic, [(f"o{n}", value) for n, value in enumerate(newer)])
    _send(kafka, topic, [("o19", None)])

    registry.stop()
    up = Timer(2.0, registry.start)
    up.start()
    _run(config, IN_WORKERS)
    up.join()

    rows = table.open(str(path)).snapshot(["id", "n", "note"]).read_all()
    found = {row["id"]: (row["n"], row["note"]) for row in rows.to_pylist()}
    assert found == {f"o{n}": (n + 2**40, "b") if n < 10 else (n, None) for n in range(19)}
    dead = table.open(f"{path}_dead_letters").snapshot(["reason"]).read_all()
    reasons = sorted(dead.column("reason").to_pylist())
    assert len(reasons) == 2
    assert all("has no schemas/ids/" in reason for reason in reasons), reasons


def test_a_registry_that_stays_down_stops_the_run_and_nothing_is_lost(
    kafka: Kafka, spark: SparkSession, registry: RegistryServer, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(), tmp_path / "orders"
    avro = _record(ID)
    registry.schemas[7] = json.dumps(avro)
    config = validated(
        {
            "source": {"bootstrap": kafka.bootstrap, "topic": topic},
            "decode": {
                "format": "avro",
                "schema": {"id": "string"},
                "schema_registry": {"url": registry.url, "patience_s": 0},
            },
            "table": {"path": str(path), "record_key": "id", "buckets": 1},
            "run": {"mode": "once", "trigger_interval_s": 0, "on_error": {"max_attempts": 1}},
        }
    )
    _send(kafka, topic, [("a", _framed(avro, {"id": "a"}, 7))])
    registry.stop()
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        _run(config, IN_DRIVER)
    registry.start()
    _run(config, IN_DRIVER)
    assert table.open(str(path)).snapshot(["id"]).read_all().to_pylist() == [{"id": "a"}]


def _send(kafka: Kafka, topic: str, records: list[tuple[str, bytes | None]]) -> None:
    # Keys as the registry's serializer of strings writes them.
    kafka.produce(topic, [(_framed("string", key, 3), value) for key, value in records])


def _run(config: Any, exchange: Exchange) -> None:
    with pipeline.build(config, lambda event: None, exchange) as built:
        built.loop.run()
