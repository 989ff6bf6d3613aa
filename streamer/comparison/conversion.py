"""Converts columns to the type in which they are compared."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def convert(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert values to a type that can store them, or that is the same nested type.

    The fields of structs are matched by name, so their order may differ. Arrow's cast matches them
    by position.
    """
    if values.type.equals(wanted):
        return values
    if pa.types.is_struct(wanted):
        fields = [convert(pc.struct_field(values, [one.name]), one.type) for one in wanted]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=values.is_null())
    if pa.types.is_map(wanted):
        return _convert_map(values, wanted)
    if pa.types.is_list(wanted):
        elements = convert(values.flatten(), wanted.value_type)
        lengths = pc.fill_null(pc.list_value_length(values), 0)
        mask = values.is_null()
        return pa.ListArray.from_arrays(_offsets(lengths), elements, type=wanted, mask=mask)
    return values.cast(wanted, safe=False)  # integers beyond 2**53 become the nearest double


def _convert_map(maps: pa.Array, wanted: pa.MapType) -> pa.Array:
    plain = maps.take(pa.array(np.arange(len(maps))))  # its entries are those of its maps only
    offsets = plain.offsets.to_numpy(zero_copy_only=False)
    begin, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = convert(plain.keys.slice(begin, count), wanted.key_type)
    items = convert(plain.items.slice(begin, count), wanted.item_type)
    moved = pa.array(offsets - begin, pa.int32())
    return pa.MapArray.from_arrays(moved, keys, items, type=wanted, mask=plain.is_null())


def _offsets(lengths: pa.Array) -> pa.Array:
    ends = np.cumsum(lengths.to_numpy(zero_copy_only=False))
    return pa.array(np.concatenate([[0], ends]), pa.int32())
