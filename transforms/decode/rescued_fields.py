"""Collects the unknown fields of rows as JSON, for the rescue column.

Only the unknown fields of a struct are kept. An array or map that contains unknown fields is kept
as a whole. So is a column whose value does not fit its type. Null counts as absent. Bytes are
written as Base64, decimals as text with all digits, dates and times as ISO 8601.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa

from lakemark.model.python_values import python_values


def rescue_texts(
    rows: pa.Table, schema: pa.Schema, whole: Sequence[Collection[str]]
) -> list[str | None]:
    """Return the rescued text of each row; None for a row without unknown fields.

    Args:
        rows: the rows as they were written.
        schema: the known columns.
        whole: for each row, the columns that are kept as a whole.
    """
    known = {field.name: field.type for field in schema}
    listed = [f for f in rows.schema if f.name not in known or _has_more(f.type, known[f.name])]
    chosen = {f.name for f in listed}.union(*whole)
    # In the writer's order: the order of a set differs between processes, and two attempts to write
    # a batch must write the same bytes.
    types = {field.name: field.type for field in rows.schema if field.name in chosen}
    columns = {name: python_values(rows.column(name)) for name in types}
    return [_rescue_row(row, columns, types, known, kept) for row, kept in enumerate(whole)]


def _rescue_row(
    row: int,
    columns: Mapping[str, list[object]],
    types: Mapping[str, pa.DataType],
    known: Mapping[str, pa.DataType],
    whole: Collection[str],
) -> str | None:
    kept = {}
    for name, values in columns.items():
        wanted = None if name in whole else known.get(name)
        part = _unknown_part(values[row], types[name], wanted)
        if part is not None:
            kept[name] = part
    return json.dumps(kept, default=_to_json, ensure_ascii=False) if kept else None


def _unknown_part(value: object, stored: pa.DataType, known: pa.DataType | None) -> object:
    """Return the unknown part of a value; None if everything is known."""
    if known is None or value is None:
        return value
    if isinstance(value, dict) and pa.types.is_struct(stored) and pa.types.is_struct(known):
        types = {field.name: field.type for field in known}
        parts = {
            field.name: _unknown_part(value[field.name], field.type, types.get(field.name))
            for field in stored
        }
        return {name: part for name, part in parts.items() if part is not None} or None
    return value if _has_more(stored, known) else None


def _has_more(stored: pa.DataType, known: pa.DataType) -> bool:
    """Return whether a writer's type has fields that the column's type lacks, at any depth."""
    if pa.types.is_struct(stored) and pa.types.is_struct(known):
        types = {field.name: field.type for field in known}
        return any(f.name not in types or _has_more(f.type, types[f.name]) for f in stored)
    if pa.types.is_list(stored) and pa.types.is_list(known):
        return _has_more(stored.value_type, known.value_type)
    if pa.types.is_map(stored) and pa.types.is_map(known):
        return _has_more(stored.item_type, known.item_type)
    return False


def _to_json(value: object) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    assert isinstance(value, Decimal), value
    return str(value)
