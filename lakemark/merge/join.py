"""Base rows and the changes of their keys side by side, and what becomes of the base rows."""

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
    """Pairs of a base row and the change of its key.

    Attributes:
        base: rows of the table.
        base_rows: of them, those that have a change.
        changes: in one chunk.
        change_rows: of them, the ones that these rows have, side by side with ``base_rows``.
    """

    base: pa.Table
    base_rows: Rows
    changes: pa.Table
    change_rows: Rows

    def where(self, chosen: Mask) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.base, self.base_rows[chosen], self.changes, self.change_rows[chosen])

    def older(self) -> pa.Table:
        """The base rows alone."""
        return self.base.take(self.base_rows)

    def newer(self) -> pa.Table:
        """Their changes alone."""
        return self.changes.take(self.change_rows)


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """What becomes of the base rows of pairs; those in neither mask stay as they are.

    Attributes:
        updated: the pairs whose base row another one takes the place of.
        deleted: the pairs whose base row goes.
        rows: what takes the place of the updated, in the columns of the base.
    """

    updated: Mask
    deleted: Mask
    rows: pa.Table


class PairRule(Protocol):
    """What decides between a base row and the change of its key."""

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """Columns that it looks at."""
        ...

    def join(self, pairs: Pairs) -> Joined:
        """What becomes of the base rows."""
        ...


class WinnerRule(Protocol):
    """A rule by which one of two records wins; what the winner leaves open may be filled."""

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """Columns that it looks at."""
        ...

    @property
    def filling(self) -> Filling | None:
        """How columns that one record leaves open come from the other; None where none does."""
        ...

    def newer_wins(self, base: pa.Table, changes: pa.Table) -> Mask:
        """For rows side by side with the same keys: whether the change replaces the base row.

        Args:
            base: the ordering columns, named as the fields are.
            changes: the same, and the kinds of the changes.
        """
        ...


def join_winners(pairs: Pairs, rule: WinnerRule) -> Joined:
    """The pairs joined by a rule that lets one of the two win."""
    fields = rule.ordering_fields
    older = ordering_columns(pairs.base, fields).take(pairs.base_rows)
    newer = ordering_columns(pairs.changes, fields, CHANGE_KIND).take(pairs.change_rows)
    wins = rule.newer_wins(older, newer)
    filling = filling_of(pairs.changes, rule.filling)
    is_upsert: Mask = newer.column(CHANGE_KIND).to_numpy() == ChangeKind.UPSERT
    # A row that keeps its place may still be filled from the change that lost.
    updated = is_upsert & (wins | (filling is not None))
    rows = _winning_rows(pairs.where(updated), wins[updated], filling)
    return Joined(updated, wins & ~is_upsert, rows)


def _winning_rows(pairs: Pairs, wins: Mask, filling: Filling | None) -> pa.Table:
    if filling is None:
        return pairs.changes.select(pairs.base.column_names).take(pairs.change_rows)
    return filling.join(pairs.older(), pairs.newer(), wins)
