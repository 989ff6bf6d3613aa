"""Finds numbers that pyarrow may have read as infinity or zero, because they are out of range.

pyarrow refuses 1e400 as a ``double``. But it reads 99e307, and an integer of 400 digits, as
infinity. As a decimal, it reads some of the smallest numbers as zero, such as 2.6e-193.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]

_IsKind = Callable[[pa.DataType], bool]
_Test = Callable[[pa.Array], pa.Array]

#: A ``double`` is below 1.8e308, so a number that overflows has 309 digits in a row or an exponent.
_MAY_OVERFLOW = r"[0-9]{309}|[0-9][eE]\+?[0-9]"

#: pyarrow divides a decimal by a power of ten, and has these powers up to 10^76 only. A number with
#: 17 digits or fewer after the point and an exponent of at least -59 needs no higher one.
_MAY_VANISH = r"[0-9]{18}[eE]-|[eE]-0*([6-9][0-9]|[1-9][0-9]{2})"


def find_possible_zeros(rows: pa.Table, values: pa.Array) -> Mask:
    """Return which rows contain a decimal of zero that may be another number in the record.

    Args:
        rows: the decoded rows.
        values: the record of each row.
    """
    return _find_suspects(rows, values, pa.types.is_decimal, _is_zero, _MAY_VANISH)


def find_possible_overflows(rows: pa.Table, values: pa.Array) -> Mask:
    """Return which rows contain an infinity that may be a finite number in the record.

    Args:
        rows: the decoded rows.
        values: the record of each row.
    """
    return _find_suspects(rows, values, pa.types.is_floating, pc.is_inf, _MAY_OVERFLOW)


def _find_suspects(
    rows: pa.Table, values: pa.Array, is_kind: _IsKind, test: _Test, pattern: str
) -> Mask:
    """Return which rows contain a value that passes a test, and have a record with a pattern.

    Few rows contain such a value, so few records are searched, which takes much longer.
    """
    found = np.zeros(rows.num_rows, np.bool_)
    for column in rows.columns:
        for chunk in column.chunks:
            if _holds(chunk, is_kind, test):
                assert column.num_chunks == 1, column.num_chunks
                found |= _find(chunk, is_kind, test)
    suspects = np.flatnonzero(found)
    if len(suspects):
        texts = values.take(pa.array(suspects))
        found[suspects] = _to_mask(pc.match_substring_regex(texts, pattern))
    return found


def _is_zero(decimals: pa.Array) -> pa.Array:
    return pc.equal(decimals, pa.scalar(0, decimals.type))


def _holds(column: pa.Array, is_kind: _IsKind, test: _Test) -> bool:
    if pa.types.is_struct(column.type):
        return any(_holds(column.field(n), is_kind, test) for n in range(column.type.num_fields))
    if pa.types.is_list(column.type):
        return _holds(column.values, is_kind, test)
    return is_kind(column.type) and pc.any(test(column)).as_py() is True


def _find(column: pa.Array, is_kind: _IsKind, test: _Test) -> Mask:
    """Return which values pass a test or contain one that does."""
    found = np.zeros(len(column), np.bool_)
    if pa.types.is_struct(column.type):
        for number in range(column.type.num_fields):
            found |= _find(column.field(number), is_kind, test)
    elif pa.types.is_list(column.type):
        inside = _find(column.values, is_kind, test)
        found[pc.list_parent_indices(column).to_numpy()[inside]] = True
    elif is_kind(column.type):
        found = _to_mask(test(column).fill_null(False))
    return found


def _to_mask(booleans: pa.Array) -> Mask:
    mask: Mask = booleans.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask
