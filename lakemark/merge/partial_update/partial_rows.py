"""Partial rows held against the rows that stand, before they are written.

A partial row leaves columns as they are in the table. Where its key has no row there is nothing to
leave: Apache Hudi reads a partial log block for such a key as if it had all columns, or ends at
it; and where a delete came in between, it takes the columns of the deleted row. So only those rows
are written in part whose record stands, as it stands when they arrive; any other partial row
becomes a whole one, with nulls, and one that comes too late for all its columns is dropped.

What stands is asked of the file slice: record keys and ordering values, of the changed keys alone.
Or all columns, where partial rows are made whole: those of rare sets of columns
(``lakemark.merge.partial_update.rare_column_sets``); or all of them, since Apache Hudi 1.2.0 fails
at a row that comes after a delete of its key in the logs of a commit-time table, once there is a
partial block among them (``OverwriteWithLatestSparkRecordMerger.partialMerge`` asks the delete for
its schema).
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
    """Changes in which each partial row is one of a record that stands by then.

    A whole row that comes too late is dropped too: Apache Hudi folds logs before it looks at the
    base file, so the late row would fill what a partial one leaves to the base. Without an order,
    tables without partial rows come out as they are; all others folded. Of the tables before, the
    columns that are asked of what stands are held, of the last change to each key.

    Args:
        changes: tables of changes to one file group, with ``WRITTEN_COLUMNS``, oldest first.
        merger: which change wins.
        standing: reads the file group.
        makes_whole: whether partial rows take the other columns from what stands at once.
        largest_sets: how many sets of columns may stay partial, the largest in each table; None
            for all. A merger that looks at values keeps all of them.
    """
    # Of a merger that looks at values no more is asked than which keys came.
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
    """What changes that came before come to: at most one for each key."""

    def __init__(self, merger: RecordMerger) -> None:
        self._merger = merger
        self._tables: list[pa.Table] = []

    def of_keys(self, changes: pa.Table) -> list[pa.Table]:
        """Those to the keys of these changes, in one table; none where there are none."""
        is_of_keys = self._is_of_keys(changes)
        found = [t.filter(mask) for t, mask in zip(self._tables, is_of_keys, strict=True)]
        found = [table for table in found if table.num_rows]
        return [pa.concat_tables(found)] if found else []

    def add(self, changes: pa.Table) -> None:
        """The next ones."""
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
    """Folded changes that are whole where their key was not known.

    For a merger that looks at values, which takes what follows a delete for whole itself.
    """
    keys = pa.concat_tables([rows.select([RECORD_KEY]) for rows in known]).column(RECORD_KEY)
    is_new = pc.invert(pc.is_in(changes.column(RECORD_KEY), value_set=keys.combine_chunks()))
    open_columns = [UnwrittenColumns()(changes, name) for name in own_columns(changes)]
    written = ~np.stack(open_columns, axis=1) | np.asarray(is_new)[:, None]
    return _with_column(changes, WRITTEN_COLUMNS, pack(written))


def _may_come_late(merger: RecordMerger) -> bool:
    return bool(merger.ordering_fields) and not merger.needs_whole_rows


def _decisive(changes: pa.Table, merger: RecordMerger) -> list[str]:
    """Columns that decide whether a record stands, and against which changes."""
    ordering = [top_column(name, changes.schema) for name in merger.ordering_fields]
    return list(dict.fromkeys([RECORD_KEY, *ordering]))


def _after(standing: pa.Table, earlier: Sequence[pa.Table], merger: RecordMerger) -> pa.Table:
    """What stands once the earlier changes, folded, have been made; and the deletes among them.

    The deletes tell which of the later changes come too late to fill anything.
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
    """One change at most for each key, partial only where the record stands.

    Standing rows and changes are folded together, with row numbers in place of values: so for each
    column the fold tells which row it comes from.
    """
    columns, decisive = own_columns(changes), _decisive(changes, merger)
    folded = merger.fold(_numbered(changes, standing.select([*decisive, CHANGE_KIND])))
    # A change of which nothing is left comes out as the standing row.
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
    """Standing rows, then changes; in all columns that decide nothing the number of the row."""
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
