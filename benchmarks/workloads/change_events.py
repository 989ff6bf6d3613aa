"""Change events of Debezium for Postgres, in JSON, that contain the orders of the demo.

The events are those of Debezium 2.7 with its default settings, about 650 bytes long: a decimal is
the Base64 of its unscaled value.
``JsonConverter`` adds a schema of 2.4 kB to each of them unless ``schemas.enable`` is false. The
texts contain nothing that JSON must escape. Source: "Data change events" in the documentation of
Debezium's connector for Postgres.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.workloads.row_shape import ORDERING, RECORD_KEY
from streamer.demo.order_messages import ORDER_SCHEMA, order_rows
from streamer.demo.order_stream import OrderMix, event_blocks

_SEED = 0
_MIX = OrderMix(late=0.05, repeated=0.0, deleted=0.0, tombstones=0.0, broken=0.0)
_MESSAGES = pa.schema([("key", pa.binary()), ("value", pa.binary())])

_SOURCE = {
    "version": "string",
    "connector": "string",
    "name": "string",
    "ts_ms": "int64",
    "snapshot": "string",
    "db": "string",
    "sequence": "string",
    "ts_us": "int64",
    "ts_ns": "int64",
    "schema": "string",
    "table": "string",
    "txId": "int64",
    "lsn": "int64",
    "xmin": "int64",
}
_TIMES = {"ts_ms": "int64", "ts_us": "int64", "ts_ns": "int64"}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_TRANSACTION = {"id": "string", "total_order": "int64", "data_collection_order": "int64"}


class Form(Enum):
    """How a message contains its row."""

    #: The row itself, without an envelope.
    ROW = "plain JSON"
    #: The event without the row before the change, as with ``REPLICA IDENTITY DEFAULT``.
    EVENT = "Debezium"
    #: The event with the row before the change, as with ``REPLICA IDENTITY FULL``.
    WITH_BEFORE = "Debezium with before"
    #: The event without the row before the change, and its schema.
    WITH_SCHEMA = "Debezium with schema"


def messages(form: Form, count: int, keys: int) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a stream of orders, which has the same rows in each form."""
    for events in event_blocks(count, keys, _SEED, _MIX):
        rows = order_rows(events)
        values = _objects(rows, is_encoded=False) if form is Form.ROW else _events(rows, form)
        if form is Form.WITH_SCHEMA:
            values = _join('{"schema":', _schema_text(), ',"payload":', values, "}")
        columns = [rows[RECORD_KEY].cast(pa.binary()), values.cast(pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=_MESSAGES)


def _objects(rows: pa.RecordBatch, *, is_encoded: bool) -> pa.Array:
    """Return rows as JSON objects.

    Args:
        rows: the rows.
        is_encoded: whether decimals are encoded as in events; otherwise they are texts.
    """
    parts: list[pa.Array | str] = []
    for name, values in zip(rows.schema.names, rows.columns, strict=True):
        if is_encoded and pa.types.is_decimal(values.type):
            values = _unscaled(values)
        quote = "" if pa.types.is_integer(values.type) else '"'
        lead = "," if parts else "{"
        parts += [f'{lead}"{name}":{quote}', values.cast(pa.string()), quote]
    return _join(*parts, "}")


def _events(rows: pa.RecordBatch, form: Form) -> pa.Array:
    """Return update events, whose position in the log is the time of the order."""
    row, micros = _objects(rows, is_encoded=True), rows[ORDERING].cast(pa.string())
    millis = pc.divide(rows[ORDERING], 1000).cast(pa.string())
    times = _join('"ts_us":', micros, ',"ts_ns":', micros, "000")
    return _join(
        '{"before":',
        row if form is Form.WITH_BEFORE else "null",
        ',"after":',
        row,
        ',"source":{"version":"2.7.0.Final","connector":"postgresql","name":"shop","ts_ms":',
        millis,
        ',"snapshot":"false","db":"shop","sequence":"[\\"',
        micros,
        '\\",\\"',
        micros,
        '\\"]",',
        times,
        ',"schema":"public","table":"orders","txId":',
        micros,
        ',"lsn":',
        micros,
        ',"xmin":null},"transaction":null,"op":"u","ts_ms":',
        millis,
        ",",
        times,
        "}",
    )


def _unscaled(decimals: pa.Array) -> pa.Array:
    """Return decimals as the Base64 of the bytes of their unscaled values (``Decimal`` of Connect).

    Source: ``BigInteger.toByteArray`` returns as few bytes as hold the number and its sign.
    """
    scaled = [int(one.scaleb(decimals.type.scale)) for one in decimals.to_pylist()]
    numbers = [one.to_bytes(one.bit_length() // 8 + 1, signed=True) for one in scaled]
    return pa.array([b64encode(one).decode() for one in numbers])


def _schema_text() -> str:
    """Return the schema of the events, as ``JsonConverter`` writes it."""
    rows = [
        _struct(name, "shop.public.orders.Value", _row_fields()) for name in ("before", "after")
    ]
    source = _struct("source", "io.debezium.connector.postgresql.Source", _fields(_SOURCE))
    transaction = _struct("transaction", "event.block", _fields(_TRANSACTION))
    others = _fields({"op": "string", **_TIMES})
    envelope = {
        "type": "struct",
        "fields": [*rows, source, transaction, *others],
        "optional": False,
        "name": "shop.public.orders.Envelope",
        "version": 2,
    }
    return json.dumps(envelope, separators=(",", ":"))


def _row_fields() -> list[dict[str, object]]:
    types = {
        one.name: str(one.type) if pa.types.is_integer(one.type) else "string"
        for one in ORDER_SCHEMA
    }
    fields = _fields(types)
    for field, column in zip(fields, ORDER_SCHEMA, strict=True):
        if pa.types.is_decimal(column.type):
            scale = {"scale": str(column.type.scale)}
            field |= {"type": "bytes", "name": _DECIMAL, "version": 1, "parameters": scale}
    return fields


def _struct(field: str, name: str, fields: list[dict[str, object]]) -> dict[str, object]:
    return {"type": "struct", "fields": fields, "optional": True, "name": name, "field": field}


def _fields(types: Mapping[str, str]) -> list[dict[str, object]]:
    return [
        {"type": kind, "optional": name != RECORD_KEY, "field": name}
        for name, kind in types.items()
    ]


def _join(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")
