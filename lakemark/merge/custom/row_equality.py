"""Compares the rows of two tables, including nested values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.merge.key_codes import Mask


def equal_rows(one: pa.Table, other: pa.Table) -> Mask:
    """Return for each row whether all columns are equal; null equals null, and NaN equals NaN.

    Args:
        one: a table.
        other: a table with the same columns and the same number of rows.
    """
    same: Mask = np.ones(one.num_rows, np.bool_)
    for left, right in zip(one.columns, other.columns, strict=True):
        same &= _same(_whole(left), _whole(right))
    return same


def _same(one: pa.Array, other: pa.Array) -> Mask:
    nulls, other_nulls = (np.asarray(values.is_null()) for values in (one, other))
    if pa.types.is_null(one.type):
        equal: Mask = np.ones(len(one), np.bool_)
    elif pa.types.is_struct(one.type):
        equal = np.ones(len(one), np.bool_)
        for position in range(one.type.num_fields):
            equal &= _same(pc.struct_field(one, [position]), pc.struct_field(other, [position]))
    elif pa.types.is_list(one.type) or pa.types.is_map(one.type):
        equal = _same_lists(_as_list(one), _as_list(other))
    else:
        equal = _flags(pc.equal(one, other))
        if pa.types.is_floating(one.type):
            equal |= _flags(pc.and_(pc.is_nan(one), pc.is_nan(other)))
    same: Mask = (nulls & other_nulls) | (~nulls & ~other_nulls & equal)
    return same


def _same_lists(one: pa.Array, other: pa.Array) -> Mask:
    """Return which lists have the same length and equal items; a null list counts as empty."""
    lengths, other_lengths = (
        np.asarray(pc.fill_null(pc.list_value_length(lists), 0)) for lists in (one, other)
    )
    equal: Mask = lengths == other_lengths
    rows = np.flatnonzero(equal & (lengths > 0))
    items, other_items = (pc.list_flatten(lists.take(pa.array(rows))) for lists in (one, other))
    row_of_item = np.repeat(rows, lengths[rows])
    equal[row_of_item[~_same(items, other_items)]] = False
    return equal


def _as_list(values: pa.Array) -> pa.Array:
    if not pa.types.is_map(values.type):
        return values
    kind = pa.struct([values.type.key_field, values.type.item_field])
    return values.cast(pa.list_(pa.field("entries", kind, nullable=False)))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _flags(values: pa.Array) -> Mask:
    mask: Mask = np.asarray(pc.fill_null(values, fill_value=False)).astype(np.bool_)
    return mask
