"""Defaults of other settings that depend on ``decode.format``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.decode.envelopes.debezium import UNAVAILABLE_VALUE
from transforms.decode.envelopes.debezium_positions import POSITION
from transforms.decode.envelopes.documents import ID

#: The unit of timestamps in which the connector of a database sends most of its columns.
_TIMESTAMP_UNITS = {"postgres": "us"}

#: Settings of ``table`` that decide which version of a row wins. If the file has one of them, the
#: preset orders nothing.
_MERGING = ("ordering", "merge_mode", "payload", "merger")
#: Settings of ``table`` with which the preset does not fill in values that Postgres does not send.
_FILLING = ("partial_update", "payload", "merger")


#: The formats without tombstones: change events say if a row is deleted, and the Kafka key does not
#: name the row of a text.
_IGNORING_TOMBSTONES = ("debezium", "maxwell", "canal", "aws_dms", "text", "bytes")

#: The formats of Kafka Connect, which writes Kafka keys as objects.
_OBJECT_KEYS = ("debezium", "connect")


def with_preset(given: Mapping[str, object]) -> dict[str, object]:
    """Return the tree of a pipeline file with the defaults of its format."""
    filled: dict[str, Any] = dict(given)
    decode, table = given.get("decode"), given.get("table")
    if not isinstance(decode, Mapping):
        return filled
    kind = decode.get("format")
    filled["decode"] = _with_tombstones(kind, decode)
    if kind == "debezium":
        database = str(decode.get("database"))
        unit = _TIMESTAMP_UNITS.get(database, "ms")
        filled["decode"] = {"timestamp_unit": unit, **filled["decode"]}
        if isinstance(table, Mapping):
            filled["table"] = {**_table_preset(database, table), **table}
    return filled


def _with_tombstones(kind: object, decode: Mapping[str, object]) -> dict[str, object]:
    filled = {"tombstones": "ignore", **decode} if kind in _IGNORING_TOMBSTONES else dict(decode)
    if kind in _OBJECT_KEYS and filled.get("tombstones", "delete") == "delete":
        keys = "avro" if decode.get("schema_registry") else "json"
        filled = {"tombstone_key": keys, **filled}
    return filled


def _table_preset(database: str, table: Mapping[str, object]) -> dict[str, object]:
    preset: dict[str, object] = {"record_key": [ID]} if database == "mongodb" else {}
    if table.get("operation") == "insert":
        return preset
    if not any(name in table for name in _MERGING):
        preset["ordering"] = [POSITION]
        if database == "sqlserver":
            preset["allow_text_ordering"] = True  # both parts of a position have a fixed width
    moves, is_custom = table.get("partition_change") == "move", table.get("merge_mode") == "custom"
    if database == "postgres" and not (
        moves or is_custom or any(name in table for name in _FILLING)
    ):
        preset |= {"partial_update": "fill_unavailable", "unavailable_value": UNAVAILABLE_VALUE}
    return preset
