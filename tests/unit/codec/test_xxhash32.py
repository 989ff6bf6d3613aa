"""The hash of a column equals the library's hash of each string."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh32_intdigest

from lakemark.codec.xxhash32 import xxhash32


def expected(values: list[bytes]) -> list[int]:
    return [xxh32_intdigest(value) for value in values]


@given(st.lists(st.binary(max_size=70), max_size=60))
def test_hashes_equal_those_of_the_library(values: list[bytes]) -> None:
    assert xxhash32(pa.array(values, pa.binary())).tolist() == expected(values)


@pytest.mark.parametrize("length", [*range(40), 63, 64, 65, 255, 256, 257, 1000])
def test_many_strings_of_one_length_are_hashed_together(length: int) -> None:
    values = [bytes((7 * row + 3 * at) % 256 for at in range(length)) for row in range(40)]
    assert xxhash32(pa.array(values, pa.binary())).tolist() == expected(values)


def test_slices_chunks_and_large_columns_are_hashed() -> None:
    texts = [f"order-{n * n}" for n in range(50_000)]
    column = pa.chunked_array([pa.array(["x", *texts[:9]])[1:], pa.array(texts[9:])])
    assert xxhash32(column).tolist() == expected([text.encode() for text in texts])
