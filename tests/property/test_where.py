"""A condition selects the same rows as SQLite does for the same text."""

from __future__ import annotations

import sqlite3

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
