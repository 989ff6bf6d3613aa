"""Change events of Debezium become rows: the events of its documentation, and invalid ones."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import IS_DELETED
from lakemark.schema.evolution import ValueKind
from tests.unit.transforms.decode.envelopes import debezium_events as golden
from transforms.decode.decode_result import DecodeResult
from transforms.decode.envelopes.debezium import DebeziumEnvelope
from transforms.decode.envelopes.debezium_positions import Database
from transforms.decode.envelopes.envelope_decoder import EnvelopeDecoder
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_policy import SchemaPolicy
from transforms.decode.value_encoding import ValueEncoding
from transforms.reject_reason import RejectCode

PRECISE = ValueEncoding(base64_decimals=True, epoch_days=True)
PERSON = {
    "id": pa.int64(),
    "first_name": pa.string(),
    "last_name": pa.string(),
    "email": pa.string(),
}


def decoder(
    columns: Mapping[str, pa.DataType],
    database: Database = "postgres",
    fields: tuple[str, ...] = ("op", "ts_ms"),
    policy: SchemaPolicy | None = None,
    encoding: ValueEncoding = PRECISE,
) -> EnvelopeDecoder:
    envelope = DebeziumEnvelope(database=database, fields=fields, encoding=encoding)
    schema = pa.schema([*columns.items(), *envelope.columns, (IS_DELETED, pa.bool_())])
    return EnvelopeDecoder(
        schema,
        epoch_unit="us",
        policy=policy or SchemaPolicy(),
        events=JsonDecoder(pa.schema([])),
        envelope=envelope,
    )


def encoded(events: Sequence[object]) -> pa.ChunkedArray:
    """Return the values, divided into two chunks."""
    values = [json.dumps(one).encode() for one in events]
    return pa.chunked_array([values[:2], values[2:]], pa.binary())


def decode(given: EnvelopeDecoder, *events: object) -> DecodeResult:
    return given.decode(encoded(events))


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "with schema"])
@pytest.mark.parametrize(
    ("database", "events", "positions"),
    [
        ("postgres", golden.POSTGRES, [24023128, 24023128, 46523128]),
        ("mysql", golden.MYSQL, [(3 << 32) + pos for pos in (154, 484, 805)]),
        (
            "sqlserver",
            golden.SQLSERVER,
            [
                "00000027:00000758:0005/00000027:00000758:0003",
                "00000027:00000ac0:0007/00000027:00000ac0:0002",
                "00000027:00000db0:0007/00000027:00000db0:0005",
            ],
        ),
    ],
)
def test_documented_events_become_rows(
    database: Database, events: Sequence[golden.Event], positions: list[object], wrapped: bool
) -> None:
    sent = [golden.with_schema(one) if wrapped else one for one in events]
    done = decode(decoder(PERSON, database), *sent)
    assert not len(done.rejected), done.reasons
    created, updated, deleted = done.rows.to_pylist()
    rows = [
        events[0]["after"],
        events[1]["after"],
        {**dict.fromkeys(PERSON), **events[2]["before"]},
    ]
    for row, found, one, position in zip(
        rows, (created, updated, deleted), events, positions, strict=True
    ):
        assert found == {
            **row,
            "_op": one["op"],
            "_ts_ms": one["ts_ms"],
            "_position": position,
            IS_DELETED: one["op"] == "d",
        }
    assert positions == sorted(positions, key=str), "a later change has no smaller position"


def test_snapshot_of_sql_server_comes_before_the_changes_of_its_commit() -> None:
    change = golden.SQLSERVER[0]
    commit = {"commit_lsn": golden.SQLSERVER_SNAPSHOT["source"]["commit_lsn"]}
    later = {**change, "source": {**change["source"], **commit}}
    rows = decode(decoder(PERSON, "sqlserver"), golden.SQLSERVER_SNAPSHOT, later).rows
    first, second = rows["_position"].to_pylist()
    assert first < second


@pytest.mark.parametrize(
    ("file", "pos", "position"),
    [
        ("mysql-bin.000010", 4, (10 << 32) + 4),
        ("a.b.2147483647", 2**32 - 1, 2**63 - 1),
        ("mysql-bin.2147483648", 4, None),
        ("mysql-bin", 4, None),
        (None, 4, None),
        ("mysql-bin.000010", None, None),
    ],
)
def test_position_of_mysql_is_a_number(
    file: str | None, pos: int | None, position: int | None
) -> None:
    event = golden.event("c", 1, {"file": file, "pos": pos}, None, {"id": 1})
    assert decode(decoder(PERSON, "mysql"), event).rows["_position"].to_pylist() == [position]


def test_forms_of_a_topic_may_differ() -> None:
    bare, update, _ = golden.POSTGRES
    sent = (bare, golden.with_schema(update), "no event", golden.with_schema(None), bare)
    done = decode(decoder(PERSON), *sent)
    assert done.rows["first_name"].to_pylist() == ["Anne", "Anne Marie", "Anne"]
    assert done.accepted.tolist() == [0, 1, 4]
    assert done.rejected.tolist() == [2, 3]


def test_values_of_default_connectors_are_decoded() -> None:
    """Decimals are Base64, dates are days, timestamps microseconds or ISO-8601."""
    columns = {
        "id": pa.int64(),
        "price": pa.decimal128(10, 2),
        "day": pa.date32(),
        "created": pa.timestamp("us", "UTC"),
        "changed": pa.timestamp("us", "UTC"),
        "prices": pa.list_(pa.field("element", pa.decimal128(10, 2))),
    }
    row = {
        "id": 1,
        "price": "AMM4",
        "day": 17_000,
        "created": 1_529_507_596_945_104,
        "changed": "2018-06-20T15:13:16.945104Z",
        "prices": ["//8=", None],
    }
    (found,) = decode(
        decoder(columns), golden.event("c", 1, {"lsn": 1}, None, row)
    ).rows.to_pylist()
    at = datetime(2018, 6, 20, 15, 13, 16, 945104, UTC)
    assert {name: found[name] for name in columns} == {
        "id": 1,
        "price": Decimal("499.76"),
        "day": date(2016, 7, 18),
        "created": at,
        "changed": at,
        "prices": [Decimal("-0.01"), None],
    }


@given(st.lists(st.decimals("-99999999.99", "99999999.99", places=2) | st.none(), max_size=9))
def test_any_decimal_is_decoded(values: list[Decimal | None]) -> None:
    def base64(value: Decimal | None) -> str | None:
        if value is None:
            return None
        unscaled = int(value.scaleb(2))
        return b64encode(unscaled.to_bytes(5, "big", signed=True)).decode()

    events = [golden.event("c", 1, {"lsn": 1}, None, {"d": base64(value)}) for value in values]
    rows = decode(decoder({"d": pa.decimal128(10, 2)}), *events).rows
    assert rows["d"].to_pylist() == values


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"price": ""}, "column 'price': this value of type binary does not fit decimal128"),
        ({"price": b64encode(bytes([1] * 9)).decode()}, "column 'price'"),
        ({"price": b64encode(bytes([1] * 99)).decode()}, "column 'price'"),
        ({"price": "12.5"}, "price"),
        ({"price": 12.5}, "price"),
        ({"day": 2**30}, "column 'day': this value of type int32 does not fit date32"),
        ({"day": "2026-01-01"}, "day"),
        ({"at": 2**60}, "at"),
    ],
)
def test_value_that_does_not_fit_rejects_its_event(row: dict[str, object], reason: str) -> None:
    columns = {"price": pa.decimal128(10, 2), "day": pa.date32(), "at": pa.timestamp("us", "UTC")}
    good = golden.event("c", 1, {"lsn": 1}, None, {"price": "AMM4"})
    done = decode(decoder(columns), good, golden.event("c", 2, {"lsn": 2}, None, row), good)
    assert done.accepted.tolist() == [0, 2]
    (found,) = done.reasons
    assert reason in found
    assert found.code in (RejectCode.INVALID_VALUE, RejectCode.INVALID_MESSAGE)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (golden.event("d", 1, {}), "has no 'before'; let the database log the key"),
        (golden.event("u", 1, {}, {"id": 1}), "operation 'u', but no 'after'"),
        (golden.event("t", 1, {}), "operation 't', which changes no single row"),
        (golden.event("m", 1, {}), "operation 'm', which changes no single row"),
        ({"id": 1}, "is no event of Debezium, because it has no field 'op'"),
        (golden.with_schema({"id": 1}), "is no event of Debezium"),
    ],
)
def test_event_without_its_row_is_rejected(wrong: object, reason: str) -> None:
    done = decode(decoder(PERSON), golden.POSTGRES[0], wrong)
    assert (done.accepted.tolist(), done.rejected.tolist()) == ([0], [1])
    assert reason in done.reasons[0]
    assert done.reasons[0].code is RejectCode.INVALID_MESSAGE


def test_changed_key_deletes_one_row_and_creates_another() -> None:
    before, after = {"id": 1, **golden.ANNE}, {"id": 2, **golden.ANNE}
    events = (
        golden.event("d", 1, {"lsn": 5}, before, None),
        golden.event("c", 1, {"lsn": 5}, None, after),
    )
    rows = decode(decoder(PERSON), *events).rows
    assert rows.select(["id", IS_DELETED]).to_pylist() == [
        {"id": 1, IS_DELETED: True},
        {"id": 2, IS_DELETED: False},
    ]


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "with schema"])
def test_only_fields_of_the_row_are_unknown(wrapped: bool) -> None:
    """The policy ignores the fields of the event, which differ between versions of Debezium."""
    known = dict.fromkeys(("id", "email"), pa.string()) | {"id": pa.int64()}
    policy = SchemaPolicy(unknown_fields="evolve", aliases={"mail": "email"})
    row = {"id": 2**40, "mail": "m", "size": 2**40, "place": {"city": "x"}}
    sent = [
        golden.event("c", 1, {"lsn": 1, "later": "x"}, None, one)
        for one in ({"id": 1, "mail": "m"}, row)
    ]
    sent = [golden.with_schema(one) if wrapped else one for one in sent]
    given = decoder(known, policy=policy)
    done = decode(given, *sent)
    assert done.rows["email"].to_pylist() == ["m", "m"]
    assert done.requesting.tolist() == [1]
    assert given.propose_columns(encoded(sent)) == {
        (("size",), ValueKind.SHORT_LONG),
        (("place",), ValueKind.STRUCT),
        (("place", "city"), ValueKind.STRING),
    }
    strict = replace(given, policy=replace(policy, unknown_fields="reject"))
    refused = decode(strict, *sent)
    assert refused.accepted.tolist() == [0]
    assert "size' is not declared" in refused.reasons[0]
    stopping = decode(replace(given, policy=replace(policy, unknown_fields="fail")), *sent)
    assert [*stopping.refusals] == [1]


def test_wider_values_request_wider_columns_unless_the_type_is_fixed() -> None:
    columns = {"n": pa.int32(), "key": pa.int32(), "day": pa.date32()}
    policy = SchemaPolicy(wider_values="evolve", fixed_types=frozenset({"key"}))
    given = decoder(columns, policy=policy)
    sent = [
        golden.event(
            "c", 1, {"lsn": 1}, None, {name: 2**40 if name == one else 1 for name in columns}
        )
        for one in columns
    ]
    done = decode(given, *sent)
    assert done.requesting.tolist() == [0]
    assert done.rejected.tolist() == [0, 1, 2]
    assert given.propose_columns(encoded(sent)) == {(("n",), ValueKind.SHORT_LONG)}
    assert given.find_wider_paths(encoded(sent)) == {("n",)}


def test_rescue_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="cannot be rescued"):
        replace(decoder(PERSON), rescue_column="rest")
