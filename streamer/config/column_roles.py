"""Checks the types of ordering columns and partition columns.

Declared columns are checked when a pipeline file is loaded. Inferred columns, and those of an Avro
schema or an existing table, are checked when a run starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.keygen.partition_expressions import check_folder_of, with_expression_columns
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
            f"{column!r} is of type {kind}, so nearly every row would get its own folder; write "
            f"day({column}), or month({column}) or hour({column})"
        )
        yield Problem("table.partition_by", text)


def expression_problems(table: TableConfig, columns: pa.Schema | None) -> Iterator[Problem]:
    """Yield problems of the expressions in ``table.partition_by`` of a new table.

    Args:
        table: the table's settings.
        columns: the columns of the rows, without those that store expressions; expressions of
            columns that are not among them are skipped. None if the columns are not known yet.
    """
    for field in (one for one in table.partition_fields if one.is_expression):
        if not field.is_storable_expression:
            text = (
                f"{field} has a time zone, which is for existing tables only; the folders of a new "
                "table are in UTC, so omit the time zone"
            )
            yield Problem("table.partition_by", text)
            continue
        try:
            check_folder_of(field, url_encode=table.url_encode)
            if columns is not None and _type_of(columns, field.column) is not None:
                with_expression_columns(columns, [field])
        except InvalidConfig as error:
            yield Problem("table.partition_by", str(error).removeprefix("partition_by "))


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
