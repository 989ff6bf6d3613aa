"""Change events of Maxwell, Canal and AWS DMS, and rows of Kafka Connect, become rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakemark.model.meta_columns import IS_DELETED
from lakemark.schema.evolution import ValueKind
from transforms.decode.decode_result import DecodeResult
from transforms.decode.envelopes.aws_dms import DmsEnvelope
from transforms.decode.envelopes.canal import CanalEnvelope
from transforms.decode.envelopes.connect import ConnectEnvelope
from transforms.decode.envelopes.debezium import DebeziumEnvelope
from transforms.decode.envelopes.envelope import Envelope
from transforms.decode.envelopes.envelope_decoder import EnvelopeDecoder
from transforms.decode.envelopes.maxwell import MaxwellEnvelope
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_policy import SchemaPolicy
from transforms.decode.value_encoding import ValueEncoding

Event = Mapping[str, Any]

TEXTS = ValueEncoding(texts=True)


def decoder(
    envelope: Envelope, columns: Mapping[str, pa.DataType], **settings: Any
) -> EnvelopeDecoder:
    schema = pa.schema([*columns.items(), *envelope.columns, (IS_DELETED, pa.bool_())])
    return EnvelopeDecoder(schema, events=JsonDecoder(pa.schema([])), envelope=envelope, **settings)


def encoded(events: tuple[object, ...]) -> pa.Array:
    return pa.array([json.dumps(one).encode() for one in events], pa.binary())


def decode(given: EnvelopeDecoder, *events: object) -> DecodeResult:
    return given.decode(encoded(events))


# The examples of the documentation of Maxwell's daemon.
SCIFI = {"id": 1, "daemon": "Stanislaw Lem"}
FIREBUS = {"id": 1, "daemon": "firebus!  firebus!"}


def maxwell(kind: str, data: object = None, **more: object) -> dict[str, object]:
    head = {"database": "test", "table": "maxwell", "type": kind, "ts": 1449786310}
    return {**head, "xid": 940752, "commit": True, "data": data, **more}


MAXWELL = (
    maxwell("insert", SCIFI),
    maxwell("update", FIREBUS, old={"daemon": "Stanislaw Lem"}),
    maxwell("delete", FIREBUS),
)


# The example of the documentation of Flink's format canal-json, and its deletion.
SCOOTER = {"id": "111", "name": "scooter", "weight": "5.18"}


def canal(kind: str, data: object, **more: object) -> dict[str, object]:
    return {
        "data": data,
        "database": "inventory",
        "es": 1589373560000,
        "id": 9,
        "isDdl": False,
        "mysqlType": {"id": "INTEGER", "name": "VARCHAR(255)", "weight": "FLOAT"},
        "old": None,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": 4, "name": 12, "weight": 7},
        "table": "products",
        "ts": 1589373560798,
        "type": kind,
        **more,
    }


CANAL = (
    canal("INSERT", [SCOOTER, {**SCOOTER, "id": "112"}]),
    canal("UPDATE", [SCOOTER], old=[{"weight": "5.15"}]),
    canal("DELETE", [SCOOTER]),
)


# Events as AWS DMS sends them; the row is shortened.
LEAD = {"id": 315209, "name": "dsdsd dsdsdds", "created_at": "2020-01-09T04:13:38Z"}


def dms(operation: str, data: object = None, **more: object) -> dict[str, object]:
    metadata = {
        "timestamp": "2020-12-15T05:47:42.724458Z",
        "record-type": "data",
        "operation": operation,
        "partition-key-type": "primary-key",
        "schema-name": "replica",
        "table-name": "leads",
        **more,
    }
    return {"metadata": metadata} if data is None else {"data": data, "metadata": metadata}


DMS = (dms("load", LEAD), dms("update", {**LEAD, "name": "x"}), dms("delete", LEAD))


def test_events_of_maxwell_become_rows() -> None:
    given = decoder(
        MaxwellEnvelope(fields=("type", "xid")), {"id": pa.int64(), "daemon": pa.string()}
    )
    done = decode(given, *MAXWELL, maxwell("bootstrap-insert", SCIFI))
    kinds = ("insert", "update", "delete", "bootstrap-insert")
    assert done.rows.to_pylist() == [
        {**row, "_type": kind, "_xid": 940752, IS_DELETED: kind == "delete"}
        for row, kind in zip((SCIFI, FIREBUS, FIREBUS, SCIFI), kinds, strict=True)
    ]


def test_events_of_canal_become_one_or_more_rows() -> None:
    columns = {"id": pa.int64(), "name": pa.string(), "weight": pa.float32()}
    done = decode(decoder(CanalEnvelope(fields=("es",), encoding=TEXTS), columns), *CANAL)
    assert done.accepted.tolist() == [0, 0, 1, 2]
    rows = done.rows.select(["id", "name", "_es", IS_DELETED]).to_pylist()
    assert [(row["id"], row[IS_DELETED]) for row in rows] == [
        (111, False),
        (112, False),
        (111, False),
        (111, True),
    ]
    assert {(row["name"], row["_es"]) for row in rows} == {("scooter", 1589373560000)}
    assert done.rows["weight"].to_pylist() == pytest.approx([5.18] * 4)


def test_texts_of_canal_become_values() -> None:
    columns = {
        "n": pa.int32(),
        "price": pa.decimal128(10, 2),
        "is_new": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "data": pa.binary(),
        "note": pa.string(),
    }
    row = {
        "n": "-5",
        "price": "5.1",
        "is_new": "1",
        "day": "2020-05-13",
        "at": "2020-05-13 12:39:20.5",
        "data": "\x00ÿ",
        "note": None,
    }
    given = decoder(CanalEnvelope(encoding=TEXTS), columns)
    (found,) = decode(given, canal("INSERT", [row])).rows.select([*columns]).to_pylist()
    assert found == {
        "n": -5,
        "price": Decimal("5.10"),
        "is_new": True,
        "day": date(2020, 5, 13),
        "at": datetime(2020, 5, 13, 12, 39, 20, 500_000, UTC),
        "data": b"\x00\xff",
        "note": None,
    }
    wrong = {
        "n": "2147483648",
        "price": "5.123",
        "is_new": "x",
        "day": "0000-00-00",
        "at": "0000-00-00 00:00:00",
        "data": "€",
    }
    for name, text in wrong.items():
        # One wrong row rejects its event, also the other row.
        done = decode(given, canal("INSERT", [row, {**row, name: text}]), canal("INSERT", [row]))
        assert (done.accepted.tolist(), done.rejected.tolist()) == ([1], [0])
        assert f"column '{name}'" in done.reasons[0]


def test_events_of_dms_become_rows() -> None:
    columns = {"id": pa.int64(), "name": pa.string(), "created_at": pa.timestamp("us", "UTC")}
    done = decode(decoder(DmsEnvelope(fields=("metadata.table-name",)), columns), *DMS)
    rows = done.rows.to_pylist()
    assert [(row["name"], row[IS_DELETED]) for row in rows] == [
        (LEAD["name"], False),
        ("x", False),
        (LEAD["name"], True),
    ]
    assert rows[0]["created_at"] == datetime(2020, 1, 9, 4, 13, 38, tzinfo=UTC)
    assert rows[0]["_metadata_table_name"] == "leads"


ID = {"id": pa.int64()}
ENVELOPES = {
    "maxwell": MaxwellEnvelope(),
    "canal": CanalEnvelope(encoding=TEXTS),
    "dms": DmsEnvelope(),
}


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        ("maxwell", maxwell("bootstrap-start")),
        ("maxwell", maxwell("bootstrap-complete", {})),
        ("maxwell", maxwell("table-alter")),
        ("canal", canal("ALTER", None, isDdl=True)),
        ("canal", canal("QUERY", None)),
        ("dms", dms("create-table", **{"record-type": "control"})),
    ],
)
def test_event_that_keeps_all_rows_is_filtered(kind: str, event: object) -> None:
    good = {"maxwell": MAXWELL, "canal": CANAL, "dms": DMS}[kind][1]
    done = decode(decoder(ENVELOPES[kind], ID), event, good, event)
    assert done.accepted.tolist() == [1]
    assert done.filtered.tolist() == [0, 2]
    assert not done.reasons


@pytest.mark.parametrize(
    ("kind", "event", "reason"),
    [
        ("maxwell", maxwell("table-drop"), "type 'table-drop', which changes no single row"),
        ("maxwell", maxwell("insert"), "type 'insert', but no row"),
        ("maxwell", {"id": 1}, "is no change event, because it has no field 'type'"),
        ("canal", canal("TRUNCATE", None), "type 'TRUNCATE', which changes no single row"),
        ("canal", canal("INSERT", []), "type 'INSERT', but no row"),
        ("dms", dms("truncate-table", **{"record-type": "control"}), "changes no single row"),
        ("dms", {}, "has no field 'metadata.operation'"),
    ],
)
def test_event_without_a_row_is_rejected(kind: str, event: object, reason: str) -> None:
    good = {"maxwell": MAXWELL, "canal": CANAL, "dms": DMS}[kind][1]
    done = decode(decoder(ENVELOPES[kind], ID), good, event)
    assert (done.accepted.tolist(), done.rejected.tolist()) == ([0], [1])
    assert reason in done.reasons[0]


#: The envelope of each kind, and its event of an update, from the new row and the changed values.
UPDATES: list[tuple[Envelope, Any]] = [
    (
        MaxwellEnvelope(key_columns=("id", "region")),
        lambda new, old: maxwell("update", new, old=old),
    ),
    (
        CanalEnvelope(key_columns=("id", "region")),
        lambda new, old: canal("UPDATE", [new], old=[old]),
    ),
    (
        DmsEnvelope(key_columns=("id", "region")),
        lambda new, old: {**dms("update", new), "before-image": old},
    ),
    (
        DebeziumEnvelope(database="postgres", key_columns=("id", "region")),
        lambda new, old: {
            "op": "u",
            "before": {**new, **old},
            "after": new,
            "source": {"lsn": 1},
        },
    ),
]
EACH_UPDATE = pytest.mark.parametrize(
    ("envelope", "event"), UPDATES, ids=["maxwell", "canal", "dms", "debezium"]
)


@EACH_UPDATE
def test_update_of_a_key_also_deletes_the_former_row(envelope: Envelope, event: Any) -> None:
    columns = {"id": pa.int64(), "region": pa.string(), "n": pa.int64()}
    new = {"id": 2, "region": "b", "n": 5}
    events = (event(new, {"n": 4}), event(new, {"id": 1}), event(new, {"region": "a", "n": 4}))
    done = decode(decoder(envelope, columns), *events)
    assert done.accepted.tolist() == [0, 1, 1, 2, 2]
    found = done.rows.select([*columns, IS_DELETED]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (2, "b", 5, False),
        (1, "b", 5, True),
        (2, "b", 5, False),
        (2, "a", 4, True),
        (2, "b", 5, False),
    ]


@EACH_UPDATE
def test_null_of_a_key_that_becomes_a_value_moves_the_row(envelope: Envelope, event: Any) -> None:
    columns = {"id": pa.int64(), "region": pa.string(), "n": pa.int64()}
    new = {"id": 2, "region": "b", "n": 5}
    unchanged = event({**new, "region": None}, {"n": 4})
    done = decode(
        decoder(envelope, columns), event(new, {"region": None}), unchanged, event(new, {"n": None})
    )
    assert done.accepted.tolist() == [0, 0, 1, 2]
    assert done.rows["region"].to_pylist() == [None, "b", None, "b"]
    assert done.rows[IS_DELETED].to_pylist() == [True, False, False, False]


def test_name_of_a_key_with_a_null_elsewhere_in_the_event_moves_no_row() -> None:
    envelope = CanalEnvelope(encoding=TEXTS, key_columns=("id", "région"))
    columns = {"id": pa.int64(), "région": pa.string(), "t": pa.string()}
    rows = [{"id": "1", "région": "a", "t": '{"région":null}'}] * 2
    done = decode(
        decoder(envelope, columns),
        canal("UPDATE", rows, old=[{"t": '"région": null'}, {"région": None}]),
        {"schema": {}, "payload": canal("UPDATE", rows[:1], old=[{"région": None}])},
    )
    assert done.accepted.tolist() == [0, 0, 0, 1, 1]
    assert done.rows["région"].to_pylist() == [None, "a", "a", None, "a"]


def test_key_columns_that_postgres_does_not_send_move_no_row() -> None:
    envelope = DebeziumEnvelope(database="postgres", key_columns=("id", "region"))
    columns = {"id": pa.int64(), "region": pa.string(), "n": pa.int64()}
    sent = {"op": "u", "before": {"id": 2}, "after": {"id": 2, "region": "b", "n": 5}}
    done = decode(decoder(envelope, columns), {**sent, "source": {"lsn": 1}})
    assert done.rows[IS_DELETED].to_pylist() == [False]


def test_former_row_of_a_statement_with_several_rows_belongs_to_its_row() -> None:
    given = decoder(CanalEnvelope(encoding=TEXTS, key_columns=("id",)), ID)
    rows = [{"id": str(n)} for n in range(3)]
    old = [{"n": "x"}, {"id": "7"}, None]
    sent = (
        canal("INSERT", rows),
        canal("UPDATE", rows, old=old),
        canal("UPDATE", rows, old=old[:2]),
    )
    done = decode(given, *sent)
    assert done.rows["id"].to_pylist() == [0, 1, 2, 7, 0, 1, 2, 0, 1, 2]
    assert done.accepted.tolist() == [0] * 3 + [1] * 4 + [2] * 3


def test_events_of_other_tables_are_filtered_whatever_their_rows_are() -> None:
    given = decoder(MaxwellEnvelope(), ID, only=(("database", "test"), ("table", "maxwell")))
    other = {**maxwell("insert", {"id": "text"}), "table": "other"}
    unknown = {"id": 1}
    done = decode(given, other, MAXWELL[0], unknown, other, "broken")
    assert (done.accepted.tolist(), done.filtered.tolist()) == ([1], [0, 3])
    assert done.rejected.tolist() == [2, 4]
    evolving = decoder(MaxwellEnvelope(), ID, policy=SchemaPolicy(unknown_fields="evolve"))
    assert evolving.propose_columns(encoded(MAXWELL)) == {(("daemon",), ValueKind.STRING)}


@pytest.mark.parametrize("event", [{"schema": {}, "payload": {}}, {}])
def test_rows_of_connect_are_decoded(event: dict[str, object]) -> None:
    columns = {
        "id": pa.int64(),
        "price": pa.decimal128(10, 2),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        IS_DELETED: pa.bool_(),
    }
    encoding = ValueEncoding(base64_decimals=True, epoch_days=True)
    envelope = ConnectEnvelope(encoding=encoding)
    schema = pa.schema(list(columns.items()))
    given = EnvelopeDecoder(schema, events=JsonDecoder(pa.schema([])), envelope=envelope)
    row = {"id": 1, "price": "AMM4", "day": 17_000, "at": 1000, IS_DELETED: True, "other": 1}
    value = {**event, "payload": row} if event else row
    (found,) = decode(given, value).rows.to_pylist()
    assert found == {
        "id": 1,
        "price": Decimal("499.76"),
        "day": date(2016, 7, 18),
        "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        IS_DELETED: True,
    }
