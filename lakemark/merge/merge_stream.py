"""Merges a file group that may be larger than memory.

Changes are folded as they arrive. Folding in several steps gives the same result as one fold of all
changes, because the result of a fold is itself a table of changes. If the folded changes fit the
memory budget, base rows are merged with them batch by batch. Otherwise base rows and changes are
written to disk, divided by record key. Each division is then merged like a file group.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator
from itertools import chain

import pyarrow as pa

from lakemark.execution.runner import LocalRunner
from lakemark.merge.change_index import ChangeIndex, MergeCounts, MergeResult
from lakemark.merge.record_merger import RecordMerger
from lakemark.merge.spill import MAX_LEVEL, SpilledDivisions
from lakemark.model.changes import CHANGE_COLUMNS

#: Memory for the changes of one file group, both folded changes and changes not yet folded.
DEFAULT_MEMORY_BUDGET_BYTES = 256 << 20

#: Largest table that a merge stream returns.
MAX_BATCH_BYTES = 64 << 20


class MergeStream(Iterator[pa.Table]):
    """An iterator over the live rows of a file group, in batches that are never empty.

    Attributes:
        counts: counts of the merge so far. They are complete when the stream has ended.
    """

    def __init__(self, merged: Iterator[MergeResult]) -> None:
        self.counts = MergeCounts()
        self._batches = self._run(merged)

    def __next__(self) -> pa.Table:
        return next(self._batches)

    def close(self) -> None:
        """End the stream and remove its spilled files. If the stream has ended, do nothing."""
        self._batches.close()

    def _run(self, merged: Iterator[MergeResult]) -> Generator[pa.Table, None, None]:
        for part in merged:
            self.counts += part.counts
            yield from split_batches(part.rows, MAX_BATCH_BYTES)


def merge_streams(
    base: Iterable[pa.Table],
    changes: Iterable[pa.Table],
    merger: RecordMerger,
    memory_budget_bytes: int = DEFAULT_MEMORY_BUDGET_BYTES,
    *,
    keeps_order: bool = True,
) -> MergeStream:
    """Apply the changes of a file group to its base rows.

    Args:
        base: rows of the base file in the table's columns; empty if there is no base file.
        changes: tables of unfolded changes in the table's columns, oldest first.
        merger: decides which record wins.
        memory_budget_bytes: bytes of changes to hold in memory. If the changes exceed the budget,
            base rows and changes are written to disk.
        keeps_order: whether the merged base rows keep their order. Without order, the merge is
            faster.

    Returns:
        The merged base rows, followed by the rows of new keys. If rows were written to disk, each
        division has this order.
    """
    return MergeStream(_merge(base, changes, merger, memory_budget_bytes, keeps_order, level=0))


def fold_stream(
    changes: Iterable[pa.Table],
    merger: RecordMerger,
    memory_budget_bytes: int = DEFAULT_MEMORY_BUDGET_BYTES,
) -> MergeStream:
    """Merge the changes of a file group without a base file into live rows."""
    return merge_streams((), changes, merger, memory_budget_bytes)


def fold_changes(
    changes: Iterable[pa.Table],
    merger: RecordMerger,
    memory_budget_bytes: int = DEFAULT_MEMORY_BUDGET_BYTES,
) -> Iterator[pa.Table]:
    """Reduce the changes of a file group to one change per key, deletes included.

    Args:
        changes: tables of unfolded changes in the table's columns, oldest first.
        merger: decides which record wins.
        memory_budget_bytes: bytes of changes to hold in memory. If the changes exceed the budget,
            they are written to disk, divided by record key.

    Yields:
        Tables of folded changes. No key is in two of them.
    """
    return _fold(changes, merger, memory_budget_bytes, level=0)


def split_batches(rows: pa.Table, max_bytes: int) -> Iterator[pa.Table]:
    """Yield slices of ``rows`` of about ``max_bytes`` at most; nothing if there are no rows."""
    batch_count = max(1, -(-rows.nbytes // max_bytes))
    batch_rows = max(1, -(-rows.num_rows // batch_count))
    for start in range(0, rows.num_rows, batch_rows):
        yield rows.slice(start, batch_rows)


def _merge(
    base: Iterable[pa.Table],
    changes: Iterable[pa.Table],
    merger: RecordMerger,
    memory_budget_bytes: int,
    keeps_order: bool,
    level: int,
) -> Iterator[MergeResult]:
    arriving = iter(changes)
    pending = _PendingChanges(merger, memory_budget_bytes if level < MAX_LEVEL else sys.maxsize)
    if not all(pending.add(batch) for batch in arriving):
        remaining = chain([pending.fold()], arriving)
        yield from _merge_divided(base, remaining, merger, memory_budget_bytes, keeps_order, level)
    elif pending.is_empty:
        yield from (MergeResult(rows, MergeCounts()) for rows in base)
    else:
        yield from _merge_in_memory(base, pending.fold(), merger, keeps_order)


def _fold(
    changes: Iterable[pa.Table], merger: RecordMerger, memory_budget_bytes: int, level: int
) -> Iterator[pa.Table]:
    arriving = iter(changes)
    pending = _PendingChanges(merger, memory_budget_bytes if level < MAX_LEVEL else sys.maxsize)
    if all(pending.add(batch) for batch in arriving):
        if not pending.is_empty:
            yield pending.fold()
        return
    with SpilledDivisions(level) as divided:
        divided.fill(chain((pending.fold(),), arriving))
        for division in sorted(divided.divisions):
            yield from _fold(divided.read(division), merger, memory_budget_bytes, level + 1)


def _merge_in_memory(
    base: Iterable[pa.Table], changes: pa.Table, merger: RecordMerger, keeps_order: bool
) -> Iterator[MergeResult]:
    index = ChangeIndex(changes, merger, keeps_order=keeps_order)
    for rows in base:
        yield index.merge(rows)
    yield index.insert_unmatched(
        [name for name in changes.column_names if name not in CHANGE_COLUMNS]
    )


def _merge_divided(
    base: Iterable[pa.Table],
    changes: Iterable[pa.Table],
    merger: RecordMerger,
    memory_budget_bytes: int,
    keeps_order: bool,
    level: int,
) -> Iterator[MergeResult]:
    with SpilledDivisions(level) as newer, SpilledDivisions(level) as older:
        LocalRunner(2).map(_write_side, [(newer, changes), (older, base)])
        for division in sorted({*newer.divisions, *older.divisions}):
            yield from _merge(
                older.read(division),
                newer.read(division),
                merger,
                memory_budget_bytes,
                keeps_order,
                level + 1,
            )


def _write_side(side: tuple[SpilledDivisions, Iterable[pa.Table]]) -> None:
    divisions, tables = side
    divisions.fill(tables)


class _PendingChanges:
    """Collects changes, and folds them each time the unfolded changes exceed half of the budget."""

    def __init__(self, merger: RecordMerger, memory_budget_bytes: int) -> None:
        self._merger = merger
        self._half_budget_bytes = memory_budget_bytes // 2
        self._tables: list[pa.Table] = []
        self._unfolded_bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._tables

    def add(self, changes: pa.Table) -> bool:
        """Add changes, and return False if the folded changes exceed half of the budget."""
        self._tables.append(changes)
        self._unfolded_bytes += changes.nbytes
        if self._unfolded_bytes <= self._half_budget_bytes:
            return True
        folded = self.fold()
        self._tables, self._unfolded_bytes = [folded], 0
        return bool(folded.nbytes <= self._half_budget_bytes)

    def fold(self) -> pa.Table:
        """Return all changes that were added so far, folded."""
        return self._merger.fold(pa.concat_tables(self._tables))
