"""Finds numbers that pyarrow may have read as infinity or zero, because they are out of range.

pyarrow refuses 1e400 as a ``double``. But it reads 99e307, and an integer of 400 digits, as
infinity. As a decimal, it reads some of the smallest numbers as zero, such as 2.6e-193.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]

#: A ``double`` is below 1.8e308, so a number that overflows has 309 digits in a row or an exponent.
_MAY_OVERFLOW = r"[0-9]{309}|[0-9][eE]\+?[0-9]"

#: pyarrow divides a decimal by a power of ten, and has these powers up to 10^76 only. A number with
#: 17 digits or fewer after the point and an exponent of at least -59 needs no higher one.
_MAY_VANISH = r"[0-9]{18}[eE]-|[eE]-0*([6-9][0-9]|[1-9][0-9]{2})"


def find_possible_zeros(values: pa.Array) -> Mask:
    """Return which records may contain a number that pyarrow reads as a decimal of zero."""
    return _to_mask(pc.match_substring_regex(values, _MAY_VANISH))


def find_possible_overflows(rows: pa.Table, values: pa.Array) -> Mask:
    """Return which rows contain an infinity that may be a finite number in the record.

    Args:
        rows: the decoded rows.
        values: the record of each row.
    """
    found = np.zeros(rows.num_rows, np.bool_)
    for column in rows.columns:
        for chunk in column.chunks:
            if _holds_infinity(chunk):
                assert column.num_chunks == 1, column.num_chunks
                found |= _find_infinities(chunk)
    suspects = np.flatnonzero(found)
    if len(suspects):
        texts = values.take(pa.array(suspects))
        found[suspects] = _to_mask(pc.match_substring_regex(texts, _MAY_OVERFLOW))
    return found


def _holds_infinity(column: pa.Array) -> bool:
    if pa.types.is_struct(column.type):
        return any(_holds_infinity(column.field(n)) for n in range(column.type.num_fields))
    if pa.types.is_list(column.type):
        return _holds_infinity(column.values)
    return pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py() is True


def _find_infinities(column: pa.Array) -> Mask:
    """Return which values are an infinity or contain one."""
    found = np.zeros(len(column), np.bool_)
    if pa.types.is_struct(column.type):
        for number in range(column.type.num_fields):
            found |= _find_infinities(column.field(number))
    elif pa.types.is_list(column.type):
        inside = _find_infinities(column.values)
        found[pc.list_parent_indices(column).to_numpy()[inside]] = True
    elif pa.types.is_floating(column.type):
        found = _to_mask(pc.is_inf(column).fill_null(False))
    return found


def _to_mask(booleans: pa.Array) -> Mask:
    mask: Mask = booleans.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask
