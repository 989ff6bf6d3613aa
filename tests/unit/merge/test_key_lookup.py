"""Keys are found where Arrow's own lookup finds them, whatever their hashes are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.codec.java_hash import byte_hash, string_hash
from lakemark.merge.key_codes import NO_ROW
from lakemark.merge.key_lookup import KeyLookup

#: Of two characters "Aa" and "BB", "C#" and "Bb" have one hash each, and so have their sequences.
_COLLIDING = st.lists(st.sampled_from(["Aa", "BB", "C#", "Bb", "x"]), max_size=3).map("".join)
_KEYS = st.one_of(_COLLIDING, st.text(max_size=3))


def chunked(values: list[str | None]) -> pa.ChunkedArray:
    middle = len(values) // 2
    return pa.chunked_array([values[:middle], values[middle:]], pa.string())


@given(st.lists(_KEYS), st.lists(st.none() | _KEYS))
def test_a_key_is_found_at_its_first_place_or_not_at_all(
    keys: list[str], wanted: list[str | None]
) -> None:
    places = {key: place for place, key in reversed(list(enumerate(keys)))}
    found = KeyLookup(chunked(list(keys))).places(chunked(wanted))
    assert found.tolist() == [NO_ROW if w is None else places.get(w, NO_ROW) for w in wanted]


def test_thousands_of_keys_of_one_hash_are_told_apart() -> None:
    keys = [""]
    for _ in range(12):
        keys = [key + part for key in keys for part in ("Aa", "BB")]
    assert len(set(string_hash(pa.array(keys)).tolist())) == 1
    found = KeyLookup(chunked(list(keys))).places(chunked([*reversed(keys), "AaAa"]))
    assert found.tolist() == [*reversed(range(len(keys))), NO_ROW]


def test_bytes_that_are_no_text_have_a_hash_too() -> None:
    values = pa.array([b"\xff\xfe", b"id", None]).cast(pa.large_binary())
    assert byte_hash(values).tolist()[1:] == [*string_hash(pa.array(["id"])).tolist(), 0]


@pytest.mark.parametrize("count", [0, 1])
def test_a_column_of_nothing_holds_nothing(count: int) -> None:
    found = KeyLookup(chunked([])).places(chunked(["a"] * count))
    assert np.array_equal(found, np.full(count, NO_ROW))
