"""The keys that a condition demands are those that a writer computes for the matching rows."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.config.key_generators import KeyGeneratorType
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.demanded_keys import MAX_KEYS, demanded_keys
from lakemark.read.demanded_values import demanded_values
from lakemark.read.where import parse_where

SCHEMA = pa.schema(
    [
        (RECORD_KEY, pa.string()),
        ("id", pa.string()),
        ("n", pa.int32()),
        ("d", pa.decimal128(12, 2)),
        ("small", pa.decimal128(12, 9)),
        ("at", pa.timestamp("us")),
        ("on", pa.date32()),
        ("x", pa.float64()),
    ]
)


def demanded(condition: str, *fields: str, **settings: Any) -> list[str] | None:
    config = KeyGeneratorConfig(fields, **settings)
    keys = demanded_keys(demanded_values(condition, SCHEMA), SCHEMA, config)
    return None if keys is None else sorted(keys.to_pylist())


@pytest.mark.parametrize(
    ("condition", "fields", "expected"),
    [
        ("id = 'a'", ["id"], ["a"]),
        ("id in ('b', 'a', 'a') and n > 3", ["id"], ["a", "b"]),
        ("id in ('a', 'b') and id in ('b', 'c')", ["id"], ["b"]),
        ("id = 'a' and id = 'b'", ["id"], []),
        ("id = 'a' or id = 'b'", ["id"], ["a", "b"]),
        ("n = -7", ["n"], ["-7"]),
        ("d in (1.5, 2)", ["d"], ["1.50", "2.00"]),
        ("id in ('a', 'b') and n = 7", ["id", "n"], ["id:a,n:7", "id:b,n:7"]),
        ("n in (1, 2) and id = ''", ["n", "id"], ["n:1,id:__empty__", "n:2,id:__empty__"]),
        ("_hoodie_record_key in ('id:a,n:7', 'x')", ["id", "n"], ["id:a,n:7", "x"]),
    ],
)
def test_condition_demands_keys(condition: str, fields: Sequence[str], expected: list[str]) -> None:
    assert demanded(condition, *fields) == expected


@pytest.mark.parametrize(
    ("condition", "fields"),
    [
        ("id = 'a' or n = 7", ["id"]),
        ("not id = 'a'", ["id"]),
        ("id > 'a'", ["id"]),
        ("id = 'a' or id is null", ["id"]),
        ("id = ''", ["id"]),  # no writer stores such a key
        ("id = 'a'", ["id", "n"]),
        ("id is null and n = 7", ["id", "n"]),
        # The keys are also those of other rows.
        ("id = 'a,n:1' and n = 7", ["id", "n"]),
        ("id = '__null__' and n = 7", ["id", "n"]),
        # Writers differ in the texts of these values.
        ("at = '2026-05-01'", ["at"]),
        ("on = '2026-05-01'", ["on"]),
        ("x = 1", ["x"]),
        ("small = 0.000000001", ["small"]),
    ],
)
def test_condition_demands_no_keys(condition: str, fields: Sequence[str]) -> None:
    assert demanded(condition, *fields) is None


def test_key_with_two_encodings_is_demanded_in_both() -> None:
    kind = KeyGeneratorType.COMPLEX
    assert demanded("id = 'a'", "id", partition_fields=("n",), kind=kind) == ["a", "id:a"]


def test_too_many_keys_are_not_demanded() -> None:
    numbers = range(MAX_KEYS // 100 + 1)
    values = {"n": frozenset(numbers), "id": frozenset(map(str, range(100)))}
    config = KeyGeneratorConfig(("id", "n"))
    assert demanded_keys(values, SCHEMA, config) is None
    fewer = demanded_keys({**values, "n": frozenset(numbers[1:])}, SCHEMA, config)
    assert fewer is not None and len(fewer) == MAX_KEYS


def test_number_that_its_column_cannot_contain_demands_no_key() -> None:
    config = KeyGeneratorConfig(("n",))
    assert demanded_keys({"n": frozenset([2**40])}, SCHEMA, config) is None
    assert demanded_keys({"n": frozenset([7.0])}, SCHEMA, config) is None
    assert demanded_keys({"n": frozenset([True])}, SCHEMA, config) is None


texts = st.sampled_from(["a", "b", "", "a,n:1", "id:a", "it's", "ü", "__null__", "__empty__"])
numbers = st.integers(-2, 2)
decimals = st.decimals(-2, 2, places=2)
rows = st.lists(st.tuples(st.none() | texts, st.none() | numbers, st.none() | decimals), max_size=8)


@st.composite
def conditions(draw: st.DrawFn) -> str:
    literals = {
        "id": texts.map(lambda text: "'" + text.replace("'", "''") + "'"),
        "n": numbers.map(str),
        "d": decimals.map(lambda number: str(Decimal(number).normalize()).replace("E", "e")),
    }
    names = draw(st.lists(st.sampled_from(sorted(literals)), min_size=1, max_size=4))
    chosen = [(name, draw(st.lists(literals[name], min_size=1, max_size=3))) for name in names]
    return " and ".join(f"{name} in ({', '.join(some)})" for name, some in chosen)


@given(
    st.sampled_from([("id",), ("n",), ("d",), ("id", "n"), ("d", "id", "n")]),
    rows,
    conditions(),
    st.booleans(),
)
def test_each_matching_row_has_a_demanded_key(
    fields: tuple[str, ...], listed: list[tuple[object, ...]], condition: str, is_complex: bool
) -> None:
    settings: dict[str, Any] = {}
    if is_complex:
        settings = {"partition_fields": ("on",), "kind": KeyGeneratorType.COMPLEX}
    keys = demanded(condition, *fields, **settings)
    stored = pa.Table.from_pylist(
        [dict(zip(("id", "n", "d"), row, strict=True)) for row in listed], schema=SCHEMA
    )
    matching = stored.filter(parse_where(condition, SCHEMA))
    for is_bare in (False, True):
        config = KeyGeneratorConfig(fields, bare_lone_key=is_bare, **settings)
        written = KeyGenerator(config).record_keys(matching).drop_null().to_pylist()
        assert keys is None or set(written) <= set(keys)
