"""Finds the types of the partition fields in a table with key generator ``CUSTOM``.

Such a table has partition fields of two types. The folder of a ``SIMPLE`` field is named after the
field's value, and the folder of a ``TIMESTAMP`` field is a formatted time. Tables of version 8 and
later store each field as ``field:TYPE``, but tables of version 6 do not store the types. Apache
Hudi's upgrade takes the types from the configuration of the writer. lakemark instead compares rows
with their partition paths. Source: ``SevenToEightUpgradeHandler.upgradePartitionFields`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lakemark.config.key_generators import SIMPLE_FIELD, TIMESTAMP_FIELD
from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Refused
from lakemark.index.stored_rows import StoredRows
from lakemark.keygen.key_value import key_value
from lakemark.keygen.partition_path import folder_name
from lakemark.model.meta_columns import PARTITION_PATH
from lakemark.schema.field_path import column_at


def typed_partition_fields(
    properties: TableProperties, sample: Iterable[StoredRows], place: str
) -> tuple[str, ...]:
    """Return the partition fields as ``field:SIMPLE`` or ``field:TIMESTAMP``.

    Args:
        properties: properties of a table with key generator ``CUSTOM``.
        sample: rows of the table.
        place: URL of the table, for error messages.

    Raises:
        Refused: the table has no rows. Or its rows do not show whether a date is formatted.
    """
    stored = list(sample)
    if not stored:
        message = (
            f"table {place} has the key generator CUSTOM and no rows, so the types of its "
            f"partition fields {', '.join(properties.partition_fields)} are not known; let Apache "
            "Hudi upgrade it, or write rows first"
        )
        raise Refused(message)
    return tuple(
        f"{field}:{_type_of(field, properties, stored, place)}"
        for field in properties.partition_fields
    )


def _type_of(field: str, properties: TableProperties, sample: list[StoredRows], place: str) -> str:
    if not _is_simple(field, properties, sample):
        return TIMESTAMP_FIELD
    columns = [column_at(stored.rows, field) for stored in sample]
    if pa.types.is_date(columns[0].type) and not any(column.null_count for column in columns):
        message = (
            f"table {place} has the key generator CUSTOM and the partition field {field!r}, whose "
            "folders are dates; without a null in the sampled rows they do not show whether the "
            "type of the field is SIMPLE or TIMESTAMP, and the types differ for nulls; let Apache "
            "Hudi upgrade the table"
        )
        raise Refused(message)
    return SIMPLE_FIELD


def _is_simple(field: str, properties: TableProperties, sample: Iterable[StoredRows]) -> bool:
    """Return whether every row is in a folder that is named after the field's value."""
    prefix = f"{field}=" if properties.hive_style else ""
    try:
        return all(
            f"/{folder_name(value, prefix, properties.url_encode)}/" in f"/{path}/"
            for stored in sample
            for value, path in _values_and_paths(field, stored)
        )
    except InvalidConfig:
        return False  # a value of this type cannot be a folder's name


def _values_and_paths(field: str, stored: StoredRows) -> Iterable[tuple[str | None, str]]:
    values = key_value(stored.rows, field).to_pylist()
    return set(zip(values, stored.rows[PARTITION_PATH].to_pylist(), strict=True))
