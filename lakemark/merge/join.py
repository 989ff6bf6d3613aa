"""Base rows joined with the changes to their keys, and the result for each base row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lakemark.merge.key_codes import Mask, Rows
from lakemark.merge.ordering import ordering_columns
from lakemark.merge.partial_update.missing_columns import Filling, filling_of
from lakemark.model.changes import CHANGE_KIND, ChangeKind


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Base rows, each matched with the change to its key.

    Attributes:
        base: rows of the table.
        base_rows: numbers of the base rows that have a change.
        changes: the changes, in one chunk.
        change_rows: numbers of their changes, aligned with ``base_rows``.
    """

    base: pa.Table
    base_rows: Rows
    changes: pa.Table
    change_rows: Rows

    def where(self, chosen: Mask) -> Pairs:
        """Some of the matches."""
        return Pairs(self.base, self.base_rows[chosen], self.changes, self.change_rows[chosen])

    def older(self) -> pa.Table:
        """The matched base rows."""
        return self.base.take(self.base_rows)

    def newer(self) -> pa.Table:
        """Their changes, row by row."""
        return self.changes.take(self.change_rows)


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """The result for matched base rows; those in neither mask stay unchanged.

    Attributes:
        updated: matches whose base row is replaced.
        deleted: matches whose base row is deleted.
        rows: replacements of the updated base rows, in the columns of the base.
    """

    updated: Mask
    deleted: Mask
    rows: pa.Table


class PairRule(Protocol):
    """Decides between a base row and the change to its key."""

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """The columns that the rule compares."""
        ...

    def join(self, pairs: Pairs) -> Joined:
        """Return the result for the matched base rows."""
        ...


class WinnerRule(Protocol):
    """A rule by which one of two records wins; missing columns of the winner may be filled."""

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """The columns that the rule compares."""
        ...

    @property
    def filling(self) -> Filling | None:
        """How missing columns of one record come from the other; None if they do not."""
        ...

    def newer_wins(self, base: pa.Table, changes: pa.Table) -> Mask:
        """For aligned rows with the same keys: whether the change replaces the base row.

        Args:
            base: the ordering columns, named like the fields.
            changes: the same columns, and the kinds of the changes.
        """
        ...


def join_winners(pairs: Pairs, rule: WinnerRule) -> Joined:
    """Join rows by a rule that lets one of the two win."""
    fields = rule.ordering_fields
    older = ordering_columns(pairs.base, fields).take(pairs.base_rows)
    newer = ordering_columns(pairs.changes, fields, CHANGE_KIND).take(pairs.change_rows)
    wins = rule.newer_wins(older, newer)
    filling = filling_of(pairs.changes, rule.filling)
    is_upsert: Mask = newer.column(CHANGE_KIND).to_numpy() == ChangeKind.UPSERT
    # A base row that wins may still be filled from the change that lost.
    updated = is_upsert & (wins | (filling is not None))
    rows = _winning_rows(pairs.where(updated), wins[updated], filling)
    return Joined(updated, wins & ~is_upsert, rows)


def _winning_rows(pairs: Pairs, wins: Mask, filling: Filling | None) -> pa.Table:
    if filling is None:
        return pairs.changes.select(pairs.base.column_names).take(pairs.change_rows)
    return filling.join(pairs.older(), pairs.newer(), wins)
