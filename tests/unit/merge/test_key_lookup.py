"""Keys are found like by Arrow's own lookup, also if their hashes are equal."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.codec.java_hash import byte_hash, string_hash
from lakemark.merge.key_codes import NO_ROW
from lakemark.merge.key_lookup import KeyLookup

#: The pairs "Aa" and "BB", "C#" and "Bb" have one hash each, and so have sequences of them.
_COLLIDING = st.lists(st.sampled_from(["Aa", "BB", "C#", "Bb", "x"]), max_size=3).map("".join)
_KEYS = st.one_of(_COLLIDING, st.text(max_size=3))


def chunked(values: list[str | None]) -> pa.ChunkedArray:
    middle = len(values) // 2
    return pa.chunked_array([values[:middle], values[middle:]], pa.string())


@given(st.lists(_KEYS), st.lists(st.none() | _KEYS))
def test_key_is_found_at_its_first_row(keys: list[str], wanted: list[str | None]) -> None:
    rows = {key: row for row, key in reversed(list(enumerate(keys)))}
    found = KeyLookup(chunked(list(keys))).find_rows(chunked(wanted))
    assert found.tolist() == [NO_ROW if w is None else rows.get(w, NO_ROW) for w in wanted]


def test_thousands_of_keys_with_one_hash_are_distinguished() -> None:
    keys = [""]
    for _ in range(12):
        keys = [key + part for key in keys for part in ("Aa", "BB")]
    assert len(set(string_hash(pa.array(keys)).tolist())) == 1
    found = KeyLookup(chunked(list(keys))).find_rows(chunked([*reversed(keys), "AaAa"]))
    assert found.tolist() == [*reversed(range(len(keys))), NO_ROW]


def test_keys_that_are_not_text_are_found() -> None:
    values = pa.array([b"\xff\xfe", b"id", None]).cast(pa.large_binary())
    assert byte_hash(values).tolist()[1:] == [*string_hash(pa.array(["id"])).tolist(), 0]


@pytest.mark.parametrize("count", [0, 1])
def test_empty_column_contains_no_key(count: int) -> None:
    found = KeyLookup(chunked([])).find_rows(chunked(["a"] * count))
    assert np.array_equal(found, np.full(count, NO_ROW))
