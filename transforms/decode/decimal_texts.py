"""Parses texts to decimals, without rounding."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

Texts = TypeVar("Texts", pa.Array, pa.ChunkedArray)

#: The digits of a ``decimal256``.
_MOST_DIGITS = 76
_HAS_NEGATIVE_EXPONENT = r"[eE]-"


def type_to_parse(wanted: pa.DataType) -> pa.DataType:
    """Return the wider type as which pyarrow must parse numbers that become decimals.

    pyarrow counts zeros at the end of a fraction as digits, and scales integers without checking
    the precision. The digits of the scale are subtracted, so that scaled integers do not overflow.
    """
    return pa.decimal256(_MOST_DIGITS - wanted.scale, wanted.scale)


def to_decimals(texts: Texts, wanted: pa.DataType) -> Texts:
    """Parse texts; a null remains null.

    pyarrow divides the digits of a number by a power of ten. It has these powers up to 10^76, and
    does not check whether there is one. So it would return zero for some smaller numbers.

    Raises:
        pyarrow.ArrowInvalid: a text is no number, or does not fit the type.
    """
    for text in texts.filter(pc.match_substring_regex(texts, _HAS_NEGATIVE_EXPONENT)).to_pylist():
        if _is_too_small(text, wanted.scale):
            message = f"{text!r} does not fit {wanted}"
            raise pa.ArrowInvalid(message)
    return texts.cast(type_to_parse(wanted)).cast(wanted)


def _is_too_small(text: str, scale: int) -> bool:
    """Return whether a number is so small that all its digits are after the last place."""
    try:
        number = Decimal(text)
    except InvalidOperation:  # it is no number, or even smaller
        return True
    return bool(number) and number.adjusted() < -scale
