"""Types of fields by their names."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def field_types(fields: Iterable[pa.Field]) -> dict[str, pa.DataType]:
    """The types of a schema's columns, or of a struct's fields."""
    return {field.name: field.type for field in fields}
