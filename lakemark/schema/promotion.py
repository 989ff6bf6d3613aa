"""Values of a column's older type in the type that the column has now.

What Apache Hudi promotes: integers to wider ones, to floats, decimals and strings; floats to
doubles; strings and bytes to each other; dates and decimals to strings; and so on inside lists,
maps and structs, whose fields go by name: new ones are null, dropped ones are left out. Source:
``HoodieAvroUtils.rewritePrimaryTypeWithDiffSchemaType`` and ``HoodieParquetFileFormatHelper`` of
Apache Hudi 1.2.0. Plain values are widened by ``lakemark.model.widening``.
"""

from __future__ import annotations

import pyarrow as pa

from lakemark.errors import Unsupported
from lakemark.model.widening import widen


def promoted(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """The values in another type.

    Raises:
        Unsupported: numbers with a fraction that became strings, which every engine writes its way.
        pyarrow.ArrowException: values that do not fit the type, or a type that no value fits.
    """
    if column.type.equals(wanted):
        return column
    return pa.chunked_array([_promoted(chunk, wanted) for chunk in column.chunks], wanted)


def _promoted(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    stored = values.type
    if stored.equals(wanted):
        return values
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        return _struct(values, wanted)
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return _over(values, wanted, _promoted(values.values, wanted.value_type))
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return _over(values, wanted, _entries(values, wanted))
    return _leaf(values, wanted)


def _struct(values: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    places = {field.name: place for place, field in enumerate(values.type)}
    children = [
        _promoted(values.field(places[field.name]), field.type)
        if field.name in places
        else pa.nulls(len(values), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=values.is_null())


def _entries(values: pa.MapArray, wanted: pa.MapType) -> pa.StructArray:
    children = [
        _promoted(values.keys, wanted.key_type),
        _promoted(values.items, wanted.item_type),
    ]
    return pa.StructArray.from_arrays(children, fields=[wanted.key_field, wanted.item_field])


def _over(values: pa.Array, wanted: pa.DataType, child: pa.Array) -> pa.Array:
    """The lists or maps of ``values`` over other items."""
    validity_and_offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(values), validity_and_offsets, offset=values.offset, children=[child]
    )


def _leaf(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    stored = values.type
    if pa.types.is_floating(stored) and pa.types.is_string(wanted):
        message = (
            f"a column of {stored} has become {wanted}: engines print such numbers differently; "
            "let the Hudi that wrote the older files rewrite them"
        )
        raise Unsupported(message)
    return widen(values, wanted)
