"""Derives, from the path of a partition, a condition that all rows of the partition meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from functools import reduce
from operator import and_
from types import MappingProxyType
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.partition_field import PartitionField
from lakemark.keygen.partition_path import DEFAULT_PARTITION, OLD_DEFAULT_PARTITION
from lakemark.model.meta_columns import PARTITION_PATH
from lakemark.read.expression_pruning import column_guarantee, null_guarantee


def partition_guarantee(
    path: str,
    folders: Sequence[str],
    fields: Sequence[str],
    schema: pa.Schema,
    *,
    is_url_encoded: bool,
    is_hive_style: bool,
    expressions: Mapping[str, PartitionField] = MappingProxyType({}),
) -> pc.Expression:
    """Return an expression that is true for every row of a partition.

    Args:
        path: path of the partition from the table's root.
        folders: the folders of the path, or other texts that name the values of the partition
            columns.
        fields: partition columns whose values are the folders of the path; empty if a folder is not
            the plain value of a column, as with key generators for timestamps.
        schema: the table's columns.
        is_url_encoded: whether special characters in the path are written ``%XX``.
        is_hive_style: whether folders are named ``field=value``. In other tables a folder that
            begins with ``field=`` implies nothing, because this may be the beginning of a value.
        expressions: for partition columns that store an expression: the expression, if all rows of
            the table have its value.
    """
    known = [pc.field(PARTITION_PATH) == path] if PARTITION_PATH in schema.names else []
    if len(folders) == len(fields):
        for name, folder in zip(fields, folders, strict=True):
            if folder.startswith(f"{name}=") and not is_hive_style:
                continue
            text = folder.removeprefix(f"{name}=")
            value = unquote(text) if is_url_encoded else text
            known += _value_guarantee(name, value, schema)
            if name in expressions:
                known += _expression_guarantee(expressions[name], value, schema)
    return reduce(and_, known, pc.scalar(True))


def _expression_guarantee(
    field: PartitionField, text: str, schema: pa.Schema
) -> list[pc.Expression]:
    if text == DEFAULT_PARTITION:
        return null_guarantee(field, schema)
    return column_guarantee(field, text, schema)


def _value_guarantee(name: str, text: str, schema: pa.Schema) -> list[pc.Expression]:
    if name not in schema.names:
        return []
    column, data_type = pc.field(name), schema.field(name).type
    if text in (DEFAULT_PARTITION, OLD_DEFAULT_PARTITION):
        nothing = column.is_null()
        return [nothing | column.isin(["", text])] if data_type == pa.string() else [nothing]
    try:
        value = _parse_value(text, data_type)
    except (ValueError, pa.ArrowInvalid):
        return []
    return [] if value is None else [column == value]


def _parse_value(text: str, data_type: pa.DataType) -> pa.Scalar | None:
    """Return the value of a folder name; None if a value of the type has several spellings."""
    if data_type == pa.string():
        return pa.scalar(text)
    if pa.types.is_integer(data_type):
        return pa.scalar(int(text), data_type)
    if pa.types.is_date32(data_type):
        return pa.scalar(date.fromisoformat(text))
    return None
