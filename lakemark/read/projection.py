"""Converts rows of an older schema to the columns of the current schema."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from lakemark.errors import CorruptData, InvalidConfig
from lakemark.schema.promotion import promote


def project_schema(schema: pa.Schema, columns: Collection[str]) -> pa.Schema:
    """Return the named columns of a schema, in the schema's order.

    Raises:
        InvalidConfig: the table does not have one of the columns.
    """
    unknown = set(columns) - set(schema.names)
    if unknown:
        missing, present = ", ".join(sorted(unknown)), ", ".join(schema.names)
        message = f"the table has no column {missing}; its columns are {present}"
        tops = sorted({name.partition(".")[0] for name in unknown} & set(schema.names))
        if tops:
            message += f"; a field inside a column is read with the whole column: {tops[0]}"
        else:
            message += _suggestion(unknown, schema.names)
        raise InvalidConfig(message)
    return pa.schema([field for field in schema if field.name in columns])


def _suggestion(unknown: Collection[str], names: Collection[str]) -> str:
    import difflib  # only for errors

    by_lower_case = {name.lower(): name for name in names}
    near = [
        match
        for one in sorted(unknown)
        for match in difflib.get_close_matches(one.lower(), by_lower_case, n=1)
    ]
    return f"; did you mean {by_lower_case[near[0]]}?" if near else ""


def conform(rows: pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    """Convert rows to the columns of ``schema``: types are widened, missing columns are null.

    Args:
        rows: rows of a file.
        schema: the table's current schema.
        path: path of the file, for errors.

    Raises:
        CorruptData: values of a column do not fit its current type.
    """
    if rows.schema.equals(schema):
        return rows
    columns = [_column(rows, field, path) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(rows: pa.Table, field: pa.Field, path: str) -> pa.ChunkedArray | pa.Array:
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    try:
        return promote(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        expected = f"a column {field.name!r} that fits {field.type}"
        raise CorruptData(path, None, expected, f"{column.type}: {error}") from error
