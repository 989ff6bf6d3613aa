"""Merges records with the same key, and so decides which of several records survives.

Precombine, copy-on-write, compaction, log compaction and queries all use the same merger. It has
two operations: ``fold`` reduces changes to one per key, and ``apply`` applies folded changes to
base rows. As in Hudi, all logs must be folded before the result is applied to the base file. The
order matters because merging with unconditional deletes is not associative (specification, "Record
Merger"; format, section 7).

In mode ``EVENT_TIME_ORDERING``, each change is compared with the result of the earlier changes to
its key (``BufferedRecordMergerFactory.EventTimeRecordMerger`` of Apache Hudi 1.2.0):

- The newer change wins unless its ordering value is smaller.
- An unconditional delete always wins, and discards the earlier record.
- After an unconditional delete, the next change wins, except that a ``DELETE`` is dropped.
- A delete is unconditional if it has no ordering value, or the integer 0 as ordering value.

In mode ``COMMIT_TIME_ORDERING``, the newer change always wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.merge.change_index import ChangeIndex, MergeResult
from lakemark.merge.join import JoinedRows, JoinRule, MatchedRows, join_by_winner
from lakemark.merge.key_codes import NO_ROW, KeyCodes, Mask, Rows, key_codes
from lakemark.merge.ordering import Ranks, ordering_ranks
from lakemark.merge.partial_update.missing_columns import PartialUpdate, partial_update_for
from lakemark.merge.precedence import (
    decide_by_rank,
    find_effective_rows,
    find_unconditional_deletes,
)
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.meta_columns import RECORD_KEY


class RecordMerger(JoinRule, Protocol):
    """Merges records with the same key; the object can be pickled and holds no state.

    All tables that are passed to it must have the record key and the ordering fields.
    """

    @property
    def partial_update(self) -> PartialUpdate | None:
        """How missing columns are filled from the other record; None if they are not filled."""
        ...

    @property
    def needs_whole_rows(self) -> bool:
        """Whether the merger reads all columns, or only record keys and ordering columns."""
        ...

    def fold(self, changes: pa.Table, key_columns: Sequence[str] = (RECORD_KEY,)) -> pa.Table:
        """Reduce changes to at most one per key, in the order in which the keys first appear.

        Args:
            changes: a table of changes (``lakemark.model.changes``), oldest first.
            key_columns: columns that identify a record. Within one file group, pass the record key.
                In a batch of several file groups, pass partition path and record key.

        Raises:
            InvalidRecords: a record key is null.
            InvalidConfig: an ordering field is missing or has no order.
        """
        ...

    def apply(self, base: pa.Table, changes: pa.Table) -> MergeResult:
        """Apply folded changes to base rows.

        A winning delete removes the base row, and a winning upsert replaces it in place. Rows of
        new keys follow at the end, in the order of the changes. If the base file contains a key
        twice, both rows are changed.
        """
        ...


def commit_time_merger(partial_update: PartialUpdate | None = None) -> RecordMerger:
    """Return the merger by which the later change wins."""
    return _CommitTimeMerger(partial_update=partial_update)


def event_time_merger(
    ordering_fields: Sequence[str],
    partial_update: PartialUpdate | None = None,
    *,
    deletes_are_unconditional: bool = False,
) -> RecordMerger:
    """Return the merger by which the change with the larger ordering value wins.

    Args:
        ordering_fields: the columns of the ordering value.
        partial_update: how missing columns are filled from another record.
        deletes_are_unconditional: whether records of delete blocks always win.

    Raises:
        InvalidConfig: ``ordering_fields`` is empty.
    """
    if not ordering_fields:
        message = "EVENT_TIME_ORDERING needs hoodie.table.ordering.fields; name at least one column"
        raise InvalidConfig(message)
    return _EventTimeMerger(tuple(ordering_fields), partial_update, deletes_are_unconditional)


@dataclass(frozen=True, slots=True)
class _CommitTimeMerger:
    needs_whole_rows: ClassVar[bool] = False

    ordering_fields: tuple[str, ...] = ()
    partial_update: PartialUpdate | None = None

    def fold(self, changes: pa.Table, key_columns: Sequence[str] = (RECORD_KEY,)) -> pa.Table:
        keys = key_codes(changes, key_columns)
        if keys.are_unique:
            return changes
        partial_update = partial_update_for(changes, self.partial_update)
        if partial_update is None:
            return changes.take(keys.last(np.arange(changes.num_rows)))
        kinds = changes.column(CHANGE_KIND).to_numpy()
        never = np.zeros(changes.num_rows, dtype=np.bool_)
        return partial_update.fold(
            changes, keys, decide_by_rank(kinds, keys, never.astype(np.int64), never)
        )

    def newer_wins(self, base: pa.Table, changes: pa.Table) -> Mask:
        return np.ones(changes.num_rows, dtype=np.bool_)

    def join(self, matched: MatchedRows) -> JoinedRows:
        return join_by_winner(matched, self)

    def apply(self, base: pa.Table, changes: pa.Table) -> MergeResult:
        return ChangeIndex(changes, self).merge_all(base)


@dataclass(frozen=True, slots=True)
class _EventTimeMerger:
    needs_whole_rows: ClassVar[bool] = False

    ordering_fields: tuple[str, ...]
    partial_update: PartialUpdate | None = None
    deletes_are_unconditional: bool = False

    def fold(self, changes: pa.Table, key_columns: Sequence[str] = (RECORD_KEY,)) -> pa.Table:
        keys = key_codes(changes, key_columns)
        if keys.are_unique:
            return changes
        ranks = ordering_ranks(changes, self.ordering_fields)
        kinds = changes.column(CHANGE_KIND).to_numpy()
        unconditional = self._unconditional_deletes(changes)
        partial_update = partial_update_for(changes, self.partial_update)
        if partial_update is not None:
            return partial_update.fold(
                changes, keys, decide_by_rank(kinds, keys, ranks, unconditional)
            )
        if not unconditional.any():
            return changes.take(_select_winners(keys, ranks, np.arange(changes.num_rows)))
        counts, last_delete = find_effective_rows(kinds, keys, unconditional)
        winners = _select_winners(keys, ranks, np.flatnonzero(counts))
        return changes.take(np.where(winners == NO_ROW, last_delete, winners))

    def newer_wins(self, base: pa.Table, changes: pa.Table) -> Mask:
        both = pa.concat_tables([rows.select(self.ordering_fields) for rows in (base, changes)])
        ranks = ordering_ranks(both, self.ordering_fields)
        older, newer = ranks[: base.num_rows], ranks[base.num_rows :]
        wins: Mask = (newer >= older) | self._unconditional_deletes(changes)
        return wins

    def join(self, matched: MatchedRows) -> JoinedRows:
        return join_by_winner(matched, self)

    def apply(self, base: pa.Table, changes: pa.Table) -> MergeResult:
        return ChangeIndex(changes, self).merge_all(base)

    def _unconditional_deletes(self, changes: pa.Table) -> Mask:
        unconditional = find_unconditional_deletes(changes, self.ordering_fields)
        if self.deletes_are_unconditional:
            unconditional |= changes.column(CHANGE_KIND).to_numpy() == ChangeKind.DELETE
        return unconditional


def _select_winners(keys: KeyCodes, ranks: Ranks, rows: Rows) -> Rows:
    """Return for each key the last of its rows with the largest rank, or NO_ROW.

    Args:
        keys: key codes of all rows.
        ranks: rank of each row.
        rows: numbers of the rows to choose from.
    """
    largest = np.full(keys.key_count, np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(largest, keys.codes[rows], ranks[rows])
    return keys.last(rows[ranks[rows] == largest[keys.codes[rows]]])
