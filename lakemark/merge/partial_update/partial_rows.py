"""Resolves partial rows against the current rows of their keys before they are written.

A partial row keeps some columns of the current row. If its key has no current row, there is nothing
to keep. For such a key Apache Hudi reads a partial log block as if it had all columns, or fails;
after a delete it uses the columns of the deleted row. So a row is written partially only if its
record exists when the row arrives. Any other partial row becomes a whole row with nulls. A row that
is too late for all its columns is dropped.

Current rows are read from the file slice, for the changed keys only: usually record keys and
ordering values. All columns are read if partial rows must be completed. This applies to rare sets
of columns (``lakemark.merge.partial_update.rare_column_sets``). It applies to all partial rows of
commit-time tables: Apache Hudi 1.2.0 fails at a row after a delete of its key if one of the logs
has a partial block (``OverwriteWithLatestSparkRecordMerger.partialMerge`` asks the delete for its
schema).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.merge.partial_update.missing_columns import UnwrittenColumns
from lakemark.merge.partial_update.rare_column_sets import StandingRows, complete_rare
from lakemark.merge.record_merger import RecordMerger, commit_time_merger
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.meta_columns import COMMIT_TIME, RECORD_KEY
from lakemark.model.written_columns import all_written, has_partial_rows, own_columns, pack
from lakemark.schema.field_path import top_column


def settled(
    changes: Iterable[pa.Table],
    merger: RecordMerger,
    standing: StandingRows,
    *,
    makes_whole: bool = False,
    largest_sets: int | None = None,
) -> Iterator[pa.Table]:
    """Make rows whole unless their record exists, and drop rows that are too late.

    Whole rows that are too late are dropped too. Apache Hudi folds logs before it reads the base
    file, so a late row would fill columns that a partial row keeps from the base file. If the
    merger has no order, tables without partial rows are returned unchanged; all others are folded.
    For later tables the function keeps the last change to each key, in the columns that it reads
    from current rows.

    Args:
        changes: tables of changes to one file group, with ``WRITTEN_COLUMNS``, oldest first.
        merger: decides which change wins.
        standing: reads current rows of the file group.
        makes_whole: whether partial rows take the other columns from the current rows at once.
        largest_sets: how many sets of columns may stay partial, the largest in each table; None
            for all. A custom merger keeps all of them.
    """
    # For a custom merger only the keys of earlier changes are needed.
    earlier = _Earlier(commit_time_merger() if merger.needs_whole_rows else merger)
    for part in changes:
        names = own_columns(part) if makes_whole else _decisive(part, merger)
        outcome = part
        if has_partial_rows(part) or _may_come_late(merger):
            rows, known = standing(part.column(RECORD_KEY), names), earlier.of_keys(part)
            if merger.needs_whole_rows:
                outcome = _whole_where_new(merger.fold(part), [rows, *known])
            else:
                outcome = _settled(part, _after(rows, known, merger), merger)
                if largest_sets is not None:
                    touched = [change.column(RECORD_KEY) for change in known]
                    outcome = complete_rare(outcome, standing, largest_sets, touched)
        earlier.add(outcome.select([*names, CHANGE_KIND]))
        yield outcome


class _Earlier:
    """The result of earlier changes: at most one change for each key."""

    def __init__(self, merger: RecordMerger) -> None:
        self._merger = merger
        self._tables: list[pa.Table] = []

    def of_keys(self, changes: pa.Table) -> list[pa.Table]:
        """Earlier changes to the keys of these changes, in one table; empty if there are none."""
        is_of_keys = self._is_of_keys(changes)
        found = [t.filter(mask) for t, mask in zip(self._tables, is_of_keys, strict=True)]
        found = [table for table in found if table.num_rows]
        return [pa.concat_tables(found)] if found else []

    def add(self, changes: pa.Table) -> None:
        """Add the next changes."""
        known = self.of_keys(changes)
        if known:
            is_of_keys = self._is_of_keys(changes)
            self._tables = [
                _without(table, mask) for table, mask in zip(self._tables, is_of_keys, strict=True)
            ]
        self._tables.append(self._merger.fold(pa.concat_tables([*known, changes])))

    def _is_of_keys(self, changes: pa.Table) -> list[pa.ChunkedArray]:
        keys = changes.column(RECORD_KEY).combine_chunks()
        return [pc.is_in(table.column(RECORD_KEY), value_set=keys) for table in self._tables]


def _without(rows: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    return rows.filter(pc.invert(mask)) if pc.any(mask).as_py() else rows


def _whole_where_new(changes: pa.Table, known: Sequence[pa.Table]) -> pa.Table:
    """Folded changes that are whole if their key was not known.

    For a custom merger, which itself treats a row after a delete as whole.
    """
    keys = pa.concat_tables([rows.select([RECORD_KEY]) for rows in known]).column(RECORD_KEY)
    is_new = pc.invert(pc.is_in(changes.column(RECORD_KEY), value_set=keys.combine_chunks()))
    open_columns = [UnwrittenColumns()(changes, name) for name in own_columns(changes)]
    written = ~np.stack(open_columns, axis=1) | np.asarray(is_new)[:, None]
    return _with_column(changes, WRITTEN_COLUMNS, pack(written))


def _may_come_late(merger: RecordMerger) -> bool:
    return bool(merger.ordering_fields) and not merger.needs_whole_rows


def _decisive(changes: pa.Table, merger: RecordMerger) -> list[str]:
    """Columns that decide whether a record exists, and which changes win."""
    ordering = [top_column(name, changes.schema) for name in merger.ordering_fields]
    return list(dict.fromkeys([RECORD_KEY, *ordering]))


def _after(standing: pa.Table, earlier: Sequence[pa.Table], merger: RecordMerger) -> pa.Table:
    """Current rows after the earlier, folded changes, and the deletes among these.

    The deletes decide which later changes are too late to fill a column.
    """
    upserts = pa.array(np.full(standing.num_rows, ChangeKind.UPSERT, np.int8))
    rows = standing.append_column(CHANGE_KIND_FIELD, upserts)
    if not earlier:
        return rows
    known = pa.concat_tables(earlier).select(rows.column_names)
    deletes = known.filter(pc.not_equal(known.column(CHANGE_KIND), ChangeKind.UPSERT.value))
    merged = merger.apply(standing, known).rows
    upserts = pa.array(np.full(merged.num_rows, ChangeKind.UPSERT, np.int8))
    rows = merged.append_column(CHANGE_KIND_FIELD, upserts)
    return pa.concat_tables([rows, deletes.cast(rows.schema)])


def _settled(changes: pa.Table, standing: pa.Table, merger: RecordMerger) -> pa.Table:
    """At most one change for each key, partial only if the record exists.

    Current rows and changes are folded together, with row numbers instead of values. So the folded
    value of a column is the number of the row that it comes from.
    """
    columns, decisive = own_columns(changes), _decisive(changes, merger)
    folded = merger.fold(_numbered(changes, standing.select([*decisive, CHANGE_KIND])))
    # If a change has no effect, the current row comes out.
    first = standing.num_rows
    winners = folded.column(COMMIT_TIME).to_numpy()
    folded = folded.take(np.flatnonzero(winners >= first))
    folded = folded.take(np.argsort(folded.column(COMMIT_TIME).to_numpy()))
    winners = folded.column(COMMIT_TIME).to_numpy() - first
    rows = changes.take(winners)
    written = np.ones((len(winners), len(columns)), np.bool_)
    for place, name in enumerate(columns):
        if name in decisive:
            continue
        sources = folded.column(name).to_numpy() - first
        sources = np.where(UnwrittenColumns()(folded, name), winners, sources)
        if name in standing.column_names:
            values = _joined(standing.column(name), changes.column(name)).take(sources + first)
        else:
            written[:, place] = sources >= 0
            values = changes.column(name).take(np.where(sources < 0, winners, sources))
        rows = _with_column(rows, name, values)
    return _with_column(rows, WRITTEN_COLUMNS, pack(written))


def _numbered(changes: pa.Table, standing: pa.Table) -> pa.Table:
    """Current rows, then changes; columns that do not decide hold the number of the row."""
    count = standing.num_rows + changes.num_rows
    columns: dict[str, pa.ChunkedArray | pa.Array] = {
        name: pa.array(np.arange(count)) for name in own_columns(changes)
    }
    columns |= {
        name: _joined(standing.column(name), changes.column(name)) for name in standing.column_names
    }
    bits = all_written(standing.num_rows, len(own_columns(changes)))
    columns[WRITTEN_COLUMNS] = _joined(bits, changes.column(WRITTEN_COLUMNS))
    return pa.table(columns)


def _joined(*columns: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    chunks = [
        chunk
        for column in columns
        for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
    ]
    return pa.chunked_array(chunks, columns[-1].type)


def _with_column(rows: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), values)
