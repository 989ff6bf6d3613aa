"""Compares two columns value by value.

Two nulls are equal, and so are two NaN. A null differs from every value, also from an empty text,
list or struct. -0.0 equals 0.0. The entries of a map have no order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Whether the values at each position are equal.
Equal: TypeAlias = npt.NDArray[np.bool_]


def equal_values(one: pa.Array, other: pa.Array) -> Equal:
    """Return whether the values at each position are equal.

    Args:
        one: the values of one side.
        other: as many values of the same type.
    """
    assert one.type == other.type, (one.type, other.type)
    assert len(one) == len(other), (len(one), len(other))
    nulls, other_nulls = _bits(one.is_null()), _bits(other.is_null())
    equal: Equal = nulls & other_nulls
    both = np.flatnonzero(~nulls & ~other_nulls)
    if len(both):
        equal[both] = _equal_valid(one.take(pa.array(both)), other.take(pa.array(both)))
    return equal


def all_equal(count: int, parts: Iterable[Equal]) -> Equal:
    """Return for each of ``count`` positions whether all parts are equal."""
    equal: Equal = np.ones(count, np.bool_)
    for part in parts:
        equal &= part
    return equal


def _equal_valid(one: pa.Array, other: pa.Array) -> Equal:
    """Compare values that are not null."""
    kind = one.type
    if pa.types.is_struct(kind):
        fields = [
            equal_values(pc.struct_field(one, [n]), pc.struct_field(other, [n]))
            for n in range(kind.num_fields)
        ]
        return all_equal(len(one), fields)
    if pa.types.is_map(kind):
        return _equal_lists(one, other, is_map=True)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _equal_lists(one, other, is_map=False)
    if pa.types.is_null(kind):
        return np.ones(len(one), np.bool_)
    equal = _bits(pc.equal(one, other))
    if pa.types.is_floating(kind):
        equal |= _bits(pc.is_nan(one)) & _bits(pc.is_nan(other))
    return equal


def _equal_lists(one: pa.Array, other: pa.Array, *, is_map: bool) -> Equal:
    """Compare lists, or maps after their entries were sorted by key."""
    lengths, other_lengths = _lengths(one), _lengths(other)
    equal: Equal = lengths == other_lengths
    rows = np.flatnonzero(equal & (lengths > 0))
    if not len(rows):
        return equal
    picked = pa.array(rows)
    owners = np.repeat(rows, lengths[rows])
    sides = [_elements(side.take(picked), is_map=is_map) for side in (one, other)]
    for left, right in zip(*sides, strict=True):
        equal[owners[~equal_values(left, right)]] = False
    return equal


def _elements(lists: pa.Array, *, is_map: bool) -> list[pa.Array]:
    """Return the elements of all lists; of maps, the keys and the items of the sorted entries."""
    if not is_map:
        return [lists.flatten()]
    # ``take`` has copied the maps, so the entries before the first offset belong to no map.
    begin, end = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    keys, items = lists.keys.slice(begin, end - begin), lists.items.slice(begin, end - begin)
    owners = np.repeat(np.arange(len(lists)), _lengths(lists))
    order = pc.sort_indices(
        pa.table({"owner": owners, "key": keys}),
        sort_keys=[("owner", "ascending"), ("key", "ascending")],
    )
    return [keys.take(order), items.take(order)]


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of elements of each list or map, none of which is null."""
    lengths: npt.NDArray[np.int64] = np.diff(np.asarray(lists.offsets)).astype(np.int64)
    return lengths


def _bits(values: pa.Array) -> Equal:
    return np.array(values.to_numpy(zero_copy_only=False), np.bool_)
