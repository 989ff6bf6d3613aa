"""Values of partition columns in a catalog, derived from partition paths.

path                            columns      values
eu/2026-01-02                   region, day  eu, 2026-01-02
region=eu/day=2026-01-02        region, day  eu, 2026-01-02
region=a%3Ab (URL-encoded)      region       a:b
2026/01/02 (separated dates)    day          2026-01-02
2026/01/02 (formatted times)    at           2026/01/02

A null is ``__HIVE_DEFAULT_PARTITION__`` in paths and in catalogs. Sources: the implementations of
``PartitionValueExtractor`` of Apache Hudi, and how ``HoodieSyncConfig`` chooses one of them. Apache
Hudi does not decode the values that it adds to a metastore; lakemark does, so that a condition on
the column finds the partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa

from lakemark.catalogs.catalog import CatalogColumn, CatalogRefused
from lakemark.catalogs.column_types import hive_type
from lakemark.config.table_properties import TableProperties


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """Derives the values of a table's partition columns.

    Attributes:
        columns: the names of the partition columns as the table has them.
        is_hive_style: whether a folder is named ``column=value``.
        is_url_encoded: whether special characters of a path are written ``%XX``.
        separates_dates: whether a date is three folders.
        are_values: whether each folder is the value of one column. Otherwise it is a time that the
            key generator has formatted.
    """

    columns: tuple[str, ...]
    is_hive_style: bool
    is_url_encoded: bool
    separates_dates: bool
    are_values: bool

    @classmethod
    def of(cls, properties: TableProperties) -> PartitionValues:
        """Return the rule of a table.

        Raises:
            CatalogRefused: a partition column is a field of a struct, which no catalog supports.
        """
        nested = [name for name in properties.partition_fields if "." in name]
        if nested:
            message = (
                f"the table is partitioned by {nested[0]}, a field of a struct, and a catalog "
                "has only whole columns; partition the table by a column of its own"
            )
            raise CatalogRefused(message)
        return cls(
            properties.partition_fields,
            properties.hive_style,
            properties.url_encode,
            properties.slash_separated_dates,
            not properties.formats_times,
        )

    def of_path(self, path: str) -> tuple[str, ...]:
        """Return the values of a partition.

        Raises:
            CatalogRefused: the path does not have one folder for each column.
        """
        if len(self.columns) == 1:
            value = self._value(self.columns[0], path)
            return (value.replace("/", "-") if self.separates_dates else value,)
        folders = path.split("/")
        if len(folders) != len(self.columns):
            message = (
                f"partition {path!r} does not have one folder for each of the partition columns "
                f"{', '.join(self.columns)}, so a catalog cannot have it; register the table "
                "without partitions, or choose patterns without '/'"
            )
            raise CatalogRefused(message)
        return tuple(map(self._value, self.columns, folders))

    def catalog_columns(self, schema: pa.Schema) -> tuple[CatalogColumn, ...]:
        """Return the partition columns with the types of their values.

        Args:
            schema: the columns of the table.
        """
        return tuple(
            CatalogColumn(name.lower(), self._type_of(name, schema)) for name in self.columns
        )

    def _type_of(self, name: str, schema: pa.Schema) -> str:
        position = schema.get_field_index(name)
        if position < 0 or not self.are_values:
            return "string"
        kind = schema.field(position).type
        # A path has a timestamp as a number since the epoch (``lakemark.keygen.key_value``).
        return "bigint" if pa.types.is_timestamp(kind) else hive_type(kind)

    def _value(self, column: str, folder: str) -> str:
        text = folder.removeprefix(f"{column}=") if self.is_hive_style else folder
        return unquote(text) if self.is_url_encoded else text
