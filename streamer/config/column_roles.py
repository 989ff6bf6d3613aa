"""Checks the types of ordering columns and partition columns.

Declared columns are checked when a pipeline file is loaded. Inferred columns, and those of an Avro
schema or an existing table, are checked when a run starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.schema.field_path import column_at
from streamer.config.errors import Problem
from streamer.config.table import TableConfig


def ordering_type_problems(columns: pa.Schema, table: TableConfig) -> Iterator[Problem]:
    """Yield a problem for each column in ``table.ordering`` that must not be text or binary.

    Args:
        columns: the columns of the rows; ordering columns that are not among them are skipped.
        table: the table's settings.
    """
    for column, kind in _columns_of_kind(columns, table.untrusted_ordering(), _is_text):
        text = (
            f"{column!r} is of type {kind}, and text is compared character by character: "
            "'10:00+05:00' counts as newer than '08:00Z'; order by a timestamp, a date or a "
            "number (decode.schema can declare ISO-8601 text of JSON as timestamp), or set "
            "table.allow_text_ordering: true if the characters are in the order of the events"
        )
        yield Problem("table.ordering", text)
    for column, _ in _columns_of_kind(columns, table.ordering, pa.types.is_binary):
        text = (
            f"{column!r} is binary, and Apache Hudi 1.2.0 cannot read a log of such a table; "
            "order by a number, a date or a timestamp"
        )
        yield Problem("table.ordering", text)


def timestamp_partition_problems(columns: pa.Schema, table: TableConfig) -> Iterator[Problem]:
    """Yield problems of timestamp columns in ``table.partition_by``.

    Args:
        columns: the columns of the rows; partition columns that are not among them are skipped.
        table: the table's settings.
    """
    for column, kind in _columns_of_kind(columns, table.partition_by, pa.types.is_timestamp):
        text = (
            f"{column!r} is of type {kind}, so nearly every row would get its own folder; "
            "name a column with few distinct values, such as a date"
        )
        yield Problem("table.partition_by", text)


def time_folder_problems(table: TableConfig) -> Iterator[Problem]:
    """Yield a problem for each formatted time in ``table.partition_by`` of a new table.

    Apache Hudi 1.2.0 takes the folder for the value of the column, so its queries miss rows.
    """
    for field in table.partition_fields:
        if field.pattern is not None:
            text = (
                f"{field} is for existing tables only, because queries of Apache Hudi 1.2.0 that "
                f"filter such a table by {field.column} miss rows; name a column with few distinct "
                "values, such as a date"
            )
            yield Problem("table.partition_by", text)


def _columns_of_kind(
    columns: pa.Schema, names: Iterable[str], is_kind: Callable[[pa.DataType], bool]
) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the named columns of one kind, with their types; missing columns are skipped."""
    for name in names:
        kind = _type_of(columns, name)
        if kind is not None and is_kind(kind):
            yield name, kind


def _is_text(kind: pa.DataType) -> bool:
    is_text: bool = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return is_text


def _type_of(columns: pa.Schema, name: str) -> pa.DataType | None:
    try:
        return column_at(columns.empty_table(), name).type
    except InvalidConfig:
        return None
