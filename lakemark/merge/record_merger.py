"""The one merge: which of several records with the same key survives.

Precombine, copy-on-write, compaction, log compaction and queries all use it. It has two operations:
``fold`` reduces a sequence of changes to one per key, and ``apply`` applies folded changes to base
rows. The two cannot be exchanged: Hudi folds the logs before it reads the base file, and with
unconditional deletes merging is not associative (specification, "Record Merger"; format, section
7).

The rules of ``EVENT_TIME_ORDERING``, for a change that meets the current result of its key
(``BufferedRecordMergerFactory.EventTimeRecordMerger`` of Apache Hudi 1.2.0):

- the newer one wins unless its ordering value is smaller; if they are equal, the newer one wins;
- an unconditional delete (``COMMIT_TIME_DELETE``) always wins, and forgets the earlier record;
- any change after an unconditional delete wins over it, except a ``DELETE``, which is dropped;
- a delete with the ordering value 0 (an integer), or without one, is unconditional.

``COMMIT_TIME_ORDERING``: the newer one always wins.
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
    """Merges records with the same key; picklable, without state.

    ``ordering_fields`` must be among the columns of its input, in addition to the record key.
    """

    @property
    def partial_update(self) -> PartialUpdate | None:
        """How missing columns of one record come from the other; None if they do not."""
        ...

    @property
    def needs_whole_rows(self) -> bool:
        """Whether it reads all columns; if not, only ordering columns and keys are needed."""
        ...

    def fold(self, changes: pa.Table, key_columns: Sequence[str] = (RECORD_KEY,)) -> pa.Table:
        """Reduce changes to at most one per key, keys in order of their first appearance.

        Args:
            changes: a table of changes (``lakemark.model.changes``), oldest first.
            key_columns: columns of the key. For one file group, the record key. For a batch that
                is not divided into file groups yet, partition path and record key.

        Raises:
            InvalidRecords: a record key is null.
            InvalidConfig: an ordering field is missing or has no order.
        """
        ...

    def apply(self, base: pa.Table, changes: pa.Table) -> MergeResult:
        """Apply folded changes to base rows.

        Deletes drop rows, winners replace rows in their position, and new keys follow at the end
        in the order of the changes. A key that a base file holds twice is changed twice.
        """
        ...


def commit_time_merger(partial_update: PartialUpdate | None = None) -> RecordMerger:
    """The later change wins."""
    return _CommitTimeMerger(partial_update=partial_update)


def event_time_merger(
    ordering_fields: Sequence[str],
    partial_update: PartialUpdate | None = None,
    *,
    deletes_are_unconditional: bool = False,
) -> RecordMerger:
    """The change with the larger ordering value wins.

    Args:
        ordering_fields: the columns of that value.
        partial_update: how missing columns of one record come from another.
        deletes_are_unconditional: whether records of delete blocks always win.

    Raises:
        InvalidConfig: no ordering field.
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
    """For every key the last of ``rows`` that has its largest rank; NO_ROW if it has no row."""
    largest = np.full(keys.key_count, np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(largest, keys.codes[rows], ranks[rows])
    return keys.last(rows[ranks[rows] == largest[keys.codes[rows]]])
