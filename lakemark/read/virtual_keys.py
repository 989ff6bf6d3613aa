"""Virtual keys: record keys of tables without meta columns (``hoodie.populate.meta.fields=false``).

With every key generator, a key of one field is the value of the field, and a key of several fields
is ``f1:v1,f2:v2``. Files of such a table have the meta columns, but all values in them are null.
Source: ``RecordContext.virtualKeyExtractor`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakemark.config.table_properties import TableProperties
from lakemark.errors import Unsupported
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.meta_columns import RECORD_KEY


@dataclass(frozen=True, slots=True)
class VirtualKeys:
    """Creates record keys from fields.

    Attributes:
        fields: fields of the record key; a name with dots is a field inside a struct.
    """

    fields: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.fields:
            message = (
                "the table has no meta columns and no record key fields "
                "(hoodie.table.recordkey.fields), so its logs cannot be merged"
            )
            raise Unsupported(message)

    @classmethod
    def of(cls, properties: TableProperties) -> VirtualKeys | None:
        """Return the creator of a table's keys; None if the rows contain their keys.

        Raises:
            Unsupported: the table has no record key fields either.
        """
        return None if properties.populates_meta_columns else cls(properties.record_key_fields)

    @property
    def columns(self) -> tuple[str, ...]:
        """The top-level columns that contain the fields."""
        return tuple(name.split(".")[0] for name in self.fields)

    def of_rows(self, rows: pa.Table) -> pa.Array:
        """Return the record key of each row.

        Raises:
            InvalidConfig: a field is missing, or its type cannot be a key.
        """
        return KeyGenerator(KeyGeneratorConfig(self.fields)).record_keys(rows)

    def set_key_column(self, target: pa.Table, rows: pa.Table) -> pa.Table:
        """Return ``target`` with the keys of ``rows`` in its record key column."""
        position = target.schema.get_field_index(RECORD_KEY)
        return target.set_column(position, target.schema.field(position), self.of_rows(rows))
