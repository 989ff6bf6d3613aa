"""Change events of MongoDB become the documents that they contain."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lakemark.model.meta_columns import IS_DELETED
from lakemark.schema.evolution import ValueKind
from tests.unit.transforms.decode.envelopes import debezium_events as golden
from transforms.decode.envelopes.debezium import DebeziumEnvelope
from transforms.decode.envelopes.documents import DocumentDecoder, to_plain_json
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_policy import SchemaPolicy

ENVELOPE = DebeziumEnvelope(database="mongodb", fields=("op",))
COLUMNS = (("_id", pa.int64()), ("first_name", pa.string()))


def decoder(*columns: tuple[str, pa.DataType]) -> DocumentDecoder:
    schema = pa.schema([*columns, *ENVELOPE.columns, (IS_DELETED, pa.bool_())])
    return DocumentDecoder(schema, events=JsonDecoder(pa.schema([])), envelope=ENVELOPE)


def texts(*values: object) -> pa.ChunkedArray:
    encoded = [None if one is None else json.dumps(one).encode() for one in values]
    return pa.chunked_array([encoded], pa.binary())


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "with schema"])
def test_documented_events_become_documents(wrapped: bool) -> None:
    events, key = list(golden.MONGODB), dict(golden.MONGODB_KEY)
    sent = [golden.with_schema(one) if wrapped else one for one in events]
    keys = texts(*[golden.with_schema(key) if wrapped else key] * 3)
    done = decoder(*COLUMNS).decode_records(texts(*sent), keys)
    assert not len(done.rejected), done.reasons
    seconds = 1558965508 * 10**9
    assert done.rows.to_pylist() == [
        _row("Anne", "c", seconds + 5),
        _row("Anne Marie", "u", seconds + 6),
        _row(None, "d", seconds + 31),
    ]


def _row(first_name: str | None, op: str, position: int) -> dict[str, object]:
    own = {"_id": 1004, "first_name": first_name, "_op": op}
    return {**own, "_position": position, IS_DELETED: op == "d"}


@pytest.mark.parametrize("key", [None, "1004", {"other": 1}, {"id": None}])
def test_deletion_without_an_id_is_rejected(key: object) -> None:
    deletion = golden.MONGODB[2]
    keys = texts(golden.MONGODB_KEY, key)
    done = decoder(*COLUMNS).decode_records(texts(deletion, deletion), keys)
    assert (done.accepted.tolist(), done.rejected.tolist()) == ([0], [1])
    assert "has no 'before'" in done.reasons[0]


def test_former_document_needs_no_key() -> None:
    deletion = {**golden.MONGODB[2], "before": golden.DOCUMENT}
    done = decoder(*COLUMNS).decode(texts(deletion))
    assert done.rows.select(["_id", "first_name"]).to_pylist() == [
        {"_id": 1004, "first_name": "Anne"}
    ]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ('{"$numberLong": "-5"}', "-5"),
        ('{ "$numberInt" : "5" }', "5"),
        ('{"$numberDouble": "1.5E3"}', "1.5E3"),
        ('{"$numberDouble": "-Infinity"}', "-Infinity"),
        ('{"$numberDecimal": "1.50"}', '"1.50"'),
        ('{"$oid": "596e275826f08b2730779e1f"}', '"596e275826f08b2730779e1f"'),
        ('{"$date": "2020-01-01T00:00:00Z"}', '"2020-01-01T00:00:00Z"'),
        ('{"$date": {"$numberLong": "-1"}}', "-1"),
        ('{"$date": 1}', "1"),
        # A text that looks like an object of extended JSON is a text.
        (json.dumps('{"$oid": "x"}'), json.dumps('{"$oid": "x"}')),
        (json.dumps('{"'), json.dumps('{"')),
        ('{"$numberLong": "1, x"}', '{"$numberLong": "1, x"}'),
    ],
)
def test_extended_json_becomes_plain_json(value: str, plain: str) -> None:
    given = pa.array([f'{{"a": {value}, "b": [{value}]}}', None])
    assert to_plain_json(given).to_pylist() == [f'{{"a": {plain}, "b": [{plain}]}}', None]


def test_types_of_extended_json_fill_columns() -> None:
    document = (
        '{"_id": {"$oid": "5f"}, "n": {"$numberLong": "5"}, "d": {"$numberDecimal": "1.5"}, '
        '"at": {"$date": {"$numberLong": "1577836800000"}}, "place": {"x": {"$numberInt": "1"}}}'
    )
    given = decoder(
        ("_id", pa.string()),
        ("n", pa.int64()),
        ("d", pa.decimal128(4, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("place", pa.struct([("x", pa.int32())])),
    )
    (row,) = given.decode(texts({**golden.MONGODB[0], "after": document})).rows.to_pylist()
    assert (row["_id"], row["n"], row["d"]) == ("5f", 5, Decimal("1.50"))
    assert (row["at"], row["place"]) == (datetime(2020, 1, 1, tzinfo=UTC), {"x": 1})


def test_document_that_does_not_fit_rejects_its_event() -> None:
    wrong = {**golden.MONGODB[0], "after": '{"_id": "x"}'}
    broken = {**golden.MONGODB[0], "after": "{"}
    done = decoder(*COLUMNS).decode(texts(wrong, golden.MONGODB[0], broken))
    assert (done.accepted.tolist(), done.rejected.tolist()) == ([1], [0, 2])
    assert "'_id'" in done.reasons[0]


def test_only_the_key_of_a_deleted_document_must_fit() -> None:
    deletion, wrong = golden.MONGODB[2], '{"_id": {"$numberLong": "5"}, "first_name": {"x": 1}}'
    sent = [
        {**deletion, "before": wrong},
        {**golden.MONGODB[0], "after": wrong},
        {**deletion, "before": '{"_id": "x", "first_name": 1}'},
        {**deletion, "before": "{"},
        {**deletion, "before": '{"_id": 6, "first_name": "Anne"}'},
    ]
    envelope = replace(ENVELOPE, key_columns=("_id",))
    done = replace(decoder(*COLUMNS), envelope=envelope).decode(texts(*sent))
    assert (done.accepted.tolist(), done.rejected.tolist()) == ([0, 4], [1, 2, 3])
    assert [one.column for one in done.reasons] == ["first_name", "_id", None]
    found = [(row["_id"], row["first_name"], row[IS_DELETED]) for row in done.rows.to_pylist()]
    assert found == [(5, None, True), (6, "Anne", True)]


@pytest.mark.parametrize("time", [10**13, -(10**13), 2**63 - 1, -(2**63)])
def test_time_that_no_position_can_have_is_no_position(time: int) -> None:
    event = golden.MONGODB[0]
    far = {**event, "source": {**event["source"], "ts_ms": time}}
    (row,) = decoder(*COLUMNS).decode(texts(far)).rows.to_pylist()
    assert row["_position"] is None


def test_unknown_fields_of_a_document_become_columns_or_are_rescued() -> None:
    given = decoder(*COLUMNS)
    values = texts(golden.MONGODB[0])
    evolving = replace(given, policy=SchemaPolicy(unknown_fields="evolve"))
    assert evolving.decode(values).requesting.tolist() == [0]
    assert evolving.propose_columns(values) == {
        (("last_name",), ValueKind.STRING),
        (("email",), ValueKind.STRING),
    }
    rescued = replace(given, rescue_column="rest").decode(values).rows["rest"].to_pylist()
    assert json.loads(rescued[0]) == {"last_name": "Kretchmar", "email": "annek@noanswer.org"}
