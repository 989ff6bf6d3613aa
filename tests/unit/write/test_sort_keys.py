"""Keys order rows as their values are ordered, whatever the type; ranks divide rows evenly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.model.row_order import Curve, RowOrder
from lakemark.write import sort_keys
from lakemark.write.sort_keys import RowKeys, is_sortable, sort_key
from tests.depth import examples

TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(5, 2), st.decimals(-999, 999, places=2)),
    (pa.string(), st.text(max_size=3)),
    (pa.binary(), st.binary(max_size=3)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.time64("us"), st.times()),
]


def spark_order(value: Any) -> tuple[Any, ...]:
    """Return a key of Python for the order of Spark: null, numbers, NaN."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value)
    return (1, value)


@pytest.mark.parametrize(("arrow", "values"), TYPES, ids=[str(arrow) for arrow, _ in TYPES])
@settings(deadline=None, max_examples=examples(30))
@given(data=st.data())
def test_keys_are_ordered_as_the_values(
    arrow: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    listed = data.draw(st.lists(st.none() | values, min_size=2, max_size=8))
    stored = pa.chunked_array([pa.array(listed, arrow)])
    keys = [(key is not None, key) for key in sort_key(stored).to_pylist()]
    expected = [spark_order(value) for value in stored.to_pylist()]
    for (key, value), (other_key, other) in pairwise(zip(keys, expected, strict=True)):
        assert (key < other_key, key == other_key) == (value < other, value == other)


def test_nested_columns_have_no_order() -> None:
    assert not is_sortable(pa.struct([("a", pa.int64())]))
    assert not is_sortable(pa.list_(pa.int64()))
    assert is_sortable(pa.timestamp("us", "UTC"))


def positions(curve: Curve, columns: Sequence[Sequence[object]]) -> list[int]:
    names = tuple("abcdefgh"[: len(columns)])
    rows = pa.table(dict(zip(names, map(list, columns), strict=True)))
    keys = RowKeys.of(RowOrder(names, curve), [rows])
    (name,) = keys.names
    found: list[int] = keys.add(rows).column(name).to_pylist()
    return found


@pytest.mark.parametrize("curve", [Curve.Z_ORDER, Curve.HILBERT])
def test_pieces_of_a_curve_have_narrow_ranges_of_every_column(curve: Curve) -> None:
    generator = np.random.default_rng(3)
    numbers = np.exp(generator.normal(size=4096) * 5)  # the values have very different sizes
    texts = [f"{n:05d}" for n in generator.integers(0, 4096, 4096)]
    order = np.argsort(positions(curve, [numbers.tolist(), texts]))
    for values in (numbers.tolist(), texts):
        ranks = {value: rank / 4096 for rank, value in enumerate(sorted(values))}
        pieces = np.array([ranks[values[n]] for n in order]).reshape(16, 256)
        spread = (pieces.max(axis=1) - pieces.min(axis=1)).mean()
        assert spread < 0.45, "of 16 files, each has about a quarter of the values of each column"


def test_nulls_and_columns_with_few_values_count_as_much_as_others() -> None:
    flags = [None, False, True, None] * 4
    found = positions(Curve.Z_ORDER, [flags, list(range(16))])
    ordered = [flags[n] for n in np.argsort(found, kind="stable").tolist()]
    assert ordered[:4].count(None) == 4, "the first quarter has only nulls and small numbers"


def test_a_curve_of_one_column_is_its_order() -> None:
    rows = pa.table({"a": [3, 1, 2]})
    keys = RowKeys.of(RowOrder(("a",), Curve.HILBERT), [rows])
    assert keys.add(rows).column(keys.names[0]).to_pylist() == [3, 1, 2]


@settings(deadline=None, max_examples=examples(30))
@given(sizes=st.lists(st.integers(0, 30), max_size=9))
def test_a_sample_depends_only_on_the_rows(sizes: list[int]) -> None:
    values = pa.array(range(sum(sizes)), pa.int64())
    starts = np.cumsum([0, *sizes])
    parts = [[values.slice(start, size)] for start, size in zip(starts, sizes, strict=False)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort_keys, "_SAMPLE_ROWS", 4)
        divided = sort_keys._sample(iter(parts))
        whole = sort_keys._sample(iter([[values]]))
    steps = {int(n) for n in np.diff(divided[0].to_numpy())} if divided else set()
    assert len(steps) <= 1, "every n-th row"
    assert not divided or len(divided[0]) <= 8
    assert not values or whole[0][0].as_py() == 0
