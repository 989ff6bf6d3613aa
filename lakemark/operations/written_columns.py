"""The columns that a writer writes, compared with those that other commits record.

Readers take the table's columns from the newest commit. So a commit must never drop or narrow a
column of an earlier commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from lakemark.errors import WriteConflict
from lakemark.model.meta_columns import with_meta_columns, without_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.operations.write_context import avro_schema_text
from lakemark.schema import avro
from lakemark.schema.evolution import changes_between, unite_schemas


@dataclass
class WrittenColumns:
    """The columns of one writer.

    Attributes:
        table: the open table.
        schema: the columns, without meta columns.
    """

    table: OpenTable
    schema: pa.Schema

    def evolve(self, schema: pa.Schema) -> None:
        """Replace the columns."""
        self.schema = schema
        for text in ("avro_text", "avro_text_with_meta"):
            self.__dict__.pop(text, None)

    def add_columns_of(self, avro_text: str) -> None:
        """Add the columns of another commit.

        Args:
            avro_text: the schema that the commit records.

        Raises:
            InvalidConfig: no type can hold both types of a column.
        """
        both = self._united(avro_text)
        if not both.equals(self.schema):
            self.evolve(both)

    def check_includes(self, avro_text: str | None, *, adds_columns: bool) -> None:
        """Check that the columns include those of another commit.

        Args:
            avro_text: the schema that the commit records, if any.
            adds_columns: whether to add columns that only the other commit has.

        Raises:
            WriteConflict: a column is missing, or its type is narrower.
            InvalidConfig: no type can hold both types of a column.
        """
        if not avro_text or avro_text == self.avro_text:
            return
        both = self._united(avro_text)
        if set(both) == set(self.schema):
            return
        if adds_columns and set(self.schema) < set(both):
            self.evolve(both)
        else:
            changes = ", ".join(map(str, changes_between(self.schema, both)))
            message = (
                f"table {self.table.location.url} has other columns than this commit ({changes}), "
                "because another writer added or changed them; write the batch again"
            )
            raise WriteConflict(message)

    @cached_property
    def avro_text(self) -> str:
        """The columns as Avro JSON, for commits."""
        return avro_schema_text(self.table, self.schema)

    @cached_property
    def avro_text_with_meta(self) -> str:
        """The columns with meta columns as Avro JSON, for files."""
        return avro_schema_text(self.table, with_meta_columns(self.schema))

    def _united(self, avro_text: str) -> pa.Schema:
        """Return the columns of another commit, followed by those that only this writer has."""
        if avro_text == self.avro_text:
            return self.schema
        theirs = without_meta_columns(avro.to_arrow(avro_text))
        return unite_schemas(theirs, self.schema, self.table.location.url)
