"""Dead letters are printed with one fact per line, and their JSON with one field per line."""

from __future__ import annotations

import io
import json

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from streamer.commands.letter_text import indent_json, print_letters

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def shown(value: str | None, *, in_full: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=20)
    print_letters([{"origin": "t:0:1", "key": None, "value": value}], console, in_full=in_full)
    return out.getvalue()


def test_each_fact_and_each_field_has_a_line() -> None:
    text = '{"id":1.10, "tags":["a","b: c, {d}"],"none":{}, "id":1e400}'
    assert shown(text).splitlines() == [
        "origin  t:0:1",
        "value",
        "  {",
        '    "id": 1.10,',
        '    "tags": [',
        '      "a",',
        '      "b: c, {d}"',
        "    ],",
        '    "none": {},',
        '    "id": 1e400',
        "  }",
    ]


def test_a_long_value_is_cut_with_its_length_unless_all_of_it_is_wanted() -> None:
    long = "x" * 2_500
    assert shown(long).endswith("x\n  … (2,500 characters; --full prints all of them)\n")
    assert shown(long).count("x") == 2_000
    assert shown(long, in_full=True).splitlines()[1] == f"value   {long}"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert shown("\x1b[2Jgone").splitlines()[1] == r"value   \x1b[2Jgone"


@given(_JSON, st.sampled_from([None, 1]))
def test_indented_json_has_the_same_values(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert json.loads(indent_json(text)) == value


@given(st.text())
def test_a_text_that_is_no_json_is_unchanged(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        assert indent_json(text) == text
