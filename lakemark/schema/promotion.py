"""Converts values of older files, in which a column had another type, to its current type.

Apache Hudi promotes integers to wider integers, floats, decimals and strings. It promotes floats to
doubles, strings to bytes, bytes to strings, and dates and decimals to strings. Values inside lists,
maps and structs are promoted in the same way. Fields of structs are matched by name. A field that
the older file lacks becomes null, and a field that the current type lacks is omitted.
``lakemark.model.widening`` converts values that are not nested.

Source: ``HoodieAvroUtils.rewritePrimaryTypeWithDiffSchemaType`` and
``HoodieParquetFileFormatHelper`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import pyarrow as pa

from lakemark.errors import Unsupported
from lakemark.model.widening import widen


def promote(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Promote the values of a column to another type.

    Raises:
        Unsupported: the promotion is from floats to strings, and engines print floats differently.
        pyarrow.ArrowException: a value does not fit the type, or there is no such promotion.
    """
    if column.type.equals(wanted):
        return column
    return pa.chunked_array([_promote(chunk, wanted) for chunk in column.chunks], wanted)


def _promote(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    stored = values.type
    if stored.equals(wanted):
        return values
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        return _struct(values, wanted)
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return _with_items(values, wanted, _promote(values.values, wanted.value_type))
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return _with_items(values, wanted, _entries(values, wanted))
    return _leaf(values, wanted)


def _struct(values: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    positions = {field.name: at for at, field in enumerate(values.type)}
    children = [
        _promote(values.field(positions[field.name]), field.type)
        if field.name in positions
        else pa.nulls(len(values), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=values.is_null())


def _entries(values: pa.MapArray, wanted: pa.MapType) -> pa.StructArray:
    children = [
        _promote(values.keys, wanted.key_type),
        _promote(values.items, wanted.item_type),
    ]
    return pa.StructArray.from_arrays(children, fields=[wanted.key_field, wanted.item_field])


def _with_items(values: pa.Array, wanted: pa.DataType, child: pa.Array) -> pa.Array:
    """Return the lists or maps of ``values`` with their items replaced by ``child``."""
    validity_and_offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(values), validity_and_offsets, offset=values.offset, children=[child]
    )


def _leaf(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    stored = values.type
    if pa.types.is_floating(stored) and pa.types.is_string(wanted):
        message = (
            f"a column has changed from {stored} to {wanted}, but engines print such numbers "
            "differently; rewrite the older files with the Hudi that wrote them"
        )
        raise Unsupported(message)
    return widen(values, wanted)
