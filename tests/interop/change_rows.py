"""Rows of CDC queries, of Apache Hudi and of lakemark, in a form that can be compared."""

from __future__ import annotations

import json

import pyarrow as pa

#: The options of a CDC query of Apache Hudi, from the first commit on.
CDC = {
    "hoodie.datasource.query.incremental.format": "cdc",
    "hoodie.datasource.read.begin.instanttime": "000",
}

#: Operation, key, and ordering value before and after.
Change = tuple[str, str, int | None, int | None]


def list_changes(changes: pa.Table, ordering: str) -> list[Change]:
    """Return the sorted changes; ``id`` is the key, and ``ordering`` the ordering column."""
    found: list[Change] = []
    for row in changes.to_pylist():
        before, after = (json.loads(row[name] or "null") or {} for name in ("before", "after"))
        key = (after or before)["id"]
        found.append((row["op"], key, before.get(ordering), after.get(ordering)))
    return sorted(found, key=str)
