"""Parts of a buffer as a column."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakemark.codec.byte_strings import byte_ranges, gather

DATA = bytes(range(12))
PARTS = st.integers(0, len(DATA)).flatmap(
    lambda start: st.tuples(st.just(start), st.integers(0, len(DATA) - start), st.booleans())
)


@given(st.lists(PARTS, max_size=6), st.booleans(), st.booleans())
def test_parts_of_a_buffer_become_cells(
    parts: list[tuple[int, int, bool]], is_sorted: bool, has_nulls: bool
) -> None:
    given_parts = sorted(parts) if is_sorted else parts
    data = np.frombuffer(DATA, np.uint8)
    starts = np.array([start for start, _, _ in given_parts], np.int64)
    lengths = np.array([length for _, length, _ in given_parts], np.int64)
    is_null = np.array([null for _, _, null in given_parts], np.bool_)
    expected = [DATA[start : start + length] for start, length, _ in given_parts]
    assert gather(data, starts, lengths).tobytes() == b"".join(expected)
    found = byte_ranges(data, starts, lengths, is_null if has_nulls else None).to_pylist()
    nulls = is_null.tolist() if has_nulls else [False] * len(expected)
    assert found == [None if null else part for part, null in zip(expected, nulls, strict=True)]
