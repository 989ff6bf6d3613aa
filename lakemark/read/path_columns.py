"""Reads partition columns from the partition path, if the files of a table lack them.

A table with ``hoodie.datasource.write.drop.partition.columns`` keeps the values of its partition
columns only in the names of its folders. Like Apache Hudi, this module returns such a column as a
string, after all other columns. Source: ``TableSchemaResolver.appendPartitionColumns`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa

from lakemark.config.table_properties import TableProperties
from lakemark.errors import Unsupported
from lakemark.keygen.partition_path import DEFAULT_PARTITION


@dataclass(frozen=True, slots=True)
class PathColumns:
    """Partition columns whose values are the folders of a partition path.

    Attributes:
        names: the columns, one for each folder.
        is_url_encoded: whether special characters of a path are written ``%XX``.
    """

    names: tuple[str, ...]
    is_url_encoded: bool = False

    @classmethod
    def of(cls, properties: TableProperties) -> PathColumns | None:
        """Return the dropped partition columns of a table; None if its files have all columns."""
        if not properties.drops_partition_columns:
            return None
        return cls(properties.partition_fields, properties.url_encode)

    def append_to(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a commit, with the partition columns moved to the end."""
        others = [field for field in schema if field.name not in self.names]
        return pa.schema([*others, *(pa.field(name, pa.string()) for name in self.names)])

    def set_columns(self, rows: pa.Table, partition_path: str) -> pa.Table:
        """Return rows of one partition with the values of their partition columns.

        Raises:
            Unsupported: the path does not have one folder for each column.
        """
        folders = partition_path.split("/")
        if len(folders) != len(self.names):
            message = (
                f"partition {partition_path!r} does not have one folder for each of the columns "
                f"{', '.join(self.names)}, which its files lack; read the table with Apache "
                "Hudi"
            )
            raise Unsupported(message)
        for name, folder in zip(self.names, folders, strict=True):
            position = rows.schema.get_field_index(name)
            if position >= 0:
                value = pa.scalar(self._value(name, folder), pa.string())
                rows = rows.set_column(position, name, pa.repeat(value, rows.num_rows))
        return rows

    def _value(self, name: str, folder: str) -> str | None:
        text = folder.removeprefix(f"{name}=")
        if text == DEFAULT_PARTITION:
            return None
        return unquote(text) if self.is_url_encoded else text
