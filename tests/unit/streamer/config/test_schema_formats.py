"""``decode`` of Protocol Buffers and JSON Schema, and ``source.header_columns``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from streamer.config.errors import ConfigError
from streamer.config.load import load, validated
from streamer.config.schema_formats import JsonSchemaDecodeConfig, ProtobufDecodeConfig
from tests.schema_registry import FaultyRegistry
from transforms.decode.protobuf.framing import DeclaredMessage, RegistryMessage

REGISTRY = {"url": "http://registry:8081"}
#: The descriptors of ``message Order { string id = 1; }`` in ``orders.proto`` of package ``shop``.
DESCRIPTORS = bytes.fromhex(
    "0a290a0c6f72646572732e70726f746f120473686f7022130a054f72646572120a0a026964180120012809"
)


def tree(source: dict[str, object] | None = None, **decode: object) -> dict[str, Any]:
    return {
        "source": {"bootstrap_servers": "b:1", "topic": "t", **(source or {})},
        "decode": {"format": "protobuf", **decode},
        "table": {"path": "/lake/t", "record_key": "id"},
    }


def reported(given: dict[str, Any]) -> list[str]:
    try:
        validated(given)
    except ConfigError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize(
    ("decode", "problem"),
    [
        ({}, "decode.schema_registry: missing; Protocol Buffers need a registry"),
        ({"schema_registry": REGISTRY, "descriptors": "YQ=="}, "decode.descriptors: has no effect"),
        (
            {"descriptors": "orders.desc"},
            "decode.descriptors: 'orders.desc': expected {file: PATH}",
        ),
        ({"descriptors": "YQ==", "message": "M"}, "decode.message: decode.descriptors: the bytes"),
        ({"descriptors": "YQ=="}, "decode.message: missing"),
        ({"descriptors": "YQ==", "message": "M", "subject": "s"}, "decode.subject: has no effect"),
        ({"schema_registry": REGISTRY, "tombstone_key": "avro"}, "avro has no effect if"),
        (
            {"descriptors": "YQ==", "message": "M", "tombstone_key": "protobuf"},
            "decode.tombstone_key: protobuf needs decode.format: protobuf with",
        ),
        ({"format": "json_schema"}, "decode.schema_registry: missing"),
        (
            {"format": "json_schema", "schema_registry": REGISTRY, "tombstone_key": "avro"},
            "decode.tombstone_key: avro has no effect",
        ),
    ],
)
def test_invalid_setting_is_reported_with_its_path(decode: dict[str, Any], problem: str) -> None:
    lines = reported(tree(**decode))
    assert any(problem in line for line in lines), lines


def test_descriptors_may_be_in_a_file_next_to_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "orders.desc").write_bytes(DESCRIPTORS)
    given = tree(descriptors={"file": "orders.desc"}, message="shop.Order")
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(given))
    config = load(str(tmp_path / "p.yaml"))
    assert isinstance(config.decode, ProtobufDecodeConfig)
    assert config.decode.framing() == DeclaredMessage(DESCRIPTORS, "shop.Order")
    assert config.decode.newest_columns("t") == pa.schema([("id", pa.string())])
    given["decode"]["descriptors"] = {"file": "missing.desc"}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(given))
    with pytest.raises(ConfigError, match=r"cannot read .*missing.desc"):
        load(str(tmp_path / "p.yaml"))


def test_columns_of_a_new_table_come_from_the_newest_schema() -> None:
    with FaultyRegistry() as server:
        text = 'syntax = "proto3"; message A { int32 a = 1; } message B { string b = 1; }'
        newest = {"schemaType": "PROTOBUF", "schema": text}
        server.answers["/subjects/t-value/versions/latest"] = newest
        of_json = {"schemaType": "JSON", "schema": '{"properties": {"c": {"type": "integer"}}}'}
        server.answers["/subjects/j/versions/latest"] = of_json
        registry = {"url": server.url}
        first = validated(tree(schema_registry=registry)).decode
        assert isinstance(first, ProtobufDecodeConfig)
        assert isinstance(first.framing(), RegistryMessage)
        assert first.newest_columns("t") == pa.schema([("a", pa.int32())])
        second = validated(tree(schema_registry=registry, message="B")).decode
        assert second.newest_columns("t") == pa.schema([("b", pa.string())])
        json = validated(tree(format="json_schema", schema_registry=registry, subject="j")).decode
        assert isinstance(json, JsonSchemaDecodeConfig)
        assert json.newest_columns("t") == pa.schema([("c", pa.int64())])


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"_hoodie_x": "x"}, "source.header_columns"),
        ({"": "x"}, "neither may be empty"),
        ({"id": "x"}, "decode.schema.id: another setting adds a column of this name"),
    ],
)
def test_invalid_header_column_is_reported(columns: dict[str, str], problem: str) -> None:
    lines = reported(tree({"header_columns": columns}, format="json", schema={"id": "string"}))
    assert any(problem in line for line in lines), lines


def test_header_columns_can_be_keys_and_partitions() -> None:
    given = tree({"header_columns": {"tenant": "x"}}, format="json", schema={"id": "string"})
    given["table"] |= {"record_key": ["tenant", "id"], "partition_by": "tenant"}
    assert not reported(given)
