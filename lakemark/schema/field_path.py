"""Finds columns by field name. A name with dots is the path of a field inside structs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig


def column_at(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the column ``name``, or for ``a.b`` the field ``b`` of the struct column ``a``.

    Raises:
        InvalidConfig: there is no such column.
    """
    if name in rows.column_names:
        return rows.column(name)
    head, *rest = name.split(".")
    if head in rows.column_names:
        try:
            return pc.struct_field(rows.column(head), rest)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, KeyError):
            pass
    message = f"field {name!r} is not among the columns {', '.join(rows.column_names)}"
    raise InvalidConfig(message)


def top_column(name: str, schema: pa.Schema) -> str:
    """Return the column that contains a field: the field itself, or its outermost struct."""
    return name if name in schema.names else name.partition(".")[0]
