"""A condition selects the same rows as SQLite does for the same text.

SQLite has neither NaN nor decimals, dates and times. Lists of such values are compared with a model
that tests one row after the other.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakemark.read.where import InvalidWhere, parse_where

SCHEMA = pa.schema([("row", pa.int64()), ("n", pa.int64()), ("s", pa.string())])

numbers = st.integers(-3, 3).map(str)
texts = st.sampled_from(["''", "'a'", "'b'", "'it''s'"])
comparisons = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">="])


def simple_tests(column: str, literals: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.lists(literals, min_size=1, max_size=3).map(", ".join)
    return st.one_of(
        st.builds("{} {} {}".format, st.just(column), comparisons, literals),
        st.builds("{} {} ({})".format, st.just(column), st.sampled_from(["in", "not in"]), lists),
        st.builds("{} is {}null".format, st.just(column), st.sampled_from(["", "not "])),
    )


conditions = st.recursive(
    simple_tests("n", numbers) | simple_tests("s", texts),
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["and", "or"]), inner),
        st.builds("not {}".format, inner),
        st.builds("({})".format, inner),
    ),
    max_leaves=8,
)
rows = st.lists(
    st.tuples(
        st.none() | st.integers(-3, 3), st.none() | st.sampled_from(["", "a", "b", "it's", "z"])
    ),
    max_size=12,
)


@given(conditions, rows)
def test_condition_selects_the_same_rows_as_sqlite(
    condition: str, data: list[tuple[int | None, str | None]]
) -> None:
    numbered = [(row, n, s) for row, (n, s) in enumerate(data)]
    table = pa.table(
        [pa.array([r[i] for r in numbered], SCHEMA.field(i).type) for i in range(3)], schema=SCHEMA
    )
    with sqlite3.connect(":memory:") as database:
        database.execute("create table t (row, n, s)")
        database.executemany("insert into t values (?, ?, ?)", numbered)
        query = f"select row from t where {condition} order by row"
        expected = [row for (row,) in database.execute(query)]
    database.close()
    assert table.filter(parse_where(condition, SCHEMA)).column("row").to_pylist() == expected


@given(st.text() | st.text("()ns=<>!'` inotrull,.0-9", max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parse_where(text, SCHEMA)
    except InvalidWhere as error:
        assert 0 <= error.position <= len(text)


Row: TypeAlias = Mapping[str, object]
#: Returns whether a row meets a condition; None if it is not known, because of a null.
Model: TypeAlias = Callable[[Row], bool | None]
#: A condition and its model.
Modelled: TypeAlias = tuple[str, Model]

_NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
_ZEROS = {"0": 0.0, "-0.0": -0.0, "0.5": 0.5, "-1e3": -1e3}
#: For each column: its type, and values by their text in a condition.
_TYPED: dict[str, tuple[pa.DataType, dict[str, object]]] = {
    "d": (pa.float64(), {**_ZEROS, "0.1": 0.1}),
    "f": (pa.float32(), {**_ZEROS, "0.1": pa.scalar(0.1, pa.float32()).as_py()}),
    "big": (pa.int64(), {str(n): n for n in (0, 2**53, 2**53 + 1, -(2**63))}),
    "price": (pa.decimal128(9, 2), {t: Decimal(t) for t in ("1.1", "1.10", "0", "-2.05")}),
    "day": (pa.date32(), {f"'{d}'": d for d in (date(2026, 5, 1), date(1500, 1, 1))}),
    "at": (
        pa.timestamp("us", "UTC"),
        {
            "'2026-05-01 12:00:00'": _NOON,
            "'2026-05-01T14:00:00+02:00'": _NOON,
            "'2026-05-01 12:00:00.000001'": _NOON.replace(microsecond=1),
        },
    ),
    "ok": (pa.bool_(), {"true": True, "false": False}),
}
_TYPED_SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _TYPED.items()])


def memberships(column: str) -> st.SearchStrategy[Modelled]:
    known = _TYPED[column][1]

    def build(form: str, texts: list[str]) -> Modelled:
        wanted = [known[text] for text in texts]

        def is_in(row: Row) -> bool | None:
            return None if row[column] is None else row[column] in wanted

        model = is_in if form == "in" else negated(is_in)
        return f"{column} {form} ({', '.join(texts)})", model

    lists = st.lists(st.sampled_from([*known]), min_size=1, max_size=4)
    return st.builds(build, st.sampled_from(["in", "not in"]), lists)


def negated(model: Model) -> Model:
    def negate(row: Row) -> bool | None:
        known = model(row)
        return None if known is None else not known

    return negate


def combined(one: Modelled, word: str, other: Modelled) -> Modelled:
    def combine(row: Row) -> bool | None:
        known = {one[1](row), other[1](row)}
        decisive = word == "or"
        return decisive if decisive in known else None if None in known else not decisive

    return f"({one[0]}) {word} ({other[0]})", combine


typed_rows = st.lists(
    st.fixed_dictionaries(
        {
            name: st.sampled_from(
                [None, *known.values(), *([math.nan] if pa.types.is_floating(kind) else [])]
            )
            for name, (kind, known) in _TYPED.items()
        }
    ),
    max_size=8,
)
typed_conditions = st.recursive(
    st.one_of(*map(memberships, _TYPED)),
    lambda inner: st.one_of(
        st.builds(combined, inner, st.sampled_from(["and", "or"]), inner),
        inner.map(lambda one: (f"not ({one[0]})", negated(one[1]))),
    ),
    max_leaves=5,
)


@given(typed_conditions, typed_rows)
def test_list_of_values_selects_the_rows_that_a_test_of_each_row_selects(
    condition: Modelled, data: list[dict[str, object]]
) -> None:
    text, model = condition
    table = pa.Table.from_pylist(data, _TYPED_SCHEMA).append_column("row", [[*range(len(data))]])
    found = table.filter(parse_where(text, _TYPED_SCHEMA)).column("row").to_pylist()
    assert found == [number for number, row in enumerate(data) if model(row) is True]
