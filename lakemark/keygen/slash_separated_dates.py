"""Slash-separated dates: the rows of 2026-01-02 are in the folder ``2026/01/02``.

A table has such folders if its property ``hoodie.datasource.write.slash.separated.date.
partitioning`` is true. Its partition column stores the dates as ``yyyy-MM-dd``.

Apache Hudi 1.2.0 replaces each ``-`` of any value with a ``/``. Lakemark writes only dates in this
way. If a table had folders of different depths, one partition could be inside another, which a
listing of the folders does not find. Values with a ``/`` are not written either: Apache Hudi
returns them with ``-``.

Source: ``KeyGenUtils.getPartitionPath``, ``PartitionPathFormatterBase.combine`` and
``HoodieSparkUtils.doParsePartitionColumnValues`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import product
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.partition_field import PartitionField
from lakemark.config.time_pattern import TimePattern
from lakemark.errors import InvalidConfig
from lakemark.keygen.partition_path import DEFAULT_PARTITION
from lakemark.schema.field_path import column_at

#: Each separator of a path doubles the number of its texts.
_MOST_SEPARATORS: Final = 4

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def date_paths(values: pa.Array) -> pa.Array:
    """Return the partition path of each value, relative to the table; null if it is no date.

    Args:
        values: the values of the partition column, as strings.
    """
    encoded = values.dictionary_encode()
    paths = [_date_path(value) for value in encoded.dictionary.to_pylist()]
    found = pa.array(paths, pa.string()).take(encoded.indices)
    return pc.if_else(values.is_null(), DEFAULT_PARTITION, found)


def texts_of_path(path: str) -> list[str]:
    """Return the texts that Apache Hudi writes to a partition, first the text with dashes only.

    The result is empty if there are too many to list.
    """
    first, *others = path.split("/")
    if len(others) > _MOST_SEPARATORS:
        return []
    return [
        first
        + "".join(f"{separator}{each}" for separator, each in zip(chosen, others, strict=True))
        for chosen in product("-/", repeat=len(others))
    ]


def check_date_column(
    fields: Sequence[PartitionField], columns: pa.Schema | None, *, hive_style: bool
) -> None:
    """Check that a new table can have slash-separated dates.

    Args:
        fields: the fields of its partition path.
        columns: the columns of the rows; None if they are not known yet.
        hive_style: whether folders are named ``field=value``.

    Raises:
        InvalidConfig: there is not exactly one partition column, or it has no dates, or folders
            are named ``field=value``.
    """
    reason = ""
    if hive_style:
        reason = "hive_style names folders column=value; omit one of both"
    elif len(fields) != 1:
        reason = f"partition_by has {len(fields)} fields; name one column of dates, or day(column)"
    elif not _has_dates(fields[0], columns):
        reason = (
            f"{fields[0]} is no date; partition by day(column), or by a column of dates or of "
            "texts such as 2026-01-02"
        )
    if reason:
        message = f"slash_separated_dates writes 2026-01-02 as the folders 2026/01/02, but {reason}"
        raise InvalidConfig(message)


def _date_path(value: str) -> str | None:
    if not value:
        return DEFAULT_PARTITION
    return value.replace("-", "/") if _DATE.fullmatch(value) else None


def _has_dates(field: PartitionField, columns: pa.Schema | None) -> bool:
    if field.pattern is not None:
        text = TimePattern.parse(field.pattern).format(datetime(2026, 1, 2, 3, 4, 5))  # noqa: DTZ001
        return text == "2026-01-02"
    if field.is_expression:
        return False
    if columns is None or field.column.split(".")[0] not in columns.names:
        return True
    kind = column_at(columns.empty_table(), field.column).type
    return bool(pa.types.is_string(kind) or pa.types.is_date(kind))
