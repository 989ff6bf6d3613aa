"""Joins base rows with the changes to their keys, and decides the result for each base row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lakemark.merge.key_codes import Mask, Rows
from lakemark.merge.ordering import select_ordering_columns
from lakemark.merge.partial_update.missing_columns import PartialUpdate, partial_update_for
from lakemark.model.changes import CHANGE_KIND, ChangeKind


@dataclass(frozen=True, slots=True, eq=False)
class MatchedRows:
    """Base rows, each matched with the change to its key.

    Attributes:
        base: rows of the base file.
        base_rows: row numbers in ``base`` of the matched rows.
        changes: the changes, in one chunk.
        change_rows: row numbers in ``changes``; the ``i``-th change matches the ``i``-th base row.
    """

    base: pa.Table
    base_rows: Rows
    changes: pa.Table
    change_rows: Rows

    def filter(self, chosen: Mask) -> MatchedRows:
        """Return only the matches that the mask selects."""
        return MatchedRows(
            self.base, self.base_rows[chosen], self.changes, self.change_rows[chosen]
        )

    def older_rows(self) -> pa.Table:
        """Return the matched base rows."""
        return self.base.take(self.base_rows)

    def newer_rows(self) -> pa.Table:
        """Return the changes to the matched base rows, in the same order as ``older_rows``."""
        return self.changes.take(self.change_rows)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRows:
    """The result for matched base rows. A matched base row in neither mask stays unchanged.

    Attributes:
        updated: mask of the matches whose base row is replaced.
        deleted: mask of the matches whose base row is deleted.
        rows: the rows that replace the updated base rows, in the columns of the base file.
    """

    updated: Mask
    deleted: Mask
    rows: pa.Table


class JoinRule(Protocol):
    """Decides between a base row and the change to its key."""

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """The columns that the rule compares."""
        ...

    def join(self, matched: MatchedRows) -> JoinedRows:
        """Return the result for the matched base rows."""
        ...


class WinnerRule(Protocol):
    """Decides which of two records with the same key wins.

    Missing columns of the winner may be filled from the other record.
    """

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """The columns that the rule compares."""
        ...

    @property
    def partial_update(self) -> PartialUpdate | None:
        """How missing columns are filled from the other record; None if they are not filled."""
        ...

    def newer_wins(self, base: pa.Table, changes: pa.Table) -> Mask:
        """Return whether each change replaces the base row with the same key.

        Args:
            base: ordering columns of the base rows, named like the ordering fields.
            changes: ordering columns and ``CHANGE_KIND`` of the changes, aligned with ``base``.
        """
        ...


def join_by_winner(matched: MatchedRows, rule: WinnerRule) -> JoinedRows:
    """Join base rows with their changes by a rule that chooses one record of each pair."""
    fields = rule.ordering_fields
    older = select_ordering_columns(matched.base, fields).take(matched.base_rows)
    newer = select_ordering_columns(matched.changes, fields, CHANGE_KIND).take(matched.change_rows)
    wins = rule.newer_wins(older, newer)
    partial_update = partial_update_for(matched.changes, rule.partial_update)
    is_upsert: Mask = newer.column(CHANGE_KIND).to_numpy() == ChangeKind.UPSERT
    # Even if the base row wins, its missing columns may be filled from the change.
    updated = is_upsert & (wins | (partial_update is not None))
    rows = _select_winning_rows(matched.filter(updated), wins[updated], partial_update)
    return JoinedRows(updated, wins & ~is_upsert, rows)


def _select_winning_rows(
    matched: MatchedRows, wins: Mask, partial_update: PartialUpdate | None
) -> pa.Table:
    if partial_update is None:
        return matched.changes.select(matched.base.column_names).take(matched.change_rows)
    return partial_update.join(matched.older_rows(), matched.newer_rows(), wins)
