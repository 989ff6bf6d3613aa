"""Protocol Buffers and JSON Schema pass from Kafka to the table, with a real schema registry."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from pyspark.sql import SparkSession

import lakemark
from lakemark.execution.runner import LocalRunner
from sinks.hudi.exchange import DriverExchange, StreamExchange
from sinks.hudi.spark_exchange import SparkExchange
from streamer import pipeline
from streamer.config.load import validated
from tests.fixtures.kafka import Kafka
from tests.fixtures.schema_registry import Apicurio
from tests.protobuf.drawn_messages import message_class

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

#: Google's class needs descriptors, and the registry has the text of the same message.
_STRING, _INT32, _MESSAGE = 9, 5, 11
_MONEY = 'syntax = "proto3"; package shop; message Money { int32 cents = 1; }'
_ORDER = """
syntax = "proto3";
package shop;
import "money.proto";
import "google/protobuf/timestamp.proto";
message Cancelled { string id = 1; }
message Order { string id = 1; Money total = 2; google.protobuf.Timestamp at = 3; }
"""


def _order_class() -> type[Any]:
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    own = files.file.add(name="order.proto", package="shop", syntax="proto3")
    own.dependency.append(files.file[0].name)
    money = own.message_type.add(name="Money")
    money.field.add(name="cents", number=1, label=1, type=_INT32)
    order = own.message_type.add(name="Order")
    order.field.add(name="id", number=1, label=1, type=_STRING)
    order.field.add(name="total", number=2, label=1, type=_MESSAGE, type_name=".shop.Money")
    known = ".google.protobuf.Timestamp"
    order.field.add(name="at", number=3, label=1, type=_MESSAGE, type_name=known)
    return message_class(files, "shop.Order")


def test_messages_and_headers_become_rows(
    kafka: Kafka, spark: SparkSession, apicurio: Apicurio, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(partitions=2), tmp_path / "orders"
    apicurio.register(f"{topic}-money", _MONEY, kind="PROTOBUF")
    references = [("money.proto", f"{topic}-money", 1)]
    schema_id = apicurio.register(f"{topic}-value", _ORDER, references, kind="PROTOBUF")
    kind, head = _order_class(), b"\0" + schema_id.to_bytes(4, "big")
    sent = []
    for n in range(20):
        order = kind(id=f"o{n}", total={"cents": n})
        order.at.FromSeconds(n)
        sent.append((None, head + b"\x02\x02" + order.SerializeToString()))
    kafka.produce(topic, sent, headers=[("x-tenant", b"a"), ("x-tenant", b"b")])
    kafka.produce(topic, [(None, head + b"\x00" + kind(id="gone").SerializeToString())])
    bad = head + b"\x02\x02\x0a\x01\xff"
    kafka.produce(topic, [(None, bad)], headers=[("x-tenant", b"c")])

    _run(
        {
            "source": {
                "bootstrap_servers": kafka.bootstrap,
                "topic": topic,
                "header_columns": {"tenant": "x-tenant"},
            },
            "decode": {
                "format": "protobuf",
                "schema_registry": {"url": apicurio.url},
                "message": "shop.Order",
            },
            "table": {"path": str(path), "record_key": "id", "buckets": 2},
            "run": {"mode": "once", "trigger_interval_s": 0},
        },
        SparkExchange(2),
    )

    rows = lakemark.open(str(path)).snapshot(["id", "total", "at", "tenant"]).read_all()
    found = {row.pop("id"): row for row in rows.to_pylist()}
    gone = found.pop("gone")
    assert gone == {"total": None, "at": None, "tenant": None}, "a message without these fields"
    assert found == {
        f"o{n}": {"total": {"cents": n}, "at": datetime.fromtimestamp(n, UTC), "tenant": "b"}
        for n in range(20)
    }
    described = ["code", "schema_id", "reason", "headers"]
    (dead,) = lakemark.open(f"{path}_dead_letters").snapshot(described).read_all().to_pylist()
    assert dead["reason"] == (
        f"schema {schema_id}, message shop.Order: field 'id': the text is not UTF-8"
    )
    assert (dead["code"], dead["schema_id"]) == ("invalid_message", schema_id)
    assert dead["headers"] == [{"key": "x-tenant", "value": b"c"}]


def test_json_schema_gives_the_columns_their_types(
    kafka: Kafka, spark: SparkSession, apicurio: Apicurio, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(), tmp_path / "orders"
    item = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    order = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "n": {"type": "integer"}, "item": {"$ref": "i"}},
    }
    apicurio.register(f"{topic}-item", json.dumps(item), kind="JSON")
    references = [("i", f"{topic}-item", 1)]
    schema_id = apicurio.register(f"{topic}-value", json.dumps(order), references, kind="JSON")
    head = b"\0" + schema_id.to_bytes(4, "big")
    value = {"id": "a", "n": 5, "item": {"at": "1970-01-01T00:00:01Z"}}
    sent = [(None, head + json.dumps(value).encode()), (None, b'{"id": "b"}')]
    kafka.produce(topic, sent, headers=[("x-trace", b"t"), ("other", b"")])
    _run(
        {
            "source": {
                "bootstrap_servers": kafka.bootstrap,
                "topic": topic,
                "header_columns": {"trace": "x-trace"},
            },
            "decode": {"format": "json_schema", "schema_registry": {"url": apicurio.url}},
            "table": {"path": str(path), "record_key": "id", "buckets": 1},
            "run": {"mode": "once", "trigger_interval_s": 0},
        },
        DriverExchange(LocalRunner(2)),
    )
    read = lakemark.open(str(path)).snapshot(["id", "n", "item", "trace"]).read_all()
    item_row = {"at": datetime.fromtimestamp(1, UTC)}
    assert read.to_pylist() == [{"id": "a", "n": 5, "item": item_row, "trace": "t"}]
    dead = lakemark.open(f"{path}_dead_letters").snapshot(["value"]).read_all().to_pylist()
    assert dead == [{"value": b'{"id": "b"}'}]


def _run(tree: dict[str, object], exchange: StreamExchange[Any]) -> None:
    with pipeline.build(validated(tree), lambda event: None, exchange) as built:
        built.loop.run()
