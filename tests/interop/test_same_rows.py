"""The comparison of rows that every interop test uses: which differences it must find."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.same_rows import assert_same_rows


def _one(value: Any, kind: pa.DataType) -> pa.Table:
    return pa.table({"id": ["a"], "value": pa.array([value], kind)})


_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (_one("x", pa.string()), _one("x", pa.large_string())),
        (_one("x", pa.dictionary(pa.int32(), pa.string())), _one("x", pa.string_view())),
        (_one(_NOON, pa.timestamp("ms", "UTC")), _one(_NOON, pa.timestamp("us", "+02:00"))),
        (_one(Decimal("1.50"), pa.decimal128(9, 2)), _one(Decimal("1.5"), pa.decimal256(9, 2))),
        (_one(float("nan"), pa.float64()), _one(float("nan"), pa.float64())),
        (_one([1], pa.list_(pa.field("item", pa.int32()))), _one([1], pa.large_list(pa.int32()))),
        (
            _one([("k", 1), ("l", 2)], pa.map_(pa.string(), pa.int32())),
            _one([("l", 2), ("k", 1)], pa.map_(pa.string(), pa.int32())),
        ),
        (
            _one({"at": _NOON}, pa.struct([("at", pa.timestamp("ms", "UTC"))])),
            _one({"at": _NOON}, pa.struct([("at", pa.timestamp("us", "UTC"))])),
        ),
    ],
)
def test_physical_forms_of_one_value_are_equal(ours: pa.Table, theirs: pa.Table) -> None:
    assert_same_rows(ours, theirs)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (_one(1, pa.int32()), _one(1, pa.int64())),
        (_one(0.0, pa.float64()), _one(-0.0, pa.float64())),
        (_one("x", pa.string()), _one(b"x", pa.binary())),
        (_one(_NOON, pa.timestamp("us", "UTC")), _one(_NOON, pa.timestamp("us"))),
        (
            _one(_NOON, pa.timestamp("us", "UTC")),
            _one(_NOON.replace(tzinfo=timezone(timedelta(hours=2))), pa.timestamp("us", "UTC")),
        ),
        (_one(Decimal("1.5"), pa.decimal128(9, 1)), _one(Decimal("1.5"), pa.decimal128(9, 2))),
        (_one(None, pa.list_(pa.int32())), _one([], pa.list_(pa.int32()))),
        (_one([1, 2], pa.list_(pa.int32())), _one([2, 1], pa.list_(pa.int32()))),
        (_one(1, pa.int32()), _one(1, pa.int32()).rename_columns(["id", "other"])),
    ],
)
def test_different_values_and_types_are_not_equal(ours: pa.Table, theirs: pa.Table) -> None:
    with pytest.raises(AssertionError, match=r"value|columns"):
        assert_same_rows(ours, theirs)


def test_message_names_the_record_the_column_and_both_values() -> None:
    ours = pa.table({"_hoodie_record_key": ["a", "b"], "total": [1, 2]})
    theirs = pa.table({"_hoodie_record_key": ["c", "b"], "total": [1, 3]})
    with pytest.raises(AssertionError) as report:
        assert_same_rows(ours, theirs)
    assert "2 only ours, 2 only theirs" in str(report.value)
    assert "total: ours 2, theirs 3" in str(report.value)
    assert "only ours: {'_hoodie_record_key': 'a'" in str(report.value)
    assert "only theirs: {'_hoodie_record_key': 'c'" in str(report.value)


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.none() | st.text(max_size=2))), data=st.data())
def test_order_of_rows_is_ignored_and_repetition_is_not(
    rows: list[tuple[int, str | None]], data: st.DataObject
) -> None:
    def as_table(some: list[tuple[int, str | None]]) -> pa.Table:
        numbers, words = [row[0] for row in some], [row[1] for row in some]
        return pa.table({"n": pa.array(numbers, pa.int32()), "w": pa.array(words, pa.string())})

    shuffled = data.draw(st.permutations(rows))
    assert_same_rows(as_table(rows), as_table(shuffled))
    if rows:
        with pytest.raises(AssertionError, match="1 only ours"):
            assert_same_rows(as_table([*rows, rows[0]]), as_table(rows))
