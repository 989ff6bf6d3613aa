"""Literals, names and comments of a query are told apart as Spark does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.migration.query_text import Kind, split_query, split_statements

PIECES = ["a", " ", "'", '"', "`", "--", "/*", "*/", "\\", "\n", ";", "r"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_parts_are_the_whole_text(text: str) -> None:
    assert "".join(part.text for part in split_query(text)) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.LITERAL, r"'it\'s -- '"),
        (Kind.LITERAL, "\"a 'b' /* \""),
        (Kind.LITERAL, r"r'\'"),
        (Kind.NAME, "`a``'b`"),
        (Kind.COMMENT, "-- it's \"\n"),
        (Kind.COMMENT, "-- a \\\n b; 'c\n"),
        (Kind.COMMENT, "/* it's /* nested */ -- ' */"),
    ],
)
def test_part_ends_where_spark_ends_it(kind: Kind, text: str) -> None:
    (found,) = [part for part in split_query(f"x {text} y") if part.kind is not Kind.CODE]
    assert (found.kind, found.text) == (kind, text.rstrip("\n"))
    assert split_statements(f"x {text};y") == [
        f"x {text}".strip() if kind is not Kind.COMMENT else "x",
        "y",
    ]
