"""Rows of Arrow as values of Python, for people to read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def python_values(values: pa.Array | pa.ChunkedArray) -> list[object]:
    """Return the values; see ``python_value``."""
    try:
        found: list[object] = values.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):  # a time outside the years 1 to 9999
        return [python_value(one) for one in values]
    return found


def python_rows(batch: pa.RecordBatch | pa.Table) -> list[dict[str, object]]:
    """Return the rows; see ``python_value``."""
    try:
        rows: list[dict[str, object]] = batch.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):  # a time outside the years 1 to 9999
        return [_python_row(batch, row) for row in range(batch.num_rows)]
    return rows


def _python_row(batch: pa.RecordBatch | pa.Table, row: int) -> dict[str, object]:
    names = batch.schema.names
    return {name: python_value(batch.column(at)[row]) for at, name in enumerate(names)}


def python_value(value: pa.Scalar) -> object:
    """Return the Python value; a time outside Python's range becomes text in the same format."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.MapScalar):
        keys, values = value.values.flatten()
        pairs = zip(keys, values, strict=True)
        return {str(python_value(key)): python_value(one) for key, one in pairs}
    if isinstance(value, pa.StructScalar):
        return {name: python_value(one) for name, one in value.items()}
    if isinstance(value, pa.ListScalar):
        return [python_value(one) for one in value]
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return _wide_time(value)


def _wide_time(value: pa.Scalar) -> str:
    """Return a time outside the years 1 to 9999 as text. Arrow itself writes wrong large years."""
    kind = value.type
    if pa.types.is_timestamp(kind):
        return _padded(np.datetime64(value.value, kind.unit)) + ("+00:00" if kind.tz else "")
    if pa.types.is_date32(kind):
        return _padded(np.datetime64(value.value, "D"))
    text: str = value.cast(pa.string()).as_py()
    return text


def _padded(moment: np.datetime64) -> str:
    """Return a time in ISO format, with at least four digits of a year before the year 0, too."""
    text = str(moment)
    if not text.startswith("-"):
        return text
    year, _, rest = text[1:].partition("-")
    return f"-{year:0>4}-{rest}"
