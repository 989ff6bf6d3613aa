from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from streamer.comparison.conversion import convert
from streamer.comparison.values import equal_values


@pytest.mark.parametrize(
    ("kind", "one", "other", "equal"),
    [
        (pa.float64(), math.nan, math.nan, True),
        (pa.float64(), 0.0, -0.0, True),
        (pa.float64(), None, math.nan, False),
        (pa.string(), None, "", False),
        (pa.list_(pa.float64()), [math.nan, None], [math.nan, None], True),
        (pa.list_(pa.string()), [], None, False),
        (pa.list_(pa.string()), [None], [], False),
        (pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", 2)], [("b", 2), ("a", 1)], True),
        (pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", 2)], [("b", 1), ("a", 2)], False),
        (pa.struct([("a", pa.int32())]), {"a": None}, None, False),
        (pa.struct([]), {}, {}, True),
    ],
)
def test_nulls_nan_and_the_order_of_maps(kind: Any, one: Any, other: Any, equal: bool) -> None:
    # The value is in the middle, so that slices and offsets count, too.
    left, right = (pa.array([None, value, None], kind).slice(1, 1) for value in (one, other))
    assert equal_values(left, right).tolist() == [equal]


def test_fields_of_structs_are_matched_by_name() -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    moved = pa.struct([("b", pa.string()), ("a", pa.int64())])
    values: list[Any] = [{"b": "x", "a": 1}, None, {"b": None, "a": None}]
    assert convert(pa.array(values, moved), inner) == pa.array(values, inner)
    for outer in (pa.list_, lambda kind: pa.map_(pa.string(), kind)):
        wrap = (lambda v: [v, v]) if outer is pa.list_ else (lambda v: [("k", v)])
        nested: list[Any] = [*map(wrap, values), None, []]
        given = pa.array([None, *nested], outer(moved)).slice(1)
        assert (
            convert(given, outer(inner)).to_pylist() == pa.array(nested, outer(inner)).to_pylist()
        )
