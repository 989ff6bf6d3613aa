"""Rules of ``expect``, compared with a model that judges one row at a time."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.meta_columns import IS_DELETED
from tests.depth import examples
from transforms.decode.json import JsonDecoder
from transforms.expectations import Outcome, Rule
from transforms.record_converter import RecordConverter
from transforms.schema_text import parse_schema
from transforms.violations import Violations

Row = dict[str, Any]
COLUMNS = {"id": "string", "n": "int", "x": "double", "t": "string"}


@dataclass(frozen=True)
class Condition:
    """A condition, and its model in the three-valued logic of SQL, where None is null."""

    text: str
    holds: Callable[[Row], bool | None]


def compare(column: str, symbol: str, literal: object) -> Condition:
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "=": lambda one, other: one == other,
        "!=": lambda one, other: one != other,
        "<": lambda one, other: one < other,
        ">=": lambda one, other: one >= other,
    }

    def holds(row: Row) -> bool | None:
        return None if row[column] is None else tests[symbol](row[column], literal)

    return Condition(f"{column} {symbol} {literal!r}", holds)


def is_in(column: str, literals: list[object]) -> Condition:
    def holds(row: Row) -> bool | None:
        return None if row[column] is None else row[column] in literals

    return Condition(f"{column} in ({', '.join(map(repr, literals))})", holds)


def is_null(column: str) -> Condition:
    return Condition(f"{column} is null", lambda row: row[column] is None)


def negate(one: Condition) -> Condition:
    def holds(row: Row) -> bool | None:
        found = one.holds(row)
        return None if found is None else not found

    return Condition(f"not ({one.text})", holds)


def both(one: Condition, other: Condition) -> Condition:
    def holds(row: Row) -> bool | None:
        found = {one.holds(row), other.holds(row)}
        return False if False in found else None if None in found else True

    return Condition(f"({one.text}) and ({other.text})", holds)


def either(one: Condition, other: Condition) -> Condition:
    found = negate(both(negate(one), negate(other)))
    return Condition(f"({one.text}) or ({other.text})", found.holds)


SYMBOLS = st.sampled_from(["=", "!=", "<", ">="])
TESTS = (
    st.builds(compare, st.just("n"), SYMBOLS, st.integers(-1, 1))
    | st.builds(compare, st.just("x"), SYMBOLS, st.sampled_from([-0.5, 0.0, 1.5]))
    | st.builds(compare, st.just("t"), SYMBOLS, st.sampled_from(["", "a"]))
    | st.builds(is_in, st.just("n"), st.lists(st.integers(-1, 1), min_size=1, max_size=2))
    | st.builds(is_in, st.just("x"), st.lists(st.sampled_from([-0.5, 0.0]), min_size=1))
    | st.builds(is_in, st.just("t"), st.lists(st.sampled_from(["", "a"]), min_size=1))
    | st.builds(is_null, st.sampled_from(["n", "x", "t"]))
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: (
        st.builds(negate, inner) | st.builds(both, inner, inner) | st.builds(either, inner, inner)
    ),
    max_leaves=4,
)
RULES = st.lists(
    st.tuples(CONDITIONS, st.sampled_from([*Outcome]), st.sampled_from(["n", "x", "t"])),
    min_size=1,
    max_size=3,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(["a", "b", None]),
            "n": st.integers(-1, 1) | st.none(),
            "x": st.sampled_from([math.nan, math.inf, -0.5, 0.0, -0.0, 2.0, None]),
            "t": st.sampled_from(["", "a", "b", None]),
            IS_DELETED: st.booleans(),
        }
    ),
    max_size=8,
)
Drawn = tuple[Condition, Outcome, str]


def converter(rules: list[Drawn]) -> RecordConverter:
    return RecordConverter(
        JsonDecoder(parse_schema(COLUMNS)),
        KeyGenerator(KeyGeneratorConfig(("id",))),
        topic="orders",
        rules=tuple(
            Rule(
                path=f"expect.{n}",
                name=f"rule {n}",
                condition=condition.text,
                outcome=outcome,
                column=column if outcome is Outcome.SET_NULL else "",
            )
            for n, (condition, outcome, column) in enumerate(rules)
        ),
    )


def records(rows: list[Row], first: int = 0) -> pa.Table:
    values = [json.dumps(row).encode() for row in rows]
    offsets = range(first, first + len(rows))
    return pa.table(
        {
            "key": pa.nulls(len(rows), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([0] * len(rows), pa.timestamp("us", "UTC")),
        }
    )


def judge(row: Row, rules: list[Drawn], counts: Counter[int]) -> Row | str | None:
    """Return the written row, the reason for a dead letter, or None for a delete."""
    row = {name: row[name] for name in (*COLUMNS, IS_DELETED)}
    if row["id"] is None:
        return "the record key (id) is null or empty"
    if row.pop(IS_DELETED):
        return None
    for n, (condition, outcome, column) in enumerate(rules):
        if condition.holds(row) is not False:
            continue
        counts[n] += 1
        if outcome is Outcome.DEAD_LETTER:
            return f"expect.{n}: rule 'rule {n}' ({condition.text}) is violated"
        if outcome is Outcome.SET_NULL:
            row[column] = None
    return row


@settings(max_examples=examples(150), deadline=None)
@given(rules=RULES, rows=ROWS, cut=st.integers(0, 8))
def test_rows_are_judged_like_one_row_at_a_time(
    rules: list[Drawn], rows: list[Row], cut: int
) -> None:
    counts, firsts = Counter[int](), dict[int, str]()
    expected = []
    for offset, row in enumerate(rows):
        before = counts.copy()
        expected.append(judge(row, rules, counts))
        firsts = {**dict.fromkeys(counts - before, f"orders 0:{offset}"), **firsts}
    convert = converter(rules)
    found = convert(records(rows))
    upserts = [
        {name: row[name] for name in COLUMNS}
        for row in found.changes.to_pylist()
        if row[CHANGE_KIND] == ChangeKind.UPSERT
    ]
    assert repr(upserts) == repr([row for row in expected if isinstance(row, dict)])
    assert found.changes.num_rows - len(upserts) == expected.count(None)
    reasons = [one for one in expected if isinstance(one, str)]
    assert found.rejects.rows["reason"].to_pylist() == reasons
    assert [stage == "expect" for stage in found.rejects.rows["stage"].to_pylist()] == [
        reason.startswith("expect.") for reason in reasons
    ]
    in_whole = {n: (one.count, str(one.first)) for n, one in found.violations.by_rule.items()}
    assert in_whole == {n: (count, firsts[n]) for n, count in counts.items()}
    chunks = [convert(records(rows[cut:], cut)), convert(records(rows[:cut]))]
    tables = [chunk.violations.to_table() for chunk in chunks]
    assert Violations.of(tables) == found.violations
