"""Change events pass from Kafka to the table, with a schema registry and Spark's workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
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
from tests.unit.transforms.decode.envelopes import debezium_events as golden

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

IN_WORKERS: StreamExchange[Any] = SparkExchange(2)
IN_DRIVER: StreamExchange[Any] = DriverExchange(LocalRunner(2))


def _named(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"type": kind, "connect.version": 1, "connect.name": f"io.debezium.time.{name}", **more}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
ROW = (
    ("id", "long"),
    ("price", ["null", DECIMAL]),
    ("day", ["null", _named("int", "Date")]),
    ("created", ["null", _named("long", "MicroTimestamp")]),
)


def _envelope(*columns: tuple[str, object]) -> dict[str, Any]:
    """Return the schema of events as Confluent's converter writes it."""
    row = {"type": "record", "name": "Value", "fields": [_field(*one) for one in columns]}
    source = [("connector", "string"), ("ts_ms", "long"), ("lsn", ["null", "long"])]
    fields = [
        ("before", ["null", row]),
        ("after", ["null", "Value"]),
        ("source", {"type": "record", "name": "Source", "fields": [_field(*f) for f in source]}),
        ("op", "string"),
        ("ts_ms", ["null", "long"]),
    ]
    listed = [_field(*one) for one in fields]
    return {"type": "record", "name": "Envelope", "namespace": "shop.customers", "fields": listed}


def _field(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": kind}


def _value(avro: Any, schema_id: int, event: Mapping[str, object]) -> bytes:
    body = BytesIO()
    # The names of Debezium are no logical types, so the numbers are written as they are.
    fastavro.schemaless_writer(body, fastavro.parse_schema(avro), dict(event))
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


def _event(op: str, lsn: int, before: object, after: object) -> dict[str, object]:
    return golden.event(op, 5, {"connector": "postgresql", "ts_ms": 1, "lsn": lsn}, before, after)


def _row(key: int, cents: int, **more: object) -> dict[str, object]:
    price = Decimal(cents).scaleb(-2)
    return {"id": key, "price": price, "day": 17_000, "created": 1_000_001, **more}


def test_avro_events_of_two_schemas_leave_the_rows_of_the_database(
    kafka: Kafka, spark: SparkSession, apicurio: Apicurio, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(partitions=2), tmp_path / "customers"
    old, new = _envelope(*ROW), _envelope(*ROW, ("note", ["null", "string"]))
    old_id = apicurio.register(f"{topic}-value", old)
    config = validated(
        {
            "source": {"bootstrap_servers": kafka.bootstrap, "topic": topic},
            "decode": {
                "format": "debezium",
                "database": "postgres",
                "schema_registry": {"url": apicurio.url},
                "unknown_fields": "evolve",
            },
            "table": {"path": str(path), "record_key": "id", "buckets": 2},
            "dead_letters": {"tolerated": 100},
            "run": {"mode": "once", "trigger_interval_s": 0},
        }
    )
    created = [(key, _event("r", 1, None, _row(key, key))) for key in range(20)]
    _send(kafka, topic, [(key, _value(old, old_id, one)) for key, one in created])
    truncated = _value(old, old_id, _event("t", 2, None, None))
    _send(kafka, topic, [(0, truncated), (0, b"\0\0\1\x86\x9fjunk")])
    _run(config, IN_WORKERS)
    new_id = apicurio.register(f"{topic}-value", new)
    changed = _value(new, new_id, _event("u", 4, None, _row(1, 999, note="n")))
    late = _value(old, old_id, _event("u", 3, None, _row(1, 1)))
    deleted = _value(new, new_id, _event("d", 5, _row(2, 2, note=None), None))
    _send(kafka, topic, [(1, changed), (1, late), (2, deleted), (2, None)])
    _run(config, IN_WORKERS)

    rows = lakemark.open(str(path)).snapshot().read_all().to_pylist()
    found = {row["id"]: row for row in rows}
    assert found.keys() == set(range(20)) - {2}
    assert {name: found[1][name] for name in ("price", "note", "_position", "_op")} == {
        "price": Decimal("9.99"),
        "note": "n",
        "_position": 4,
        "_op": "u",
    }
    assert (found[3]["price"], found[3]["note"]) == (Decimal("0.03"), None)
    assert found[3]["day"] == date(2016, 7, 18)
    assert found[3]["created"] == datetime(1970, 1, 1, 0, 0, 1, 1, UTC)
    dead = lakemark.open(f"{path}_dead_letters").snapshot(["code", "schema_id"]).read_all()
    assert {(one["code"], one["schema_id"]) for one in dead.to_pylist()} == {
        ("invalid_message", old_id),
        ("unknown_schema", 99_999),
    }


def test_deletions_of_mongodb_get_their_kafka_keys(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(), tmp_path / "customers"
    config = validated(
        {
            "source": {"bootstrap_servers": kafka.bootstrap, "topic": topic},
            "decode": {
                "format": "debezium",
                "database": "mongodb",
                "schema": {"_id": "bigint", "first_name": "string"},
            },
            "table": {"path": str(path), "buckets": 1},
            "dead_letters": {"enabled": False},
            "run": {"mode": "once", "trigger_interval_s": 0},
        }
    )
    key = json.dumps(golden.MONGODB_KEY).encode()
    other = {**golden.MONGODB[0], "after": '{"_id": 5, "first_name": "x"}'}
    values = [json.dumps(one).encode() for one in (*golden.MONGODB, other)]
    kafka.produce(topic, [(key, value) for value in values])
    _run(config, IN_DRIVER)
    rows = lakemark.open(str(path)).snapshot(["_id", "first_name"]).read_all()
    assert rows.to_pylist() == [{"_id": 5, "first_name": "x"}]


def _send(kafka: Kafka, topic: str, records: list[tuple[int, bytes | None]]) -> None:
    kafka.produce(topic, [(json.dumps({"id": key}).encode(), value) for key, value in records])


def _run(config: Any, exchange: StreamExchange[Any]) -> None:
    with pipeline.build(config, lambda event: None, exchange) as built:
        built.loop.run()
