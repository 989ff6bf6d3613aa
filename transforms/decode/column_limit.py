"""How many columns the unknown fields of one record may add, where they evolve the table.

Without a bound, one record with thousands of names that are values would stop the run, and the good
records of its batch with it.
"""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa

from lakemark.schema.evolution import MAX_EVOLVED_COLUMNS, Sighting, column_count, evolve
from transforms.decode.schema_policy import SchemaPolicy

#: Columns that one JSON record may add, counting those inside structs.
MAX_ADDED_COLUMNS = 500


class ColumnLimit:
    """The bounds for one schema.

    Args:
        schema: columns of the records, aliases among them.
        policy: names that are taken by the table's other columns.
        max_added: columns that one record may add, in addition to the bound on all columns.
    """

    def __init__(
        self, schema: pa.Schema, policy: SchemaPolicy, max_added: int = MAX_EVOLVED_COLUMNS
    ) -> None:
        self._schema, self._policy = schema, policy
        self._columns = column_count(schema)
        room = MAX_EVOLVED_COLUMNS - self._columns - len(policy.reserved_names)
        self._allowed = max(0, min(max_added, room))

    def fault(self, unknown: Set[Sighting]) -> str | None:
        """Why the unknown fields of a record are too many; None if they are not."""
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
