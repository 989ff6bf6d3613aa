"""Hash codes are those of Java, so that Apache Hudi finds a key in its bucket."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.java_hash import list_hash, string_hash
from lakemark.errors import InvalidRecords
from tests.depth import examples

TEXTS = st.lists(st.none() | st.text(max_size=8), max_size=8)


def java_string_hash(text: str | None) -> int:
    units = (text or "").encode("utf-16-le")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "little")) % 2**32
    return value - 2**32 if value >= 2**31 else value


@settings(max_examples=examples(80), deadline=None)
@given(TEXTS, st.integers(0, 8), st.sampled_from([pa.string(), pa.large_string()]))
def test_a_string_hashes_as_in_java(texts: list[str | None], start: int, kind: pa.DataType) -> None:
    column = pa.array(texts, kind)[start:]
    assert string_hash(column).tolist() == [java_string_hash(text) for text in texts[start:]]


def test_hash_codes_printed_by_java() -> None:
    texts = ["", "a", "hello", "polygenelubricants", "trip-000042", "größe", "😀"]
    hashes = [0, 97, 99162322, -(2**31), 604407078, 98762257, 1772899]
    assert string_hash(pa.array(texts)).tolist() == hashes


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_strings_longer_than_a_hashed_chunk(letter: str) -> None:
    texts = [letter * length for length in (1, 70_000, 3, 65_536, 0, 200_000)]
    assert string_hash(pa.array(texts)).tolist() == [java_string_hash(text) for text in texts]


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(max_size=4), st.none() | st.text(max_size=4))))
def test_a_list_hashes_as_in_java(rows: list[tuple[str | None, str | None]]) -> None:
    columns = [pa.array([row[place] for row in rows], pa.string()) for place in (0, 1)]
    expected = []
    for row in rows:
        value = 1
        for text in row:
            value = 31 * value + java_string_hash(text)
        expected.append(np.int64(value).astype(np.int32))
    assert list_hash(columns).tolist() == expected


def test_a_value_that_is_not_text_is_named() -> None:
    broken = pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())
    with pytest.raises(InvalidRecords, match="UTF-8"):
        string_hash(broken)
