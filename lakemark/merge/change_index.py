"""Joins folded changes with the rows of a base file, which may be read in pieces."""

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
    """Numbers of rows that a merge inserted, updated and deleted in a file group.

    A change that lost against the base row is not counted.
    """

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
    """The live rows after a merge, in the columns of the table, and the merge's counts."""

    rows: pa.Table
    counts: MergeCounts


class ChangeIndex:
    """Changes, indexed by record key, to merge into the rows of a base file.

    A base file may be merged in pieces. Call ``merge`` for each piece, and then
    ``insert_unmatched``, which returns the upserts whose keys were in no piece. If the base file
    contains a key twice, both rows are changed.
    """

    def __init__(self, changes: pa.Table, rule: JoinRule, *, keeps_order: bool = True) -> None:
        """Index the changes.

        Args:
            changes: folded changes, at most one for each record key.
            rule: decides between a base row and the change to its key.
            keeps_order: pass False if the order of the merged rows does not matter. Then ``merge``
                copies fewer rows.
        """
        # Columns of one chunk are faster, because ``take`` joins several chunks at every call.
        self._changes = changes.combine_chunks()
        self._rule = rule
        self._place = _replace if keeps_order else _append
        self._keys = KeyLookup(changes.column(RECORD_KEY))
        self._is_upsert: Mask = changes.column(CHANGE_KIND).to_numpy() == ChangeKind.UPSERT
        self._was_matched = np.zeros(changes.num_rows, dtype=np.bool_)

    def merge(self, base: pa.Table) -> MergeResult:
        """Apply the changes to base rows. No new key is added.

        The rows keep their order, unless the index was created without ``keeps_order``.
        """
        matched_rows, change_rows = self._match(base)
        if len(matched_rows) == 0:
            return MergeResult(base, MergeCounts())
        joined = self._rule.join(MatchedRows(base, matched_rows, self._changes, change_rows))
        updated, deleted = matched_rows[joined.updated], matched_rows[joined.deleted]
        counts = MergeCounts(updated=len(updated), deleted=len(deleted))
        return MergeResult(self._place(base, updated, joined.rows, deleted), counts)

    def insert_unmatched(self, columns: list[str]) -> MergeResult:
        """Return the upserts whose keys were in no base row, with only the given columns."""
        new = np.flatnonzero(self._is_upsert & ~self._was_matched)
        return MergeResult(self._changes.select(columns).take(new), MergeCounts(inserted=len(new)))

    def merge_all(self, base: pa.Table) -> MergeResult:
        """Merge a whole base table, and return the merged base rows followed by the new rows."""
        merged = self.merge(base)
        inserted = self.insert_unmatched(base.column_names)
        return MergeResult(
            pa.concat_tables([merged.rows, inserted.rows]), merged.counts + inserted.counts
        )

    def _match(self, base: pa.Table) -> tuple[Rows, Rows]:
        """Return the row numbers of the base rows that have a change, and of their changes."""
        change_of_row = self._keys.find_rows(base.column(RECORD_KEY))
        matched_rows = np.flatnonzero(change_of_row != NO_ROW)
        change_rows = change_of_row[matched_rows]
        self._was_matched[change_rows] = True
        return matched_rows, change_rows


def _replace(base: pa.Table, replaced: Rows, rows: pa.Table, dropped: Rows) -> pa.Table:
    """Return ``base`` without its ``dropped`` rows, and with ``rows`` instead of ``replaced``."""
    source = np.arange(base.num_rows)
    source[replaced] = base.num_rows + np.arange(len(replaced))
    survives = np.ones(base.num_rows, dtype=np.bool_)
    survives[dropped] = False
    return pa.concat_tables([base, rows]).take(source[survives])


def _append(base: pa.Table, replaced: Rows, rows: pa.Table, dropped: Rows) -> pa.Table:
    """Return ``base`` without its ``replaced`` and ``dropped`` rows, followed by ``rows``."""
    stays = np.ones(base.num_rows, dtype=np.bool_)
    stays[replaced] = False
    stays[dropped] = False
    return pa.concat_tables([base.filter(pa.array(stays)), rows])
