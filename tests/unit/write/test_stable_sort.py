"""The order of rows by key columns is that of a stable sort of their values in Python."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.write.stable_sort import sorted_positions
from tests.depth import examples

#: Texts that share all, some or none of their first bytes, and that may end with zeros.
TEXTS = st.builds(
    lambda shared, rest: shared + rest,
    st.sampled_from(["", "order-", "order-2026-", "order-2026-\0"]),
    st.text("ab\0ä😀", max_size=12),
)
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), TEXTS),
    (pa.binary(), st.binary(max_size=10)),
    (pa.int32(), st.integers(-3, 3)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.decimal128(5, 2), st.decimals(-3, 3, places=2)),
]


def comparable(value: Any) -> tuple[bool, Any]:
    return value is not None, value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize(("arrow", "values"), COLUMNS, ids=[str(arrow) for arrow, _ in COLUMNS])
@settings(deadline=None, max_examples=examples(100))
@given(data=st.data())
def test_positions_are_those_of_a_stable_sort(
    arrow: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    listed = data.draw(st.lists(st.none() | values, max_size=20))
    skipped = data.draw(st.integers(0, len(listed)))
    column = pa.array(listed, arrow)[skipped:]
    chunks = pa.chunked_array([column[:3], column[3:]], arrow)
    rows = [comparable(value) for value in listed[skipped:]]
    expected = sorted(range(len(rows)), key=rows.__getitem__)
    assert sorted_positions([column]).tolist() == expected
    assert sorted_positions([chunks]).tolist() == expected


@settings(deadline=None, max_examples=examples(100))
@given(rows=st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | TEXTS), max_size=20))
@example(rows=[(1, "b"), (None, "a"), (1, "a"), (None, None), (1, "b")])
def test_later_columns_order_rows_with_equal_earlier_ones(
    rows: list[tuple[int | None, str | None]],
) -> None:
    numbers, texts = [row[0] for row in rows], [row[1] for row in rows]
    keys = [(comparable(number), comparable(text)) for number, text in rows]
    found = sorted_positions([pa.array(numbers, pa.int64()), pa.array(texts, pa.string())])
    assert found.tolist() == sorted(range(len(rows)), key=keys.__getitem__)


@pytest.mark.parametrize("shared", ["", "customer-of-a-shop-"])
@pytest.mark.parametrize("width", [3, 8, 9, 20])
def test_many_texts_are_sorted(shared: str, width: int) -> None:
    drawn = np.random.default_rng(width).integers(0, 3_000, 5_000).tolist()
    texts = [f"{shared}{number:0{width}d}" for number in drawn]
    found = sorted_positions([pa.array(texts)])
    assert found.tolist() == sorted(range(len(texts)), key=texts.__getitem__)


def test_decimals_are_ordered_by_their_value() -> None:
    values = pa.array([Decimal("10.00"), Decimal("9.00"), None, Decimal("-1.00")])
    assert sorted_positions([values]).tolist() == [2, 3, 1, 0]
