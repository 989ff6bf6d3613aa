"""Texts become the numbers that they show, or reject their records."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from transforms.steps.cast import Cast


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_hexadecimal_digits_are_no_integer(kind: pa.DataType) -> None:
    done = Cast({"n": kind}).apply(pa.table({"n": ["0xFFFFFFFF", "-7", "0X10", "007", None]}))
    assert done.rows["n"].to_pylist() == [-7, 7, None]
    assert list(done.rejected) == [0, 2]
    assert "no number of decimal digits" in done.rejected[0]


@pytest.mark.parametrize(("kind", "large"), [(pa.float32(), "1e39"), (pa.float64(), "-1e400")])
def test_a_number_that_is_too_large_does_not_become_infinite(kind: pa.DataType, large: str) -> None:
    texts = [large, "1.5", "inf", "-Infinity", None]
    done = Cast({"n": kind}).apply(pa.table({"n": texts}))
    assert done.rows["n"].to_pylist() == [1.5, math.inf, -math.inf, None]
    assert list(done.rejected) == [0]
    assert "out of the range" in done.rejected[0]
