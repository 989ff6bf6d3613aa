"""Converts values to a wider type. Readers need this for columns whose type has changed.

A float becomes the double with the same decimal text, so 0.1 stays 0.1. An integer becomes the
nearest float or double. Source: ``HoodieAvroUtils.rewritePrimaryTypeWithDiffSchemaType`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

import pyarrow as pa

#: Decimal digits of the largest 64-bit integer.
_LONG_DIGITS = 19


def widen(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert values to another type. Both types must be primitive.

    Raises:
        pyarrow.ArrowException: a value does not fit the type, or there is no such conversion.
    """
    stored = values.type
    if pa.types.is_float32(stored) and pa.types.is_float64(wanted):
        return values.cast(pa.string()).cast(wanted)
    if pa.types.is_integer(stored) and pa.types.is_floating(wanted):
        return values.cast(wanted, safe=False)
    if pa.types.is_integer(stored) and pa.types.is_decimal128(wanted):
        widest = max(wanted.precision, min(_LONG_DIGITS + wanted.scale, 38))
        return values.cast(pa.decimal128(widest, wanted.scale)).cast(wanted)
    return values.cast(wanted)
