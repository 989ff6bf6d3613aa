"""Folded changes, joined by record key with the rows of a base file as these stream past."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemark.merge.join import JoinRule, MatchedRows
from lakemark.merge.key_codes import NO_ROW, Mask, Rows
from lakemark.merge.key_lookup import KeyLookup
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.meta_columns import RECORD_KEY


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """What a merge did to the rows of a file group; a change that lost is not counted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __add__(self, other: MergeCounts) -> MergeCounts:
        return MergeCounts(
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.deleted + other.deleted,
        )


@dataclass(frozen=True, slots=True, eq=False)
class MergeResult:
    """Live rows after a merge, in the columns of the table, and the counts of changes."""

    rows: pa.Table
    counts: MergeCounts


class ChangeIndex:
    """Changes waiting for the base rows that they replace.

    A base file may be given in pieces: ``merge`` each piece, then add the changes whose keys no
    piece had (``insert_unmatched``). A key that the base file holds twice is changed twice.
    """

    def __init__(self, changes: pa.Table, rule: JoinRule) -> None:
        """Index the changes.

        Args:
            changes: folded, so with at most one change for each record key.
            rule: decides between a base row and a change to its key.
        """
        # One chunk per column, because ``take`` joins the chunks at every call.
        self._changes = changes.combine_chunks()
        self._rule = rule
        self._keys = KeyLookup(changes.column(RECORD_KEY))
        self._is_upsert: Mask = changes.column(CHANGE_KIND).to_numpy() == ChangeKind.UPSERT
        self._was_matched = np.zeros(changes.num_rows, dtype=np.bool_)

    def merge(self, base: pa.Table) -> MergeResult:
        """Apply the changes to base rows, which keep their order; new keys are not added."""
        matched_rows, change_rows = self._match(base)
        if len(matched_rows) == 0:
            return MergeResult(base, MergeCounts())
        joined = self._rule.join(MatchedRows(base, matched_rows, self._changes, change_rows))
        updated, deleted = matched_rows[joined.updated], matched_rows[joined.deleted]
        counts = MergeCounts(updated=len(updated), deleted=len(deleted))
        return MergeResult(_replace(base, updated, joined.rows, deleted), counts)

    def insert_unmatched(self, columns: list[str]) -> MergeResult:
        """Return the upserts whose keys no base row had, as rows of these columns."""
        new = np.flatnonzero(self._is_upsert & ~self._was_matched)
        return MergeResult(self._changes.select(columns).take(new), MergeCounts(inserted=len(new)))

    def merge_all(self, base: pa.Table) -> MergeResult:
        """Merge one base table completely: the merged base rows, then the inserted ones."""
        merged = self.merge(base)
        inserted = self.insert_unmatched(base.column_names)
        return MergeResult(
            pa.concat_tables([merged.rows, inserted.rows]), merged.counts + inserted.counts
        )

    def _match(self, base: pa.Table) -> tuple[Rows, Rows]:
        """Base rows that have a change, and the changes to them."""
        change_of_row = self._keys.find_rows(base.column(RECORD_KEY))
        matched_rows = np.flatnonzero(change_of_row != NO_ROW)
        change_rows = change_of_row[matched_rows]
        self._was_matched[change_rows] = True
        return matched_rows, change_rows


def _replace(base: pa.Table, replaced: Rows, rows: pa.Table, dropped: Rows) -> pa.Table:
    """``base`` with some rows replaced by others, and some dropped."""
    source = np.arange(base.num_rows)
    source[replaced] = base.num_rows + np.arange(len(replaced))
    survives = np.ones(base.num_rows, dtype=np.bool_)
    survives[dropped] = False
    return pa.concat_tables([base, rows]).take(source[survives])
