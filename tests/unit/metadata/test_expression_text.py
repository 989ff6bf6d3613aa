"""An expression is read as it is printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.metadata.expressions.expression_text import parse_expression, print_expression
from lakemark.metadata.expressions.functions import ARGUMENTS

FUNCTIONS = st.sampled_from(sorted(ARGUMENTS))
#: Arguments of functions: numbers, formats and characters to trim.
TEXTS = st.text("abM -/:,'()0Té\n\r\t", min_size=1, max_size=8)


@given(FUNCTIONS, st.data())
def test_a_printed_expression_is_read_as_the_same(function: str, data: st.DataObject) -> None:
    names = ARGUMENTS[function]
    given_ = data.draw(st.integers(0, len(names)))
    options = {"expr": function, **{name: data.draw(TEXTS) for name in names[:given_]}}
    text = print_expression(function, "note", options)
    assert parse_expression(text) == (function, "note", options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("note", ("identity", "note", {"expr": "identity"})),
        (" LOWER( note ) ", ("lower", "note", {"expr": "lower"})),
        (
            "from_unixtime(ts, yyyy-MM-dd)",
            ("from_unixtime", "ts", {"expr": "from_unixtime", "format": "yyyy-MM-dd"}),
        ),
        ("trim(a , ', ''x' )", ("trim", "a", {"expr": "trim", "trimString": ", 'x"})),
        ("substring(a,1,2)", ("substring", "a", {"expr": "substring", "pos": "1", "len": "2"})),
    ],
)
def test_expressions_may_be_written_without_quotes(
    text: str, expected: tuple[str, str, dict[str, str]]
) -> None:
    assert parse_expression(text) == expected


@pytest.mark.parametrize(
    "text",
    ["lower()", "concat(a, b)", "year(a, b)", "split(a, b)", "trim(a, 'b)", "trim(a, 'b' c)"],
)
def test_other_expressions_are_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"use a column, or .*substring\(column, pos, len\)"):
        parse_expression(text)
