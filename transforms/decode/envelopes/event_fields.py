"""The fields of an event, other than its rows, that become columns.

A column has the name of its field after an underscore: ``source.lsn`` becomes ``_source_lsn``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

#: The types of fields by their dotted names.
FieldTypes = Mapping[str, pa.DataType]


def column_name(field: str) -> str:
    """Return the name of the column that a field fills."""
    return "_" + field.replace(".", "_").replace("-", "_")


def columns_of(fields: Iterable[str], types: FieldTypes) -> list[pa.Field]:
    """Return the columns that fields fill."""
    return [pa.field(column_name(name), types[name]) for name in fields]


def event_fields(fields: Iterable[str], types: FieldTypes) -> list[pa.Field]:
    """Return the fields of an event that contain some fields, each once, with their structs."""
    tops: dict[str, dict[str, pa.Field]] = {}
    for name in fields:
        top, _, inner = name.partition(".")
        tops.setdefault(top, {})[inner] = pa.field(inner, types[name])
    return [
        next(iter(inner.values())).with_name(top) if "" in inner else _struct(top, inner)
        for top, inner in tops.items()
    ]


def value_of(events: pa.Table, field: str) -> pa.Array:
    """Return the values of a field of events, in one chunk."""
    top, _, inner = field.partition(".")
    values = one_chunk(events.column(top))
    return pc.struct_field(values, inner) if inner else values


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _struct(name: str, inner: Mapping[str, pa.Field]) -> pa.Field:
    return pa.field(name, pa.struct(list(inner.values())))
