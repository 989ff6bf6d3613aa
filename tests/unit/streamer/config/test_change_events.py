"""Settings of change events, and the defaults that they give other settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streamer.config.errors import ConfigError
from streamer.config.load import load, validated
from streamer.config.pipeline import PipelineConfig

REGISTRY = {"url": "http://registry:8081"}
ROW = {"id": "bigint", "name": "string"}


def pipeline(
    decode: Mapping[str, object], table: Mapping[str, object] | None = None
) -> PipelineConfig:
    return validated(
        {
            "source": {"bootstrap_servers": "b:1", "topic": "t"},
            "decode": {"schema": ROW, **decode},
            "table": {"path": "/lake/t", "record_key": "id", **(table or {})},
        }
    )


def debezium(database: str = "postgres", **decode: object) -> dict[str, object]:
    return {"format": "debezium", "database": database, **decode}


@pytest.mark.parametrize(
    ("database", "unit", "is_text", "fills"),
    [
        ("postgres", "us", False, True),
        ("mysql", "ms", False, False),
        ("sqlserver", "ms", True, False),
    ],
)
def test_database_decides_the_defaults(
    database: str, unit: str, is_text: bool, fills: bool
) -> None:
    config = pipeline(debezium(database))
    decode, table = config.decode, config.table
    assert (decode.tombstones, decode.timestamp_unit) == ("ignore", unit)
    assert (table.ordering, table.merge_mode) == (("_position",), "event_time")
    assert table.allow_text_ordering is is_text
    assert table.partial_update == ("fill_unavailable" if fills else "none")


def test_key_of_mongodb_is_its_id() -> None:
    tree = {
        "source": {"bootstrap_servers": "b:1", "topic": "t"},
        "decode": debezium("mongodb", schema={"_id": "string"}),
        "table": {"path": "/lake/t"},
    }
    config = validated(tree)
    assert config.table.record_key == ("_id",)
    assert config.decode.needs_keys


@pytest.mark.parametrize(
    ("table", "ordering", "partial_update"),
    [
        ({"ordering": ["_ts_ms"]}, ("_ts_ms",), "fill_unavailable"),
        ({"merge_mode": "commit_time"}, (), "fill_unavailable"),
        ({"ordering": []}, (), "fill_unavailable"),
        ({"partial_update": "none"}, ("_position",), "none"),
        ({"partition_by": "name", "partition_change": "move"}, ("_position",), "none"),
        ({"operation": "insert"}, (), "none"),
        ({"payload": "OverwriteWithLatestAvroPayload"}, (), "none"),
    ],
)
def test_settings_of_the_file_win(
    table: dict[str, object], ordering: tuple[str, ...], partial_update: str
) -> None:
    found = pipeline(debezium(), table).table
    assert (found.ordering, found.partial_update) == (ordering, partial_update)


@pytest.mark.parametrize(
    ("decode", "table", "problem"),
    [
        ({"format": "debezium"}, {}, "decode.database"),
        (debezium("oracle"), {}, "decode.database: 'oracle'"),
        (debezium(event_fields=["lsn"]), {}, "'lsn' is not one of op, ts_ms"),
        (debezium(schema={"id": "bigint", "_op": "int"}), {}, "decode.schema._op: another setting"),
        (
            debezium(unknown_fields="rescue", rescue_column="rest"),
            {},
            "decode.unknown_fields: resc",
        ),
        (debezium(wider_values="rescue", rescue_column="rest"), {}, "decode.wider_values: rescue"),
        (
            debezium(schema_registry=REGISTRY, decimal_handling="string"),
            {},
            "decode.decimal_handling: string has no effect",
        ),
        (debezium(), {"partial_update": "absent_fields"}, "absent_fields needs JSON records"),
        (
            debezium(tombstones="delete", tombstone_key="avro"),
            {},
            "format is debezium without decode.schema_registry; use raw or json",
        ),
        ({"format": "maxwell", "event_fields": ["op"]}, {}, "'op' is not one of type, database"),
        ({"format": "canal", "only": {"es": "1"}}, {}, "'es' is not one of type, database, table"),
        (
            {"format": "aws_dms", "unknown_fields": "rescue", "rescue_column": "rest"},
            {},
            "rescue cannot be combined with format aws_dms",
        ),
        ({"format": "connect", "tombstone_key": "avro"}, {}, "avro has no effect if decode.format"),
        (debezium(), {"record_key": "key"}, "'key' is not a column of decode.schema"),
        (debezium(), {"ordering": ["_source_lsn"]}, "'_source_lsn' is not a column"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    decode: dict[str, object], table: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        pipeline(decode, table)
    assert problem in str(refused.value)


@pytest.mark.parametrize("with_event", [True, False])
def test_schema_file_may_be_that_of_the_event(tmp_path: Path, with_event: bool) -> None:
    row: dict[str, Any] = {
        "type": "record",
        "name": "row",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
    }
    images = [
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "row"]},
        {"name": "op", "type": "string"},
    ]
    event = {"type": "record", "name": "event", "fields": images}
    (tmp_path / "row.avsc").write_text(json.dumps(event if with_event else row))
    (tmp_path / "pipeline.yaml").write_text(
        "source: {bootstrap_servers: 'b:1', topic: t}\n"
        "decode: {format: debezium, database: mysql, schema: {avro: row.avsc}}\n"
        "table: {path: /lake/t, record_key: id}\n"
    )
    columns = load(str(tmp_path / "pipeline.yaml")).row_columns()
    assert columns is not None
    assert columns.names == ["id", "name", "_op", "_ts_ms", "_position"]


@pytest.mark.parametrize("kind", ["maxwell", "canal", "aws_dms"])
def test_last_event_of_other_programs_wins(kind: str) -> None:
    config = pipeline({"format": kind, "event_fields": []})
    assert config.decode.tombstones == "ignore"
    assert (config.table.merge_mode, config.table.ordering) == ("commit_time", ())


@pytest.mark.parametrize(
    ("decode", "kind"),
    [
        ({"format": "connect"}, "json"),
        ({"format": "connect", "tombstone_key": "raw"}, "raw"),
        ({"format": "connect", "tombstones": "ignore"}, None),
        (debezium(tombstones="delete"), "json"),
        (debezium(tombstones="delete", schema_registry=REGISTRY), "avro"),
        (debezium(), None),
        ({"format": "maxwell", "tombstones": "delete"}, "raw"),
    ],
)
def test_kafka_keys_of_connect_are_objects(decode: dict[str, object], kind: str | None) -> None:
    assert pipeline(decode).decode.tombstone_key == kind
