"""Completes partial rows with rare sets of columns from current rows.

A log needs a block for each set of columns, and each block has its own schema and Parquet file. If
there are many sets, the blocks cost more than the rows. So only rows of the largest sets are
written as partial rows. Rows of all other sets are written as whole rows, with their missing
columns filled from the current row.

A row may be completed only if it wins against the current row; ``resolve_partial_rows`` drops all
other rows. Then queries return the same row whether it was written as a partial or a whole row. A
newer change does not alter this, because it leads in both cases. A late change fills nothing in a
whole row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.merge.key_codes import Mask
from lakemark.merge.partial_update.missing_columns import MissingIfNotWritten
from lakemark.model.changes import WRITTEN_COLUMNS
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.model.written_columns import all_written, own_columns

#: Reads the current rows of some record keys, in the given columns.
ReadCurrentRows: TypeAlias = Callable[[pa.ChunkedArray, Sequence[str]], pa.Table]


def complete_rare_sets(
    changes: pa.Table,
    read_current: ReadCurrentRows,
    max_sets: int,
    changed_keys: Sequence[pa.ChunkedArray],
) -> pa.Table:
    """Complete partial rows, except those with one of the largest sets of columns.

    A row with a rare set also stays partial if its key was changed later than the rows of
    ``read_current``, or has several current rows.

    Args:
        changes: at most one change for each key; the records of partial rows exist.
        read_current: reads current rows.
        max_sets: how many sets of columns stay partial, in addition to the set of all columns.
        changed_keys: record keys with changes that are newer than the rows of ``read_current``.
    """
    is_rare = _find_rare(changes, max_sets)
    if not is_rare.any():
        return changes
    for keys in changed_keys:
        is_changed = pc.is_in(changes.column(RECORD_KEY), value_set=keys.combine_chunks())
        is_rare &= ~is_changed.to_numpy()
    rare = changes.column(RECORD_KEY).filter(pa.array(is_rare))
    return _complete_rows(
        changes, is_rare, _drop_repeated_keys(read_current(rare, own_columns(changes)))
    )


def _find_rare(changes: pa.Table, max_sets: int) -> Mask:
    """Return which rows are partial and do not have one of the largest sets of columns."""
    sets = changes.column(WRITTEN_COLUMNS).combine_chunks().dictionary_encode()
    codes = sets.indices.to_numpy()
    counts = np.bincount(codes, minlength=len(sets.dictionary))
    whole = all_written(1, len(own_columns(changes)))
    is_partial = np.asarray(pc.invert(pc.is_in(sets.dictionary, value_set=whole)))
    by_size = np.argsort(-counts, kind="stable")
    rare = by_size[is_partial[by_size]][max_sets:]
    is_rare: Mask = np.isin(codes, rare)
    return is_rare


def _drop_repeated_keys(rows: pa.Table) -> pa.Table:
    """Return only the rows whose key occurs once."""
    keys = rows.column(RECORD_KEY).combine_chunks().dictionary_encode()
    codes = keys.indices.to_numpy()
    is_single = np.bincount(codes, minlength=len(keys.dictionary))[codes] == 1
    return rows if is_single.all() else rows.filter(pa.array(is_single))


def _complete_rows(changes: pa.Table, is_rare: Mask, current: pa.Table) -> pa.Table:
    keys = current.column(RECORD_KEY).combine_chunks()
    found = pc.fill_null(pc.index_in(changes.column(RECORD_KEY), value_set=keys), -1).to_numpy()
    is_completed = is_rare & (found >= 0)
    rows, from_current = np.arange(changes.num_rows), found + changes.num_rows
    completed = changes
    for position, field in enumerate(changes.schema):
        if field.name in current.column_names:
            missing = MissingIfNotWritten()(changes, field.name) & is_completed
            other = current.column(field.name)
        elif field.name == WRITTEN_COLUMNS:
            missing = is_completed
            other = pa.chunked_array([all_written(current.num_rows, len(own_columns(changes)))])
        else:
            continue
        if missing.any():
            both = pa.chunked_array([*changes.column(position).chunks, *other.chunks], field.type)
            values = both.take(np.where(missing, from_current, rows))
            completed = completed.set_column(position, field, values)
    return completed
