"""The schema that Kafka Connect adds to a value is cut off, and compared with the columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakemark.schema.evolution import ValueKind
from tests.unit.transforms.decode.envelopes.debezium_events import event
from tests.unit.transforms.decode.envelopes.test_row_events import decode, encoded
from transforms.decode.envelopes.connect import ConnectEnvelope
from transforms.decode.envelopes.connect_schemas import without_schemas
from transforms.decode.envelopes.debezium import DebeziumEnvelope
from transforms.decode.envelopes.envelope import Envelope
from transforms.decode.envelopes.envelope_decoder import EnvelopeDecoder
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_policy import SchemaPolicy
from transforms.decode.value_encoding import ValueEncoding

ENCODING = ValueEncoding(base64_decimals=True, epoch_days=True)
DEBEZIUM = DebeziumEnvelope(database="mysql", encoding=ENCODING)
CONNECT = ConnectEnvelope(encoding=ENCODING)
STRUCT: dict[str, object] = {"type": "struct", "fields": []}


def decoder(
    envelope: Envelope, columns: dict[str, pa.DataType], policy: SchemaPolicy | None = None
) -> EnvelopeDecoder:
    schema = pa.schema([*columns.items(), *envelope.columns])
    events = JsonDecoder(pa.schema([]))
    return EnvelopeDecoder(
        schema, policy=policy or SchemaPolicy(), events=events, envelope=envelope
    )


@pytest.mark.parametrize("indent", [None, 1])
def test_schema_is_cut_off_if_a_value_has_nothing_else(indent: int | None) -> None:
    payload = {"payload": {"schema": None}, "text": '"payload":{}}'}
    field = {"field": "payload", "type": "string", "default": "payload"}
    schema = {"type": "struct", "fields": [field]}
    wrapped = (
        {"schema": schema, "payload": payload},
        {"schema": None, "payload": payload},
        {"payload": payload, "schema": schema},
    )
    rows = (
        payload,
        {"schema": "public", "payload": payload},
        {"schema": {"name": "x"}, "payload": payload},
        {"payload": payload, "id": 5},
        {"payload": "x"},
        {"id": 5, "schema": schema, "payload": payload},
    )
    values = [json.dumps(one, indent=indent).encode() for one in (*wrapped, *rows)]
    found = without_schemas(pa.chunked_array([[*values, None], values[::-1], []], pa.binary()))
    listed = [one and json.loads(one) for one in found.values.to_pylist()]
    assert listed == [*[payload] * 3, *rows, None, *rows[::-1], *[payload] * 3]
    assert found.codes.tolist() == [0, 1, 0, *[-1] * 13, 0, 1, 0]
    assert list(found.schemas) == [schema, {}]


def test_each_value_has_its_own_schema_and_payload() -> None:
    schemas = [{**STRUCT, "name": f'a "payload": {n}'} for n in range(25)]
    plain = [json.dumps({"schema": one, "payload": {"n": n}}) for n, one in enumerate(schemas)]
    spaced = [one[:-1] + " } " for one in plain]
    bare = [json.dumps({"n": n}) for n in range(25)]
    rows = [one for three in zip(plain, spaced, bare, strict=True) for one in three] * 2
    values = pa.array([one.encode() for one in rows], pa.binary())
    found = without_schemas(pa.chunked_array([values.slice(3), values.slice(0, 3)]))
    numbers = [row // 3 % 25 for row in range(150)]
    listed = [json.loads(one)["n"] for one in found.values.to_pylist()]
    assert listed == [*numbers[3:], *numbers[:3]]
    codes = [found.schemas[code]["name"] if code >= 0 else None for code in found.codes]
    names = [None if row % 3 == 2 else schemas[n]["name"] for row, n in enumerate(numbers)]
    assert codes == [*names[3:], *names[:3]]


@pytest.mark.parametrize("value", [b'{"schema":{},"payload":', b'\xff{"schema":{}', b'{"schema":{'])
def test_broken_value_with_a_schema_is_rejected(value: bytes) -> None:
    values = pa.array([value, b'{"schema":{},"payload":{"id":1}}', value], pa.binary())
    done = decoder(CONNECT, {"id": pa.int64()}).decode(values)
    assert (done.accepted.tolist(), done.rejected.tolist()) == ([1], [0, 2])


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
TIMES = "io.debezium.time."
_STRUCT = pa.struct([("n", pa.int32()), ("d", pa.decimal128(10, 2))])


def _struct_of(decimal: Mapping[str, object]) -> dict[str, object]:
    """Return the schema of a struct with a decimal ``d``."""
    return {"type": "struct", "optional": True, "fields": [{**decimal, "field": "d"}]}


@pytest.mark.parametrize(
    ("column", "field", "reason"),
    [
        (pa.decimal128(10, 2), {**DECIMAL, "parameters": {"scale": "2"}}, None),
        (pa.decimal128(10, 2), {**DECIMAL, "parameters": {"scale": "4"}}, "declare the scale 4"),
        (pa.decimal128(10, 0), {"type": "string"}, "set decode.decimal_handling"),
        (pa.timestamp("us", "UTC"), {"type": "int64", "name": TIMES + "Timestamp"}, None),
        (pa.timestamp("us", "UTC"), {"type": "string", "name": TIMES + "ZonedTimestamp"}, None),
        (pa.timestamp("us", "UTC"), {"type": "int64"}, None),
        (pa.timestamp("us", "UTC"), {"type": "int64", "name": TIMES + "MicroTimestamp"}, "is us"),
        (pa.timestamp("us", "UTC"), {"type": "int32", "name": TIMES + "Date"}, "as date"),
        (pa.timestamp("us", "UTC"), {"type": "int64", "name": TIMES + "MicroTime"}, "bigint"),
        (pa.date32(), {"type": "int32", "name": TIMES + "Date"}, None),
        (pa.date32(), {"type": "int64", "name": TIMES + "Timestamp"}, "is not a date"),
        (pa.date32(), {"type": "int32", "name": [TIMES + "Date"]}, None),
        (pa.int64(), {"type": "int64", "name": TIMES + "MicroTimestamp"}, None),
        (_STRUCT, _struct_of({**DECIMAL, "parameters": {"scale": "2"}}), None),
        (_STRUCT, _struct_of({**DECIMAL, "parameters": {"scale": "4"}}), "'d': the schema of"),
        (_STRUCT, {"type": "struct"}, None),
        (pa.list_(_STRUCT), {"type": "array", "items": _struct_of(DECIMAL)}, "the scale None"),
        (pa.list_(_STRUCT), {"type": "array", "items": [1]}, None),
    ],
)
@pytest.mark.parametrize("envelope", [DEBEZIUM, CONNECT], ids=["debezium", "connect"])
def test_value_whose_schema_means_something_else_is_rejected(
    envelope: Envelope, column: pa.DataType, field: dict[str, object], reason: str | None
) -> None:
    row: dict[str, Any] = {"v": None}
    schema = {"type": "struct", "fields": [{**field, "field": "v"}]}
    payload: dict[str, Any] = row
    if envelope is DEBEZIUM:
        schema = {"type": "struct", "fields": [{**schema, "field": "after"}]}
        payload = event("c", 1, {"file": "b.1", "pos": 4}, None, row)
    given = decoder(envelope, {"v": column})
    done = decode(given, payload, {"schema": schema, "payload": payload}, payload)
    assert done.rejected.tolist() == ([] if reason is None else [1])
    assert done.rows.num_rows == (3 if reason is None else 2)
    if reason is not None:
        assert reason in done.reasons[0]
        assert done.reasons[0].column == "v"


def test_decimals_are_read_with_the_scale_of_their_schema() -> None:
    field = {**DECIMAL, "parameters": {"scale": "4"}, "field": "v"}
    value = {"schema": {"type": "struct", "fields": [field]}, "payload": {"v": "AeJA"}}
    (row,) = decode(decoder(CONNECT, {"v": pa.decimal128(10, 4)}), value).rows.to_pylist()
    assert row["v"] == Decimal("12.3456")


def test_schema_is_no_unknown_field() -> None:
    evolving = decoder(CONNECT, {"id": pa.int64()}, SchemaPolicy(unknown_fields="evolve"))
    values = encoded(({"schema": STRUCT, "payload": {"id": 1, "more": "x"}},))
    assert evolving.decode(values).requesting.tolist() == [0]
    assert evolving.propose_columns(values) == {(("more",), ValueKind.STRING)}
