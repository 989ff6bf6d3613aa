"""Texts of numbers become decimals without rounding, also those near the limits of a type."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.decode.decimal_texts import to_decimals
from transforms.steps.cast import Cast

numbers = st.builds(
    lambda digits, exponent: f"{digits}e{exponent}",
    st.integers(-(10**38), 10**38).map(str)
    | st.integers(-99, 99).map(str)
    | st.decimals(-9, 9, places=30).map("{:f}".format),
    st.integers(-400, 40),
)


@given(numbers, st.sampled_from([(38, 17), (38, 0), (38, 38), (10, 2)]))
def test_number_is_exact_or_refused(text: str, size: tuple[int, int]) -> None:
    texts = pa.chunked_array([[text, None], ["0"]])
    try:
        found = to_decimals(texts, pa.decimal128(*size)).to_pylist()
    except pa.ArrowInvalid:
        assert Decimal(text) != 0
    else:
        assert found == [Decimal(text), None, 0]


@pytest.mark.parametrize(
    ("text", "size"), [("7", (38, 38)), ("12345", (38, 36)), ("100", (4, 2)), ("1e40", (38, 0))]
)
def test_number_with_too_many_whole_digits_is_refused(text: str, size: tuple[int, int]) -> None:
    with pytest.raises(pa.ArrowInvalid):
        to_decimals(pa.array([text]), pa.decimal128(*size))


def test_small_numbers_that_fit_are_exact() -> None:
    texts = pa.array(["1e-2", "-25E-1", "100e-0004", "0e-99", f"0.5{'0' * 50}"])
    expected = ["0.01", "-2.5", "0.01", "0", "0.5"]
    found = to_decimals(texts, pa.decimal128(10, 2)).to_pylist()
    assert found == [Decimal(number) for number in expected]


@pytest.mark.parametrize("text", ["e-5", "1e-", "x1e-5", "1e-99999999999999999999"])
def test_text_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        to_decimals(pa.array([text]), pa.decimal128(10, 2))


def test_cast_rejects_numbers_that_are_too_small() -> None:
    texts = ["0.5", *(f"8.4421814758067507898463372e-{n}" for n in range(17, 330))]
    step = Cast({"d": pa.decimal128(38, 17)})
    assert step.apply(pa.table({"d": texts})).rows["d"].to_pylist() == [Decimal("0.5")]
