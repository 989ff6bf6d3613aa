"""Limits how many columns the unknown fields of one record may add to a table.

Some records use values as names of fields. Without the limit, one record with thousands of such
names would stop the run, although the other records of its batch are valid.
"""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa

from lakemark.schema.evolution import MAX_EVOLVED_COLUMNS, Sighting, column_count, evolve
from transforms.decode.schema_policy import SchemaPolicy

#: How many columns one JSON record may add, including fields of structs.
MAX_ADDED_COLUMNS = 500


class ColumnLimit:
    """The limit for records of one schema.

    Args:
        schema: the columns of the records, including aliases.
        policy: reserves the names of the other columns of the table.
        max_added: how many columns one record may add. The limit on all columns applies, too.
    """

    def __init__(
        self, schema: pa.Schema, policy: SchemaPolicy, max_added: int = MAX_EVOLVED_COLUMNS
    ) -> None:
        self._schema, self._policy = schema, policy
        self._columns = column_count(schema)
        spare = MAX_EVOLVED_COLUMNS - self._columns - len(policy.reserved_names)
        self._allowed = max(0, min(max_added, spare))

    def fault(self, unknown: Set[Sighting]) -> str | None:
        """Return why a record has too many unknown fields; None if it does not."""
        if len(unknown) <= self._allowed:  # no sighting adds more than one column
            return None
        wanted = evolve(self._schema, self._policy.to_columns(unknown))
        added = column_count(wanted) - self._columns
        if added <= self._allowed:
            return None
        return (
            f"its unknown fields would add {added} columns, more than the {self._allowed} that one "
            f"record may add (a table evolves to {MAX_EVOLVED_COLUMNS} at most); declare the "
            "columns, or keep other fields with decode.unknown_fields: rescue"
        )
