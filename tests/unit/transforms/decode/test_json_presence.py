from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.depth import examples
from transforms.decode.json_presence import find_present

NAMES = ["a", "ab", "é", "a b", 'q"t', "\\", ":", ",", "}{", "a.b", "\n", ""]

names = st.sampled_from(NAMES)
values = st.recursive(
    st.none() | st.integers(0, 1) | names | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=6,
)
objects = st.dictionaries(names, values, max_size=4)


@st.composite
def texts(draw: st.DrawFn) -> str:
    separators = draw(st.sampled_from([(",", ":"), (" ,\n", " :\t")]))
    ascii_only = draw(st.booleans())
    return json.dumps(draw(objects), ensure_ascii=ascii_only, separators=separators)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(texts(), max_size=6), names)
@example(['{"b":"a"}', '{"a" :null}', '{"b":["a"]}', '{"b":{"a":1}}'], "a")
@example(['{"\\u0061":null}', '{"b":"\\"a\\":"}', '{"b":"}","a":null}'], "a")
@example(['{"x":"y"}', '{"x":"y","z":":"}', '{":":null}'], ":")
def test_fields_are_found_as_by_a_parser(lines: list[str], name: str) -> None:
    expected = [name in json.loads(line) for line in lines]
    for kind in (pa.binary(), pa.string()):
        column = pa.array([line.encode() for line in lines], pa.binary()).cast(kind)
        assert find_present(column, name).tolist() == expected


@pytest.mark.parametrize("cut", [0, 1])
def test_slices_and_chunks_are_read_correctly(cut: int) -> None:
    column = pa.array(['{"b":1}', '{"a":1}', '{"a":{"a":2}}'], pa.string())
    chunked = pa.chunked_array([column.slice(cut), column.slice(0, cut)])
    expected = [False, True, True][cut:] + [False, True, True][:cut]
    assert find_present(chunked, "a").tolist() == expected


def test_deeply_nested_objects_are_read() -> None:
    deep = '{"b":' + "[" * 100_000 + "]" * 100_000 + ',"a":null}'
    assert find_present(pa.array([deep, deep.replace("a", "c")]), "a").tolist() == [True, False]
