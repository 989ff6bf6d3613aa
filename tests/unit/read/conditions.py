"""Conditions, and rows that match some of them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from lakemark.model.meta_columns import PARTITION_PATH
from lakemark.read.where import parse_where

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("s", pa.struct([("x", pa.int32())])),
        ("day", pa.date32()),
        (PARTITION_PATH, pa.string()),
    ]
)


def _in_list(form: str) -> st.SearchStrategy[pc.Expression]:
    lists = st.lists(st.integers(-2, 12), min_size=1, max_size=3)
    return lists.map(lambda ns: parse_where(f"{form} ({', '.join(map(str, ns))})", SCHEMA))


ON_A = st.one_of(
    st.integers(-2, 12).map(lambda n: pc.field("a") == n),
    st.integers(-2, 12).map(lambda n: pc.field("a") != n),
    st.integers(-2, 12).map(lambda n: pc.field("a") > n),
    st.integers(-2, 12).map(lambda n: pc.field("a") <= n),
    st.lists(st.integers(-2, 12), max_size=3).map(
        lambda ns: pc.field("a").isin(pa.array(ns, "int64"))
    ),
    _in_list("a in"),
    st.just(pc.field("a").is_null()),
)
TESTS = st.one_of(
    ON_A,
    _in_list("a not in"),
    st.sampled_from(["x", "y", ""]).map(lambda t: pc.field("b") == t),
    st.just(pc.field("b").is_valid()),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=5,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(0, 10),
            "b": st.none() | st.sampled_from(["x", "y", "z"]),
        }
    ),
    min_size=1,
    max_size=12,
)
