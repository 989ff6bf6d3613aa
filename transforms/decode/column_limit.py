"""The limit on columns that the unknown fields of one record may add to a table.

Without a limit, one record that uses thousands of values as names would stop the run, although the
other records of its batch are valid.
"""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa

from lakemark.schema.evolution import MAX_EVOLVED_COLUMNS, Sighting, column_count, evolve
from transforms.decode.schema_policy import SchemaPolicy

#: Columns that one JSON record may add, those inside structs included.
MAX_ADDED_COLUMNS = 500


class ColumnLimit:
    """The limit for one schema.

    Args:
        schema: columns of the records, aliases included.
        policy: reserves the names of the other columns of the table.
        max_added: columns that one record may add; the limit on all columns applies as well.
    """

    def __init__(
        self, schema: pa.Schema, policy: SchemaPolicy, max_added: int = MAX_EVOLVED_COLUMNS
    ) -> None:
        self._schema, self._policy = schema, policy
        self._columns = column_count(schema)
        spare = MAX_EVOLVED_COLUMNS - self._columns - len(policy.reserved_names)
        self._allowed = max(0, min(max_added, spare))

    def fault(self, unknown: Set[Sighting]) -> str | None:
        """Return why the unknown fields of a record are too many, or None if they are not."""
        if len(unknown) <= self._allowed:  # no sighting adds more than one column
            return None
        wanted = evolve(self._schema, self._policy.to_columns(unknown))
        added = column_count(wanted) - self._columns
        if added <= self._allowed:
            return None
        return (
            f"its unknown fields would add {added} columns, more than the {self._allowed} that one "
            f"record may add (a table evolves to {MAX_EVOLVED_COLUMNS} at most); declare the "
            "columns, or keep the others with decode.unknown_fields: rescue"
        )
