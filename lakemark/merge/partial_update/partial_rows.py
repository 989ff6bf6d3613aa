"""Resolves partial rows against the current rows of their keys before they are written.

A partial row keeps some columns of the current row, so it needs a current row. If its key has no
current row, Apache Hudi reads a partial log block as if it had all columns, or fails. If the key
was deleted, Hudi uses the columns of the deleted row. To avoid this, a partial row is written as
partial only if its record exists when the row arrives. Otherwise it becomes a whole row with nulls
in the missing columns. A row that is too late to change any column is dropped.

Current rows are read from the file slice, only for the changed keys, and usually only with record
keys and ordering columns. All columns are read if partial rows must be completed to whole rows.
This concerns two kinds of rows:

- rows with rare sets of columns (``lakemark.merge.partial_update.rare_column_sets``)
- all partial rows of commit-time tables. If a log of such a table has a partial block, Apache Hudi
  1.2.0 fails at a row that follows a delete of the same key. The reason is that the delete has no
  schema (``OverwriteWithLatestSparkRecordMerger.partialMerge``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.merge.partial_update.missing_columns import MissingIfNotWritten
from lakemark.merge.partial_update.rare_column_sets import ReadCurrentRows, complete_rare_sets
from lakemark.merge.record_merger import RecordMerger, commit_time_merger
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.meta_columns import COMMIT_TIME, RECORD_KEY
from lakemark.model.written_columns import all_written, has_partial_rows, own_columns, pack
from lakemark.schema.field_path import top_column


def resolve_partial_rows(
    changes: Iterable[pa.Table],
    merger: RecordMerger,
    read_current: ReadCurrentRows,
    *,
    completes_rows: bool = False,
    max_column_sets: int | None = None,
) -> Iterator[pa.Table]:
    """Make partial rows whole if their record does not exist, and drop rows that are too late.

    Whole rows that are too late are dropped too. Apache Hudi folds logs before it reads the base
    file, so otherwise a late row would fill columns that a partial row keeps from the base file.

    A table without partial rows is returned unchanged if the merger is a custom merger or has no
    ordering fields. All other tables are folded. To resolve later tables, the function
    remembers the folded changes. If ``completes_rows`` is set, it remembers all their columns, and
    otherwise only record keys and ordering columns.

    Args:
        changes: tables of changes to one file group, with ``WRITTEN_COLUMNS``, oldest first.
        merger: decides which change wins.
        read_current: reads current rows of the file group.
        completes_rows: whether all partial rows are completed from the current rows.
        max_column_sets: how many sets of columns may stay partial in each table. The largest sets
            stay partial; None for all sets. The limit does not apply to a custom merger.
    """
    # For a custom merger, only the keys of the earlier changes are needed. So any merger can fold
    # them.
    earlier = _EarlierChanges(commit_time_merger() if merger.needs_whole_rows else merger)
    for part in changes:
        names = own_columns(part) if completes_rows else _deciding_columns(part, merger)
        outcome = part
        if has_partial_rows(part) or _may_come_late(merger):
            rows, known = read_current(part.column(RECORD_KEY), names), earlier.find(part)
            if merger.needs_whole_rows:
                outcome = _complete_new_rows(merger.fold(part), [rows, *known])
            else:
                outcome = _resolve(part, _apply_earlier(rows, known, merger), merger)
                if max_column_sets is not None:
                    changed_keys = [change.column(RECORD_KEY) for change in known]
                    outcome = complete_rare_sets(
                        outcome, read_current, max_column_sets, changed_keys
                    )
        earlier.add(outcome.select([*names, CHANGE_KIND]))
        yield outcome


class _EarlierChanges:
    """Folds earlier changes to at most one change for each key."""

    def __init__(self, merger: RecordMerger) -> None:
        self._merger = merger
        self._tables: list[pa.Table] = []

    def find(self, changes: pa.Table) -> list[pa.Table]:
        """Return the earlier changes to the keys of ``changes``.

        The list has one table, or is empty if no key was changed earlier.
        """
        masks = self._match_keys(changes)
        found = [t.filter(mask) for t, mask in zip(self._tables, masks, strict=True)]
        found = [table for table in found if table.num_rows]
        return [pa.concat_tables(found)] if found else []

    def add(self, changes: pa.Table) -> None:
        """Fold the next changes into the earlier changes."""
        known = self.find(changes)
        if known:
            masks = self._match_keys(changes)
            self._tables = [
                _drop_rows(table, mask) for table, mask in zip(self._tables, masks, strict=True)
            ]
        self._tables.append(self._merger.fold(pa.concat_tables([*known, changes])))

    def _match_keys(self, changes: pa.Table) -> list[pa.ChunkedArray]:
        keys = changes.column(RECORD_KEY).combine_chunks()
        return [pc.is_in(table.column(RECORD_KEY), value_set=keys) for table in self._tables]


def _drop_rows(rows: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    return rows.filter(pc.invert(mask)) if pc.any(mask).as_py() else rows


def _complete_new_rows(changes: pa.Table, known: Sequence[pa.Table]) -> pa.Table:
    """Mark folded changes as whole if their key is not in ``known``.

    This is enough for a custom merger, which itself treats a row after a delete as whole.
    """
    keys = pa.concat_tables([rows.select([RECORD_KEY]) for rows in known]).column(RECORD_KEY)
    is_new = pc.invert(pc.is_in(changes.column(RECORD_KEY), value_set=keys.combine_chunks()))
    missing = [MissingIfNotWritten()(changes, name) for name in own_columns(changes)]
    written = ~np.stack(missing, axis=1) | np.asarray(is_new)[:, None]
    return _set_column(changes, WRITTEN_COLUMNS, pack(written))


def _may_come_late(merger: RecordMerger) -> bool:
    return bool(merger.ordering_fields) and not merger.needs_whole_rows


def _deciding_columns(changes: pa.Table, merger: RecordMerger) -> list[str]:
    """Return the columns that are needed to decide which records exist and which changes win."""
    ordering = [top_column(name, changes.schema) for name in merger.ordering_fields]
    return list(dict.fromkeys([RECORD_KEY, *ordering]))


def _apply_earlier(
    current: pa.Table, earlier: Sequence[pa.Table], merger: RecordMerger
) -> pa.Table:
    """Apply the earlier, folded changes to current rows, and append the earlier deletes.

    The deletes are needed to decide which later changes are too late to fill a column.
    """
    upserts = pa.array(np.full(current.num_rows, ChangeKind.UPSERT, np.int8))
    rows = current.append_column(CHANGE_KIND_FIELD, upserts)
    if not earlier:
        return rows
    known = pa.concat_tables(earlier).select(rows.column_names)
    deletes = known.filter(pc.not_equal(known.column(CHANGE_KIND), ChangeKind.UPSERT.value))
    merged = merger.apply(current, known).rows
    upserts = pa.array(np.full(merged.num_rows, ChangeKind.UPSERT, np.int8))
    rows = merged.append_column(CHANGE_KIND_FIELD, upserts)
    return pa.concat_tables([rows, deletes.cast(rows.schema)])


def _resolve(changes: pa.Table, current: pa.Table, merger: RecordMerger) -> pa.Table:
    """Fold changes to at most one for each key, which is partial only if its record exists.

    Current rows and changes are folded together, with row numbers instead of values. So the folded
    value of a column is the number of the row from which the value must be taken.
    """
    columns, deciding = own_columns(changes), _deciding_columns(changes, merger)
    folded = merger.fold(_number_rows(changes, current.select([*deciding, CHANGE_KIND])))
    # If the changes to a key have no effect, the winner is the current row, which is dropped here.
    first = current.num_rows
    winners = folded.column(COMMIT_TIME).to_numpy()
    folded = folded.take(np.flatnonzero(winners >= first))
    folded = folded.take(np.argsort(folded.column(COMMIT_TIME).to_numpy()))
    winners = folded.column(COMMIT_TIME).to_numpy() - first
    rows = changes.take(winners)
    written = np.ones((len(winners), len(columns)), np.bool_)
    for position, name in enumerate(columns):
        if name in deciding:
            continue
        sources = folded.column(name).to_numpy() - first
        sources = np.where(MissingIfNotWritten()(folded, name), winners, sources)
        if name in current.column_names:
            values = _concatenate(current.column(name), changes.column(name)).take(sources + first)
        else:
            written[:, position] = sources >= 0
            values = changes.column(name).take(np.where(sources < 0, winners, sources))
        rows = _set_column(rows, name, values)
    return _set_column(rows, WRITTEN_COLUMNS, pack(written))


def _number_rows(changes: pa.Table, current: pa.Table) -> pa.Table:
    """Return the current rows followed by the changes, with row numbers instead of values.

    Only the deciding columns keep their values.
    """
    count = current.num_rows + changes.num_rows
    columns: dict[str, pa.ChunkedArray | pa.Array] = {
        name: pa.array(np.arange(count)) for name in own_columns(changes)
    }
    columns |= {
        name: _concatenate(current.column(name), changes.column(name))
        for name in current.column_names
    }
    bits = all_written(current.num_rows, len(own_columns(changes)))
    columns[WRITTEN_COLUMNS] = _concatenate(bits, changes.column(WRITTEN_COLUMNS))
    return pa.table(columns)


def _concatenate(*columns: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    chunks = [
        chunk
        for column in columns
        for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
    ]
    return pa.chunked_array(chunks, columns[-1].type)


def _set_column(rows: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    position = rows.schema.get_field_index(name)
    return rows.set_column(position, rows.schema.field(position), values)
