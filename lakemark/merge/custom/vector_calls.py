"""Calls a vectorised merger."""

from __future__ import annotations

from typing import cast

import numpy as np

from lakemark.merge.custom.custom_merger import refused
from lakemark.merge.custom.outcome import Outcome, conformed
from lakemark.merge.custom.records import Records
from lakemark.merge.custom.vector_merger import VectorMerge, VectorMerger
from lakemark.model.changes import WRITTEN_COLUMNS
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.model.written_columns import Written


def merge_columns(
    merger: VectorMerger, older: Records, newer: Records, *, in_part: bool
) -> Outcome:
    """Merge all records with one call.

    Args:
        merger: the custom merger.
        older: older versions; at least one.
        newer: newer versions of the same records.
        in_part: whether each pair has a partial row.

    Raises:
        InvalidConfig: the result violates the interface.
    """
    key = older[RECORD_KEY][0].as_py()
    call = merger.partial_merge if in_part else merger.merge
    try:
        merged = cast(object, call(older, newer))
    except Exception as error:
        error.add_note(f"in merger {merger.name}, {len(older)} records from {key!r} on")
        raise
    if not isinstance(merged, VectorMerge):
        raise refused(merger, key, f"{type(merged).__name__} came back; return a VectorMerge")
    rows = conformed(merger, merged.rows, older.rows)
    keep = np.asarray(merged.keep)
    if keep.dtype != np.bool_ or keep.shape != (len(older),):
        fault = f"keep is {keep.dtype} of shape {keep.shape}; return one boolean for each row"
        raise refused(merger, key, fault)
    return Outcome(rows, keep, _written(older, newer))


def _written(older: Records, newer: Records) -> Written | None:
    """Columns that one of the two has; a delete has all columns."""
    if WRITTEN_COLUMNS not in older.changes.column_names:
        return None
    is_whole = older.is_delete | newer.is_delete
    written: Written = older.written | newer.written | is_whole[:, None]
    return written
