"""Writes the values of renamed fields to the columns that have the fields' old names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.reject_reason import RejectCode, RejectReason

Mask = npt.NDArray[np.bool_]


def fold_aliases(
    rows: pa.Table, aliases: Mapping[str, str]
) -> tuple[pa.Table, dict[int, RejectReason]]:
    """Fill the nulls of columns with the values of their aliases, and drop the aliases.

    Args:
        rows: the columns and their aliases.
        aliases: the column of each alias.

    Returns:
        The rows; and for each row number whose values differ under the two names, the reason to
        reject the row.
    """
    conflicts: dict[int, RejectReason] = {}
    for alias, name in aliases.items():
        own, other = rows.column(name).combine_chunks(), rows.column(alias).combine_chunks()
        for row in np.flatnonzero(_differ(own, other)).tolist():
            conflicts.setdefault(row, conflict_reason(name, alias))
        if other.null_count < len(other):
            filled = pc.if_else(own.is_valid(), own, other) if own.null_count else own
            rows = rows.set_column(rows.schema.get_field_index(name), rows.field(name), filled)
    return rows.drop_columns(list(aliases)), conflicts


def conflict_reason(column: str, alias: str) -> RejectReason:
    """Return why a record with different values for a column and its alias is rejected."""
    text = f"column {column!r}: it has another value than its alias {alias!r}"
    return RejectReason(RejectCode.INVALID_VALUE, text, column)


def _differ(one: pa.Array, other: pa.Array) -> Mask:
    """Return which rows have different values in the two columns."""
    both: Mask = pc.and_(one.is_valid(), other.is_valid()).to_numpy(zero_copy_only=False)
    if not both.any():
        return both
    indices = np.flatnonzero(both)
    found = np.zeros(len(one), np.bool_)
    found[indices] = _unequal(one.take(pa.array(indices)), other.take(pa.array(indices)))
    return found


def _unequal(ones: pa.Array, others: pa.Array) -> Mask:
    if pa.types.is_nested(ones.type):
        # Values under both names are rare, and pyarrow cannot compare nested values.
        pairs = zip(ones, others, strict=True)
        return np.array([not one.equals(other) for one, other in pairs], np.bool_)
    unequal: Mask = pc.not_equal(ones, others).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(ones.type):
        both_nan = pc.and_(pc.is_nan(ones), pc.is_nan(others))
        unequal &= ~both_nan.to_numpy(zero_copy_only=False)
    return unequal
