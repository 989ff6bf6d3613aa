"""Chains of steps, compared with a model that transforms one record at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from transforms.steps.add import Add
from transforms.steps.cast import Cast
from transforms.steps.chain import TransformChain
from transforms.steps.columns import Drop
from transforms.steps.explode import Explode
from transforms.steps.filter import Filter
from transforms.steps.transform import Transform

Row = dict[str, Any]

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("numbers", pa.list_(pa.int64()))])
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 5) | st.none(),
            "text": st.sampled_from(["1", "-2", "30", "x", "", None]),
            "numbers": st.lists(st.integers(-2, 2) | st.none(), max_size=3) | st.none(),
        }
    ),
    max_size=12,
)


class Rejected(Exception):
    """The model rejects a record."""


@dataclass(frozen=True)
class Modelled:
    """A step, and its model: the rows that it makes of one row."""

    transform: Transform
    rows_of: Callable[[Row], list[Row]]


def cast_text(row: Row) -> list[Row]:
    if row["text"] in ("x", ""):
        raise Rejected
    return [{**row, "text": None if row["text"] is None else int(row["text"])}]


def explode(row: Row) -> list[Row]:
    return [{**row, "numbers": one} for one in row["numbers"] or []]


def explode_all(row: Row) -> list[Row]:
    if not row["numbers"]:
        return [{**row, "numbers": None, "position": None}]
    return [{**row, "numbers": one, "position": n} for n, one in enumerate(row["numbers"])]


def divide(row: Row) -> list[Row]:
    if row["id"] == 0:
        raise Rejected
    return [{**row, "ratio": None if row["id"] is None else 60 / row["id"]}]


def invert(row: Row) -> list[Row]:
    if row["numbers"] == 0:
        raise Rejected
    return [{**row, "inverse": None if row["numbers"] is None else 2 / row["numbers"]}]


STEPS = {
    "cast": Modelled(Cast({"text": pa.int64()}), cast_text),
    "filter": Modelled(
        Filter("id > 1 and id != 3"), lambda row: [row] if (row["id"] or 0) in (2, 4, 5) else []
    ),
    "explode": Modelled(Explode("numbers"), explode),
    "explode all": Modelled(Explode("numbers", "position", keeps_empty=True), explode_all),
    "add": Modelled(Add({"ratio": "60 / id"}), divide),
    "invert": Modelled(Add({"inverse": "2 / numbers"}), invert),
    "drop": Modelled(Drop(("text",)), lambda row: [{k: v for k, v in row.items() if k != "text"}]),
}


@st.composite
def chains(draw: st.DrawFn) -> list[Modelled]:
    names = draw(st.lists(st.sampled_from([*STEPS]), min_size=1, unique=True))
    if "explode" in names and "explode all" in names:
        names.remove("explode all")
    if {"cast", "drop"} <= {*names} and names.index("drop") < names.index("cast"):
        names.remove("cast")
    exploding = [n for n, name in enumerate(names) if name.startswith("explode")]
    if "invert" in names and not (exploding and exploding[0] < names.index("invert")):
        names.remove("invert")
    return [STEPS[name] for name in names or ["filter"]]


def model(record: Row, steps: list[Modelled]) -> list[Row] | None:
    """Return the rows of a record; None if it is rejected."""
    rows = [record]
    try:
        for step in steps:
            rows = [row for one in rows for row in step.rows_of(one)]
    except Rejected:
        return None
    return rows


@settings(max_examples=examples(60), deadline=None)
@given(records=RECORDS, steps=chains())
def test_a_chain_does_the_same_as_one_record_at_a_time(
    records: list[Row], steps: list[Modelled]
) -> None:
    named = [(f"transform.{n}", step.transform) for n, step in enumerate(steps)]
    result = TransformChain.build(named, SCHEMA).apply(pa.Table.from_pylist(records, SCHEMA))
    expected = [model(record, steps) for record in records]
    assert [*result.rejected] == [n for n, rows in enumerate(expected) if rows is None]
    assert result.filtered.tolist() == [n for n, rows in enumerate(expected) if rows == []]
    wanted = [(n, row) for n, rows in enumerate(expected) for row in rows or []]
    found = list(zip(result.origins.tolist(), result.rows.to_pylist(), strict=True))
    assert found == wanted


def test_other_rows_of_a_rejected_record_are_dropped() -> None:
    records = [{"id": 1, "numbers": [1, 0, 2]}, {"id": 2, "numbers": [1, 2]}]
    steps = [("explode", Explode("numbers")), ("add", Add({"inverse": "2 / numbers"}))]
    result = TransformChain.build(steps, SCHEMA).apply(pa.Table.from_pylist(records, SCHEMA))
    assert [*result.rejected] == [0]
    assert result.origins.tolist() == [1, 1]
    assert result.rows["inverse"].to_pylist() == [2.0, 1.0]
