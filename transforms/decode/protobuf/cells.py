"""Turns the raw values of fields into columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.protobuf.types import UNSIGNED, Field, Kind

Mask: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.uint64]

#: Up to this number, the names of an enum are listed by number.
_LOW_NUMBERS = 1 << 10


def numbers_to_column(field: Field, raw: Numbers, is_null: Mask | None) -> pa.Array:
    """Return a column of numbers, booleans or enums.

    Args:
        field: the field.
        raw: the numbers as they are encoded.
        is_null: which cells are null; None if none is.
    """
    if field.kind is Kind.ENUM:
        return _names(raw.astype(np.uint32).view(np.int32), field.symbols, is_null)
    column = pa.array(_decoded(field.kind, raw), mask=is_null)
    return column.cast(UNSIGNED) if field.item_type == UNSIGNED else column


def _decoded(kind: Kind, raw: Numbers) -> npt.NDArray[Any]:
    """Return numbers in the type of their column; numbers without a sign remain as they are."""
    if kind is Kind.BOOL:
        return raw.astype(np.bool_)
    if kind in (Kind.UINT64, Kind.FIXED64):
        return raw
    if kind in (Kind.INT64, Kind.SFIXED64):
        return raw.view(np.int64)
    if kind is Kind.DOUBLE:
        return raw.view(np.float64)
    if kind is Kind.SINT64:
        return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)
    low = raw.astype(np.uint32)
    if kind in (Kind.UINT32, Kind.FIXED32):
        return low.astype(np.int64)
    if kind is Kind.SINT32:
        return (low >> np.uint32(1)).view(np.int32) ^ -(low & np.uint32(1)).view(np.int32)
    return low.view(np.float32 if kind is Kind.FLOAT else np.int32)


def _names(
    numbers: npt.NDArray[np.int32], symbols: Sequence[tuple[int, str]], is_null: Mask | None
) -> pa.Array:
    """Return the names of an enum's numbers; the digits of a number without a name."""
    names = dict(symbols)
    positions: npt.NDArray[np.signedinteger] = numbers
    highest = int(numbers.max(initial=0))
    if numbers.min(initial=0) >= 0 and highest < _LOW_NUMBERS:
        distinct = list(range(highest + 1))
    else:
        found, positions = np.unique(numbers, return_inverse=True)
        distinct = found.tolist()
    texts = pa.array([names.get(number, str(number)) for number in distinct], pa.string())
    return texts.take(pa.array(positions, mask=is_null))


def with_nulls(column: pa.Array, is_null: Mask | None) -> pa.Array:
    """Return a column with more nulls."""
    if is_null is None or not is_null.any():
        return column
    return pc.if_else(pa.array(~is_null), column, pa.scalar(None, column.type))
