"""An event whose former values do not fit their columns still updates or deletes its row."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from lakemark.model.meta_columns import IS_DELETED
from tests.unit.transforms.decode.envelopes.debezium_events import event, with_schema
from tests.unit.transforms.decode.envelopes.test_row_events import decode, decoder, dms, maxwell
from transforms.decode.envelopes.aws_dms import DmsEnvelope
from transforms.decode.envelopes.debezium import DebeziumEnvelope
from transforms.decode.envelopes.envelope import Envelope
from transforms.decode.envelopes.maxwell import MaxwellEnvelope
from transforms.decode.schema_policy import SchemaPolicy
from transforms.decode.value_encoding import ValueEncoding

COLUMNS = {
    "id": pa.int64(),
    "n": pa.int32(),
    "day": pa.date32(),
    "n.s": pa.struct([("x", pa.int32())]),
    "at": pa.int32(),
}
TIME = pa.timestamp("us", "UTC")
KEYS = ("id",)
DEBEZIUM = DebeziumEnvelope(
    database="mysql", key_columns=KEYS, encoding=ValueEncoding(epoch_days=True)
)
ORDERED = SchemaPolicy(fixed_types=frozenset({"at"}))
ROW = {"id": 1, "n": 1, "day": 17_000, "n.s": {"x": 1}, "at": 1}
BAD = {"id": 1, "n": 3_000_000_000, "day": 99_999_999, "n.s": {"x": "a"}, "at": 1}


def change(op: str, before: object, after: object = None) -> dict[str, Any]:
    return event(op, 1, {"file": "b.000001", "pos": 4}, before, after)


@pytest.mark.parametrize("form", [lambda one: one, with_schema], ids=["bare", "with schema"])
def test_former_values_that_do_not_fit_are_null(form: Any) -> None:
    given = decoder(DEBEZIUM, COLUMNS, policy=ORDERED)
    events = change("u", BAD, ROW), change("d", BAD), change("u", ROW, {**ROW, "id": 2})
    done = decode(given, *map(form, events))
    assert not done.reasons
    rows = done.rows.select([*COLUMNS, IS_DELETED]).to_pylist()
    stored = {**ROW, "day": date(2016, 7, 18)}
    assert rows == [
        {**stored, IS_DELETED: False},
        {**dict.fromkeys(COLUMNS), "id": 1, "at": 1, IS_DELETED: True},
        {**stored, IS_DELETED: True},
        {**stored, "id": 2, IS_DELETED: False},
    ]


@pytest.mark.parametrize(
    ("wrong", "column"),
    [
        (change("u", {**BAD, "id": "x"}, ROW), "before.id"),
        (change("d", {**BAD, "at": "x"}), "before.at"),
        (change("u", BAD, {**ROW, "n": "x"}), "after.n"),
        (change("d", BAD, {**ROW, "n": "x"}), "after.n"),
    ],
)
def test_keys_orderings_and_new_values_must_fit(wrong: object, column: str) -> None:
    done = decode(decoder(DEBEZIUM, COLUMNS, policy=ORDERED), wrong, change("c", None, ROW))
    assert (done.accepted.tolist(), done.rejected.tolist()) == ([1], [0])
    assert done.reasons[0].column == column


@pytest.mark.parametrize("former", [2**62, -(2**62), 253_402_300_800_000_000])
def test_former_times_out_of_range_are_null(former: int) -> None:
    """Such as ``infinity`` of Postgres: the row can be repaired and deleted."""
    columns = {"id": pa.int64(), "t": TIME, "s": pa.struct([("x", pa.int64()), ("t", TIME)])}
    given = decoder(DEBEZIUM, columns)
    wrong = {"id": 1, "t": former, "s": {"x": 1, "t": former}}
    done = decode(given, change("u", wrong, {"id": 1}), change("d", wrong), change("c", {}, wrong))
    assert (done.accepted.tolist(), done.rejected.tolist()) == ([0, 1], [2])
    assert done.reasons[0].column == "after.t"


@pytest.mark.parametrize(
    ("envelope", "sent"),
    [
        (MaxwellEnvelope(key_columns=KEYS), maxwell("update", {"id": 1, "n": 1}, old={"n": "x"})),
        (
            DmsEnvelope(key_columns=KEYS),
            {**dms("update", {"id": 1, "n": 1}), "before-image": {"id": 1, "n": "x"}},
        ),
    ],
)
def test_former_values_of_other_programs_need_not_fit(envelope: Envelope, sent: object) -> None:
    done = decode(decoder(envelope, COLUMNS), sent)
    assert [(row["id"], row["n"]) for row in done.rows.to_pylist()] == [(1, 1)]


@pytest.mark.parametrize(
    "event",
    [
        b'{"op": "u", "before": {"id": 1, "n": "x", "n": "y"}, "after": {"id": 1, "n": 2}, %s}',
        b'{"op": "u", "before": {"id": 1, "n": "x", "n": null}, "after": {"id": 1, "n": 2}, %s}',
        b'{"op": "d", "before": {"id": 1, "n": 1, "n": 1}, %s}',
    ],
)
def test_event_with_a_repeated_former_value_is_rejected_once(event: bytes) -> None:
    source = b'"source": {"file": "b.000001", "pos": 4}'
    done = decoder(DEBEZIUM, COLUMNS).decode(pa.array([event % source], pa.binary()))
    assert (done.rejected.tolist(), done.reasons[0].column) == ([0], "before.n")
