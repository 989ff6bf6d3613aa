"""Avro records pass from Kafka to the table, with a schema registry and Spark's workers."""

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

import lakemark
from lakemark.execution.runner import LocalRunner
from sinks.hudi.exchange import DriverExchange, StreamExchange
from sinks.hudi.spark_exchange import SparkExchange
from streamer import pipeline
from streamer.config.load import validated
from tests.fixtures.kafka import Kafka
from tests.fixtures.schema_registry import Apicurio
from tests.schema_registry import FaultyRegistry
from transforms.decode.schema_registry import (
    RegistryRefused,
    RegistryUnavailable,
    SchemaNotFound,
    SchemaRegistry,
)
from transforms.decode.stored_schema import Reference

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

IN_WORKERS: StreamExchange[Any] = SparkExchange(2)
IN_DRIVER: StreamExchange[Any] = DriverExchange(LocalRunner(2))
ID = ("id", "string")


@pytest.fixture
def gateway(apicurio: Apicurio) -> Iterator[FaultyRegistry]:
    """A server in front of the registry that a test may stop."""
    with FaultyRegistry(apicurio.url) as server:
        yield server


def _record(*fields: tuple[str, object]) -> dict[str, Any]:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "order", "fields": listed}


def _framed(avro: Any, value: object, schema_id: int) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(avro), value)
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


def test_registry_reports_known_and_missing_schemas(apicurio: Apicurio) -> None:
    item = {"type": "record", "name": "shop.item", "fields": [{"name": "sku", "type": "string"}]}
    order = _record(ID, ("item", "shop.item"))
    apicurio.register("items/of shop", "int")
    item_id = apicurio.register("items/of shop", item)
    assert apicurio.register("copies", item) == item_id, "one schema, one id"
    order_id = apicurio.register("orders", order, [("shop.item", "items/of shop", 2)])
    message = 'syntax = "proto3"; message Order { string id = 1; }'
    apicurio.register("messages", message, kind="PROTOBUF")

    registry = SchemaRegistry(f"{apicurio.url}/")
    stored = registry.schema(item_id)
    assert (json.loads(stored.text), stored.references) == (item, ())
    assert registry.latest("items/of shop") == stored
    for referring in (registry.schema(order_id), registry.latest("orders")):
        assert referring.references == (Reference("shop.item", stored),)
        assert json.loads(referring.text) == order
    with pytest.raises(SchemaNotFound, match="has no schemas/ids/99999"):
        registry.schema(99_999)
    with pytest.raises(SchemaNotFound, match="has no subjects/none/versions/latest"):
        registry.latest("none")
    with pytest.raises(SchemaNotFound, match="is of type PROTOBUF, not AVRO"):
        registry.latest("messages")
    gone = apicurio.register("gone", _record(ID, ("gone", "int")))
    apicurio.delete("gone")
    with pytest.raises(SchemaNotFound, match="has no subjects/gone/versions/latest"):
        registry.latest("gone")
    assert registry.schema(gone), "what was written with it can be read"
    apicurio.delete_for_good("gone")
    with pytest.raises(SchemaNotFound, match=f"has no schemas/ids/{gone}"):
        registry.schema(gone)
    with pytest.raises(RegistryRefused, match=r"status 404; check decode.schema_registry.url"):
        SchemaRegistry(f"{apicurio.url}/elsewhere").schema(item_id)


def test_writers_that_change_their_schema_change_the_table(
    kafka: Kafka,
    spark: SparkSession,
    apicurio: Apicurio,
    gateway: FaultyRegistry,
    tmp_path: Path,
) -> None:
    topic, path = kafka.create_topic(partitions=2), tmp_path / "orders"
    old, new = _record(ID, ("n", "int")), _record(ID, ("n", "long"), ("note", ["null", "string"]))
    key_id = apicurio.register(f"{topic}-key", "string")
    old_id = apicurio.register(f"{topic}-value", old)
    config = validated(
        {
            "source": {"bootstrap_servers": kafka.bootstrap, "topic": topic},
            "decode": {
                "format": "avro",
                "schema_registry": {"url": gateway.url, "retry_timeout_s": 120},
                "unknown_fields": "evolve",
                "wider_values": "evolve",
                "tombstone_key": "avro",
            },
            "table": {"path": str(path), "record_key": "id", "buckets": 2},
            "run": {"mode": "once", "trigger_interval_s": 0},
        }
    )
    sent = [(f"o{n}", _framed(old, {"id": f"o{n}", "n": n}, old_id)) for n in range(20)]
    unknown = ("x", _framed(old, {"id": "x", "n": 0}, 99_999))
    _send(kafka, topic, key_id, [*sent, unknown, ("y", b"\0junk")])
    _run(config, IN_WORKERS)
    new_id = apicurio.register(f"{topic}-value", new)
    newer = [_framed(new, {"id": f"o{n}", "n": n + 2**40, "note": "b"}, new_id) for n in range(10)]
    _send(kafka, topic, key_id, [(f"o{n}", value) for n, value in enumerate(newer)])
    _send(kafka, topic, key_id, [("o19", None)])

    gateway.stop()
    up = Timer(2.0, gateway.start)
    up.start()
    _run(config, IN_WORKERS)
    up.join()

    rows = lakemark.open(str(path)).snapshot(["id", "n", "note"]).read_all()
    found = {row["id"]: (row["n"], row["note"]) for row in rows.to_pylist()}
    assert found == {f"o{n}": (n + 2**40, "b") if n < 10 else (n, None) for n in range(19)}
    described = ["code", "schema_id", "reason"]
    dead = lakemark.open(f"{path}_dead_letters").snapshot(described).read_all().to_pylist()
    assert {(one["code"], one["schema_id"]) for one in dead} == {
        ("unknown_schema", 99_999),
        ("unknown_schema", int.from_bytes(b"junk")),
    }
    assert all("has no schemas/ids/" in one["reason"] for one in dead), dead


def test_a_registry_that_stays_down_stops_the_run_and_nothing_is_lost(
    kafka: Kafka,
    spark: SparkSession,
    apicurio: Apicurio,
    gateway: FaultyRegistry,
    tmp_path: Path,
) -> None:
    topic, path = kafka.create_topic(), tmp_path / "orders"
    avro = _record(ID)
    key_id = apicurio.register(f"{topic}-key", "string")
    value_id = apicurio.register(f"{topic}-value", avro)
    config = validated(
        {
            "source": {"bootstrap_servers": kafka.bootstrap, "topic": topic},
            "decode": {
                "format": "avro",
                "schema": {"id": "string"},
                "schema_registry": {"url": gateway.url, "retry_timeout_s": 0},
            },
            "table": {"path": str(path), "record_key": "id", "buckets": 1},
            "run": {"mode": "once", "trigger_interval_s": 0, "retry": {"max_attempts": 1}},
        }
    )
    _send(kafka, topic, key_id, [("a", _framed(avro, {"id": "a"}, value_id))])
    gateway.stop()
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        _run(config, IN_DRIVER)
    gateway.start()
    _run(config, IN_DRIVER)
    assert lakemark.open(str(path)).snapshot(["id"]).read_all().to_pylist() == [{"id": "a"}]


def _send(kafka: Kafka, topic: str, key_id: int, records: list[tuple[str, bytes | None]]) -> None:
    # Keys as the registry's serializer of strings writes them.
    kafka.produce(topic, [(_framed("string", key, key_id), value) for key, value in records])


def _run(config: Any, exchange: StreamExchange[Any]) -> None:
    with pipeline.build(config, lambda event: None, exchange) as built:
        built.loop.run()
