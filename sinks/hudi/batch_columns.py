"""The columns of the rows that the records of a batch become, and their evolution.

Records may request columns (``transforms.schema_request``). The requests of all records of a batch
are merged, and the batch is written again with these columns. The columns become part of the table
when the batch is committed. If the batch is not committed, the previous columns are restored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from lakemark.errors import HudiError, InvalidRecords
from lakemark.operations.table_writer import TableWriter
from lakemark.schema.evolution import (
    MAX_EVOLVED_COLUMNS,
    Proposal,
    changes_between,
    column_count,
    evolve,
)
from sinks.hudi.prepare import PrepareChunk


class SchemaRefused(HudiError):
    """A record does not fit the schema, and the policy is to stop. Nothing was published."""

    def __init__(self, record: str) -> None:
        super().__init__(f"{record}; declare the column, or choose another policy")
        self.record = record


class TooManyColumns(HudiError):
    """Records request so many columns that the names of their fields are probably values."""

    def __init__(self, columns: int, first: str) -> None:
        super().__init__(
            f"the records' unknown fields would make {columns} columns (the first: {first}), more "
            f"than {MAX_EVOLVED_COLUMNS}; such names are probably values; declare decode.schema, "
            "and keep the other fields with decode.unknown_fields: rescue"
        )


def evolved_columns(columns: pa.Schema, proposal: Proposal) -> pa.Schema:
    """Return the columns with those that records request.

    Raises:
        InvalidRecords: the schema cannot have these columns.
        TooManyColumns: there would be more columns than a table should have.
    """
    evolved = evolve(columns, proposal)
    changes = changes_between(columns, evolved)
    if not changes:
        message = f"records request columns that the schema cannot have: {sorted(proposal)[:3]}"
        raise InvalidRecords(message)
    count = column_count(evolved)
    if count > max(MAX_EVOLVED_COLUMNS, column_count(columns)):
        raise TooManyColumns(count, changes[0].name)
    return evolved


@dataclass(frozen=True, slots=True)
class SavedColumns:
    """The columns to restore if a batch is not committed."""

    prepare: PrepareChunk
    schema: pa.Schema


class BatchColumns:
    """The current columns of a stream.

    Attributes:
        prepare: converts records to rows with these columns; runs in the workers.

    Args:
        rows: the writer of the table; it always has the same columns as this object.
        prepare: converts records to rows with the table's columns.
    """

    def __init__(self, rows: TableWriter, prepare: PrepareChunk) -> None:
        self._rows = rows
        self.prepare = prepare

    def save(self) -> SavedColumns:
        """Return the current columns, for ``restore``."""
        return SavedColumns(self.prepare, self._rows.schema)

    def restore(self, saved: SavedColumns) -> None:
        """Undo the evolution since ``save``, because nothing of it was committed."""
        self.prepare = saved.prepare
        self._rows.evolve(saved.schema)

    def has_changed_since(self, saved: SavedColumns) -> bool:
        """Return whether the table's writer has other columns than the saved ones."""
        return not self._rows.schema.equals(saved.schema)

    def changes_since(self, saved: SavedColumns) -> tuple[str, ...]:
        """Return descriptions of the columns that were added or widened since ``save``."""
        return tuple(map(str, changes_between(saved.schema, self._rows.schema)))

    def follow_table(self) -> None:
        """From now on, convert records to the current columns of the table."""
        if not self._rows.schema.equals(self.prepare.converter.table_schema):
            self._set(self._rows.schema)

    def evolve(self, proposal: Proposal) -> None:
        """Add and widen columns as the records request.

        Raises:
            InvalidRecords: the schema cannot have these columns.
            TooManyColumns: there would be more columns than a table should have.
        """
        self._set(evolved_columns(self._rows.schema, proposal))

    def _set(self, columns: pa.Schema) -> None:
        self.prepare = replace(self.prepare, converter=self.prepare.converter.for_table(columns))
        self._rows.evolve(columns)
