"""Checks which columns a table may have."""

from __future__ import annotations

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import META_COLUMNS
from lakemark.schema.canonical import canonical


def check_columns(schema: pa.Schema) -> pa.Schema:
    """Check the columns of a new table; return the schema with the types that the table stores.

    ``lakemark.schema.canonical`` converts the types.

    Raises:
        InvalidConfig: there is no column, or a table cannot store the name or the type of a column.
            Avro must allow the name, and it must not be the name of one of Hudi's meta columns.
            Names must not differ only by case, because Spark cannot tell such columns apart.
    """
    if not isinstance(schema, pa.Schema):
        message = f"schema is {schema!r}; pass a pyarrow.Schema"
        raise InvalidConfig(message)
    if not schema.names:
        message = "a schema needs at least one column"
        raise InvalidConfig(message)
    for name in schema.names:
        if name in META_COLUMNS:
            message = f"column {name!r} is one of the columns that Hudi itself adds; leave it out"
            raise InvalidConfig(message)
    _check_case((), list(schema))
    return canonical(schema)


def _check_case(path: tuple[str, ...], fields: list[pa.Field]) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        if (other := seen.setdefault(field.name.lower(), field.name)) != field.name:
            columns = [".".join((*path, name)) for name in (other, field.name)]
            message = f"columns {columns[0]!r} and {columns[1]!r} differ only by case; rename one"
            raise InvalidConfig(message)
        nested = field.type
        while pa.types.is_list(nested):
            nested = nested.value_type
        if pa.types.is_struct(nested):
            _check_case((*path, field.name), list(nested))
