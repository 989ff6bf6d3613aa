"""Which partition fields of a CUSTOM table hold times, as its rows show.

The key generator ``CUSTOM`` has fields of two types: the folder of a ``SIMPLE`` one is its value,
that of a ``TIMESTAMP`` one is a rendered time. Tables of version 6 store the fields alone, those of
version 8 and later ``field:TYPE``. Apache Hudi's upgrade takes the types from the settings of its
writer; here the rows are compared with their partition path. Source:
``SevenToEightUpgradeHandler.upgradePartitionFields`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Refused
from lakemark.index.stored_rows import StoredRows
from lakemark.keygen.key_value import key_value
from lakemark.keygen.partition_path import folder_name
from lakemark.model.meta_columns import PARTITION_PATH


def typed_partition_fields(
    properties: TableProperties, sample: Iterable[StoredRows], place: str
) -> tuple[str, ...]:
    """Return the partition fields as ``field:SIMPLE`` or ``field:TIMESTAMP``.

    Args:
        properties: of the table, whose key generator is ``CUSTOM``.
        sample: rows of the table.
        place: the table's URL, for errors.

    Raises:
        Refused: there are no rows.
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
        f"{field}:{'SIMPLE' if _is_simple(field, properties, stored) else 'TIMESTAMP'}"
        for field in properties.partition_fields
    )


def _is_simple(field: str, properties: TableProperties, sample: Iterable[StoredRows]) -> bool:
    """Return whether every row lies in a folder that is named as the field's value."""
    prefix = f"{field}=" if properties.hive_style else ""
    try:
        return all(
            f"/{folder_name(value, prefix, properties.url_encode)}/" in f"/{path}/"
            for stored in sample
            for value, path in _values_and_paths(field, stored)
        )
    except InvalidConfig:
        return False  # a value of this type names no folder


def _values_and_paths(field: str, stored: StoredRows) -> Iterable[tuple[str | None, str]]:
    values = key_value(stored.rows, field).to_pylist()
    return set(zip(values, stored.rows[PARTITION_PATH].to_pylist(), strict=True))
