"""Checks the types of ordering columns, partition columns and columns with statistics.

Declared columns are checked when a pipeline file is loaded. Inferred columns, and those of an Avro
schema or an existing table, are checked when a run starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.keygen.partition_expressions import check_folder_of, with_expression_columns
from lakemark.keygen.slash_separated_dates import check_date_column
from lakemark.model.format_version import FormatVersion
from lakemark.operations.create_checks import check_statistics_columns
from lakemark.schema.field_path import column_at
from streamer.config.errors import ConfigError, Problem
from streamer.config.table import TableConfig

_LOG = logging.getLogger(__name__)

#: What helps if an ordering column is text.
_OF_NEW_COLUMNS = (
    "order by a timestamp, a date or a number (decode.schema can declare ISO-8601 text of JSON as "
    "timestamp), or set table.allow_text_ordering: true if the characters are in the order of the "
    "events"
)
_OF_STORED_COLUMNS = (
    "the table exists, so the type stays; set table.allow_text_ordering: true if the characters "
    "are in the order of the events, as in times of one format and one time zone"
)


def check_column_roles(columns: pa.Schema, table: TableConfig, *, is_new: bool) -> None:
    """Check the types of the columns that a table's settings name, when a run starts.

    An existing table keeps its partition columns, whatever their types are.

    Args:
        columns: the columns of the rows.
        table: the table's settings.
        is_new: whether the table does not exist, or has no columns yet.

    Raises:
        ConfigError: an ordering column is text, a partition column of a new table is a timestamp,
            or a column of a new table cannot have statistics.
    """
    problems = list(ordering_type_problems(columns, table, is_new=is_new))
    of_partitions = list(timestamp_partition_problems(columns, table))
    if is_new:
        problems += of_partitions
        problems += statistics_problems(columns, table)
    elif of_partitions:
        _LOG.warning("%s; the table exists, so it keeps its partitions", of_partitions[0])
    if problems:
        raise ConfigError(problems)


def ordering_type_problems(
    columns: pa.Schema, table: TableConfig, *, is_new: bool = True
) -> Iterator[Problem]:
    """Yield a problem for each column in ``table.ordering`` that must not be text or binary.

    Args:
        columns: the columns of the rows; ordering columns that are not among them are skipped.
        table: the table's settings.
        is_new: whether the type of a column can still be chosen.
    """
    remedy = _OF_NEW_COLUMNS if is_new else _OF_STORED_COLUMNS
    for column, kind in _columns_of_kind(columns, table.untrusted_ordering(), _is_text):
        text = (
            f"{column!r} is of type {kind}, and text is compared character by character: "
            f"'10:00+05:00' counts as newer than '08:00Z'; {remedy}"
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


def new_column_problems(columns: pa.Schema, table: TableConfig) -> Iterator[Problem]:
    """Yield problems of the types of a new table's columns.

    Args:
        columns: the columns of the rows.
        table: the table's settings.
    """
    yield from timestamp_partition_problems(columns, table)
    yield from statistics_problems(columns, table)


def statistics_problems(columns: pa.Schema, table: TableConfig) -> Iterator[Problem]:
    """Yield a problem if a column in ``table.statistics_columns`` cannot have statistics.

    Args:
        columns: the columns of the rows.
        table: the table's settings.
    """
    try:
        chosen = table.statistics_columns or ()
        check_statistics_columns(chosen, columns, FormatVersion(table.version))
    except InvalidConfig as error:
        yield Problem("table.statistics_columns", str(error))


def partition_problems(table: TableConfig, columns: pa.Schema | None) -> Iterator[Problem]:
    """Yield problems of the partition columns and expressions of a new table.

    Args:
        table: the table's settings.
        columns: the columns of the rows, without those that store expressions; expressions of
            columns that are not among them are skipped. None if the columns are not known yet.
    """
    if table.slash_separated_dates:
        try:
            check_date_column(table.partition_fields, columns, hive_style=table.hive_style)
        except InvalidConfig as error:
            text = str(error).removeprefix("slash_separated_dates ")
            yield Problem("table.slash_separated_dates", text)
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
