"""Checks the settings of a new table before anything is written to storage.

If only the first write refused a setting, the table would already exist with this setting, and
could not be created again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

import pyarrow as pa

from lakemark.codec.ordering_wrappers import wrapper_of
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_spec import TABLE_NAME_PATTERN, TableSpec
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGeneratorConfig
from lakemark.keygen.key_value import key_value
from lakemark.keygen.partition_expressions import check_folder_of
from lakemark.keygen.slash_separated_dates import check_date_column
from lakemark.model.column_ranges import columns_with_order
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.meta_columns import IS_DELETED, OPERATION, is_reserved
from lakemark.operations.table_index import DEFAULT_BUCKETS, ChosenIndex, IndexKind
from lakemark.schema.field_path import column_at, top_column

#: Columns that users may have although their names begin like Hudi's own. They mark deletes.
_COLUMNS_OF_USERS = (IS_DELETED, OPERATION)

Choice = TypeVar("Choice", bound=Enum)


def choose(kind: type[Choice], value: object, parameter: str) -> Choice:
    """Return the member of an enumeration that a caller chose.

    Args:
        kind: the enumeration.
        value: a member, its value, or its name in any case, as in pipeline files: ``event_time``
            is ``MergeMode.EVENT_TIME``.
        parameter: the name of the caller's parameter, for the error.

    Raises:
        InvalidConfig: no member has this value or name.
    """
    try:
        return kind(value)
    except ValueError:
        if isinstance(value, str) and value.upper() in kind.__members__:
            return kind[value.upper()]
    is_text = all(isinstance(one.value, str) for one in kind)
    known = ", ".join(repr(one.name.lower() if is_text else one.value) for one in kind)
    message = f"{parameter} is {value!r}; choose one of {known}"
    raise InvalidConfig(message)


def choose_version(version: object) -> FormatVersion:
    """Return the table version that a caller chose for a table to write.

    Raises:
        InvalidConfig: lakemark writes no such version.
    """
    for written in WRITTEN:
        if version == written:
            return written
    known = ", ".join(f"{written:d}" for written in WRITTEN)
    message = f"version is {version!r}; choose one of {known}"
    raise InvalidConfig(message)


def column_names(given: str | Sequence[str], parameter: str) -> tuple[str, ...]:
    """Return the column names that a caller passed, after a check.

    Args:
        given: the names, or one name.
        parameter: the name of the caller's parameter, for the error.

    Raises:
        InvalidConfig: the argument is not a list of texts, or a name occurs twice.
    """
    names: object = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence):
        message = f"{parameter} is {given!r}; pass a list of column names"
        raise InvalidConfig(message)
    for name in names:
        if not isinstance(name, str) or not name:
            message = f"{parameter} contains {name!r}; name a column"
            raise InvalidConfig(message)
        if names.count(name) > 1:
            message = f"{parameter} names column {name!r} twice; name it once"
            raise InvalidConfig(message)
    return tuple(names)


def _check_name(name: str) -> None:
    if not re.fullmatch(TABLE_NAME_PATTERN, name):
        message = f"the table's name is {name!r}; pass a name of letters, digits, _, . and - only"
        raise InvalidConfig(message)


def choose_index(index: object, buckets: object) -> ChosenIndex:
    """Return the index of a new table.

    Args:
        index: the kind of index that the caller chose.
        buckets: the number of buckets that the caller chose, or the default.

    Raises:
        InvalidConfig: there is no such index; or the number is no integer; or a table with a lookup
            index would get buckets.
    """
    kind = choose(IndexKind, index, "index")
    if kind is IndexKind.LOOKUP:
        if buckets != DEFAULT_BUCKETS:
            message = (
                f"buckets is {buckets!r}, but a table with index='lookup' has no buckets; leave "
                "buckets out, or pass index='bucket'"
            )
            raise InvalidConfig(message)
        return ChosenIndex(kind, None)
    if isinstance(buckets, bool) or not isinstance(buckets, int):
        message = f"buckets is {buckets!r}; pass a positive integer"
        raise InvalidConfig(message)
    return ChosenIndex(kind, buckets)


def check_ordering_types(spec: TableSpec, columns: pa.Schema) -> None:
    """Check that no ordering column contains text. Columns that do not exist are skipped.

    Raises:
        InvalidConfig: an ordering column contains text.
    """
    for name in spec.ordering:
        column = name.partition(".")[0]
        if column not in columns.names:
            continue
        kind = column_at(columns.empty_table(), name).type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            message = (
                f"ordering column {name!r} is text, which is compared character by character: '9' "
                "counts as newer than '10'; order by a number, a date or a timestamp, or pass "
                "allow_text_ordering=True if the characters are in the order of the events"
            )
            raise InvalidConfig(message)


def check_new_table(spec: TableSpec, columns: pa.Schema, index: ChosenIndex, url: str) -> None:
    """Check that lakemark can write a table with these settings and columns.

    The writer's checks are run on a table without rows.

    Args:
        spec: the settings of the table.
        columns: the columns of the table, without meta columns, but with those that store partition
            expressions.
        index: the index of the table.
        url: the table's URL, for errors.

    Raises:
        InvalidConfig: the name has other characters than letters, digits, ``_``, ``.`` and ``-``;
            or a column is missing, or has a name like Hudi's own columns; or a column's type cannot
            be a key, a partition or an ordering value; or the bucket count is not a positive
            integer; or settings contradict each other.
        Unsupported: lakemark does not write tables with one of the settings.
    """
    _check_name(spec.name)
    for name in columns.names:
        if is_reserved(name) and name not in _COLUMNS_OF_USERS:
            message = (
                f"column {name!r} has the prefix of Hudi's own columns, which readers omit; "
                "rename the column"
            )
            raise InvalidConfig(message)
    if not spec.record_key:
        _check_automatic_keys(spec, index)
    _check_buckets(spec, index)
    properties = spec.to_properties()
    nothing = columns.empty_table()
    for name in (*spec.record_key, *spec.stored_partition_columns):
        key_value(nothing, name)
    check_partition_times(spec, columns)
    if spec.slash_separated_dates:
        check_date_column(spec.partition_fields, columns, hive_style=spec.hive_style)
    for name in spec.ordering:
        kind = column_at(nothing, name).type
        wrapper_of(kind)
        if pa.types.is_binary(kind):
            message = (
                f"ordering column {name!r} is binary, and Apache Hudi 1.2.0 cannot read a log of "
                "such a table; order by a number, a date or a timestamp"
            )
            raise InvalidConfig(message)
    if spec.statistics_columns is not None:
        check_statistics_columns(spec.statistics_columns, columns, spec.version)
    check_allows(properties, Purpose.WRITE, url)
    if spec.cdc is not None and spec.version is FormatVersion.V6 and properties.is_merge_on_read:
        message = (
            f"table {url} would log changes (cdc: {spec.cdc.lower()}), but Apache Hudi has no CDC "
            "queries of merge-on-read tables of version 6; choose version 8 or 9, or copy_on_write"
        )
        raise Unsupported(message)
    hashes_rings = index.kind is IndexKind.CONSISTENT_HASHING
    if hashes_rings and not properties.populates_meta_columns:
        message = (
            f"table {url} would have index={str(index.kind)!r} but no meta columns, which lakemark "
            "does not write together; choose another index, or leave out meta_columns=False"
        )
        raise Unsupported(message)
    if hashes_rings and not properties.is_merge_on_read:
        message = (
            f"table {url} would be copy-on-write with index='consistent_hashing', which Apache "
            "Hudi does not support; choose another index, or table_type='merge_on_read'"
        )
        raise Unsupported(message)
    KeyGeneratorConfig.of(properties, url)
    for field in spec.partition_expressions:
        check_folder_of(field, url_encode=spec.url_encode)


def check_statistics_columns(
    columns: Sequence[str], schema: pa.Schema, version: FormatVersion
) -> None:
    """Check that columns can have statistics.

    Raises:
        InvalidConfig: a column does not exist, or its type has no order.
    """
    possible = columns_with_order(schema, version)
    for name in columns:
        if name in possible:
            continue
        if name in schema.names:
            message = (
                f"column {name!r} cannot have statistics, because its type is "
                f"{schema.field(name).type}; leave it out"
            )
        else:
            message = (
                f"the table has no column {name!r} for statistics; choose among "
                f"{', '.join(possible)}"
            )
        raise InvalidConfig(message)


def _check_automatic_keys(spec: TableSpec, index: ChosenIndex) -> None:
    """Check the settings of a table without record key columns.

    Raises:
        InvalidConfig: the table could not have automatic record keys.
    """
    reason = "record_key is empty, so each row would get a new, automatic record key"
    if index.kind is not IndexKind.LOOKUP:
        message = (
            f"{reason}; name the columns of the record key, or pass index='lookup' to append rows "
            "without a key"
        )
        raise InvalidConfig(message)
    if not spec.meta_columns:
        message = (
            f"{reason}, which meta_columns=False does not store; name the columns of the record "
            "key, or leave out meta_columns=False"
        )
        raise InvalidConfig(message)


def _check_buckets(spec: TableSpec, index: ChosenIndex) -> None:
    if index.buckets is not None:
        BucketIndex(index.buckets, spec.record_key)


def check_partition_times(spec: TableSpec, columns: pa.Schema) -> None:
    """Check that no partition column of a new table is a timestamp. Missing columns are skipped.

    Raises:
        InvalidConfig: a timestamp would partition the table.
    """
    for field in spec.partition_fields:
        name = field.column
        if field.is_expression or top_column(name, columns) not in columns.names:
            continue
        kind = column_at(columns.empty_table(), name).type
        if pa.types.is_timestamp(kind):
            message = (
                f"partition_by {name!r} is of type {kind}, so nearly every row would get its own "
                f"folder; partition by day({name}), or by month({name}) or hour({name})"
            )
            raise InvalidConfig(message)
