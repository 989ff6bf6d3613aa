"""Changes the marks of dead letters, which ``sinks.dead_letters`` describes.

Each function takes letters with the columns of ``REJECTS_SCHEMA`` and the record key, and returns
letters with the same columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.meta_columns import RECORD_KEY


def claim(letters: pa.Table, instant: str) -> pa.Table:
    """Claim letters by the instant that will commit their rows."""
    return _set(_set(letters, "replayed_in", instant), "resolved_at", None)


def resolve(letters: pa.Table) -> pa.Table:
    """Mark claimed letters as resolved, because their rows are committed."""
    return _set(letters, "resolved_at", datetime.now(UTC))


def reopen(letters: pa.Table) -> pa.Table:
    """Remove the claim of letters whose rows are not committed."""
    return _set(_set(letters, "replayed_in", None), "resolved_at", None)


def count_attempt(letters: pa.Table, counted: Collection[str] = ()) -> pa.Table:
    """Count one more attempt. A letter of an earlier version has no number of attempts.

    Args:
        letters: the letters.
        counted: the record keys of letters whose attempt was already counted.
    """
    known = pa.array(sorted(counted), pa.string())
    is_new = pc.invert(pc.is_in(letters.column(RECORD_KEY), value_set=known)).cast(pa.int32())
    attempts = pc.add(pc.fill_null(letters.column("attempts"), 1), is_new)
    return letters.set_column(letters.schema.get_field_index("attempts"), "attempts", attempts)


def reject_again(letters: pa.Table, rejects: Sequence[pa.Table]) -> pa.Table:
    """Return the letters that were rejected again, with their new reasons and without a claim.

    They keep the time of their first rejection, so they stay in their partition.

    Args:
        letters: the letters that were converted again, with this attempt.
        rejects: the rejects among them, as changes of the dead-letter table.
    """
    columns = letters.schema
    parts = [one.select(columns.names).cast(columns) for one in rejects]
    failed = pa.concat_tables([columns.empty_table(), *parts])
    known = letters.column(RECORD_KEY).combine_chunks()
    before = pc.index_in(failed.column(RECORD_KEY), value_set=known)
    for name in ("attempts", "rejected_at"):
        kept = letters.column(name).take(before)
        failed = failed.set_column(columns.get_field_index(name), name, kept)
    return failed


def _set(letters: pa.Table, name: str, value: object) -> pa.Table:
    """Set a column of all letters to one value."""
    index = letters.schema.get_field_index(name)
    column = letters.schema.field(index)
    values = pa.repeat(pa.scalar(value, column.type), letters.num_rows)
    return letters.set_column(index, column, values)
