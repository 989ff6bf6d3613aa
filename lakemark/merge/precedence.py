"""How several changes to a key decide its final value.

The changes of a key are processed in order; each meets the result of the earlier ones. A change
either leads (it replaces that result) or is late. A delete that leads makes all earlier changes
void. So the last change that leads decides the result of a key. Columns that it lacks come from
the other changes that still contribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.merge.key_codes import NO_ROW, KeyCodes, Mask, Rows
from lakemark.merge.ordering import Ranks, find_default_ordering
from lakemark.model.changes import CHANGE_KIND, ChangeKind

#: The change kind of each row.
Kinds: TypeAlias = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class Precedence:
    """The role of each of several changes.

    Attributes:
        winners: for each key the last row that leads.
        contributes: rows whose columns contribute to the result; none for a key that ends deleted.
        leads: the contributing rows that lead; the others are late.
    """

    winners: Rows
    contributes: Mask
    leads: Mask


def find_unconditional_deletes(changes: pa.Table, ordering_fields: Sequence[str]) -> Mask:
    """Find deletes that always win: those without an ordering value, or with Hudi's default."""
    kinds = changes.column(CHANGE_KIND).to_numpy()
    unconditional: Mask = kinds == ChangeKind.COMMIT_TIME_DELETE
    ordered = (kinds == ChangeKind.DELETE) | (kinds == ChangeKind.FLAGGED_DELETE)
    if ordered.any():
        unconditional |= ordered & find_default_ordering(changes, ordering_fields)
    return unconditional


def find_effective_rows(kinds: Kinds, keys: KeyCodes, unconditional: Mask) -> tuple[Mask, Rows]:
    """Find the rows that remain effective after unconditional deletes, and these deletes.

    Of a key's changes only those after its last unconditional delete are effective. Of these, only
    the ones from the first data row on are.

    Returns:
        A mask of rows; and for each key its last unconditional delete, or NO_ROW.
    """
    rows = np.arange(len(kinds))
    last_delete = keys.last(rows[unconditional])
    is_after = rows > last_delete[keys.codes]
    had_delete = last_delete[keys.codes] != NO_ROW
    restart = keys.first(rows[is_after & ((kinds != ChangeKind.DELETE) | ~had_delete)])[keys.codes]
    return is_after & (rows >= restart) & (restart != NO_ROW), last_delete


def decide_by_rank(kinds: Kinds, keys: KeyCodes, ranks: Ranks, unconditional: Mask) -> Precedence:
    """Decide by rank: the larger leads, for deletes too; of equal ranks the later change leads."""
    rows = np.arange(len(kinds))
    is_effective, last_delete = find_effective_rows(kinds, keys, unconditional)
    leads = _find_leading(keys, ranks, is_effective)
    winners = keys.last(rows[leads])
    winners = np.where(winners == NO_ROW, last_delete, winners)
    is_upsert = kinds == ChangeKind.UPSERT
    deleted_at = keys.last(rows[leads & ~is_upsert])[keys.codes]
    # Late changes before a leading delete are lost; a delete has no columns to fill.
    begin = keys.first(rows[leads & (rows > deleted_at)])[keys.codes]
    counts = is_effective & is_upsert & (rows >= begin) & (begin != NO_ROW)
    return Precedence(winners, counts, leads & counts)


def decide_by_payload(
    kinds: Kinds, keys: KeyCodes, ranks: Ranks, unconditional: Mask
) -> Precedence:
    """The rule of older payloads: a delete leads for any rank, of data the larger rank leads.

    The columns of a data row that is flagged as deleted contribute to later changes.
    """
    rows = np.arange(len(kinds))
    is_upsert = kinds == ChangeKind.UPSERT
    last_delete = keys.last(rows[~is_upsert])
    deleted_at = last_delete[keys.codes]
    has_columns = (rows == deleted_at) & (kinds == ChangeKind.FLAGGED_DELETE) & ~unconditional
    is_effective = (rows > deleted_at) | has_columns
    leads = _find_leading(keys, ranks, is_effective)
    winners = keys.last(rows[leads])
    winners = np.where(winners == NO_ROW, last_delete, winners)
    begin = keys.first(rows[leads & is_upsert])[keys.codes]
    counts = (has_columns | (is_effective & (rows >= begin))) & (begin != NO_ROW)
    return Precedence(winners, counts, leads & counts)


def _find_leading(keys: KeyCodes, ranks: Ranks, is_effective: Mask) -> Mask:
    """Effective rows whose rank no earlier effective row of their key exceeds."""
    if len(ranks) == 0:
        return is_effective
    dense_ranks = np.unique(ranks, return_inverse=True)[1].astype(np.int64) + 1
    dense_ranks[~is_effective] = 0
    order = np.argsort(keys.codes, kind="stable")
    # Concatenates the keys, and shifts the ranks of each key above all ranks of the previous one.
    stacked = keys.codes[order] * (len(ranks) + 2) + dense_ranks[order]
    leads = np.empty(len(ranks), dtype=np.bool_)
    leads[order] = stacked == np.maximum.accumulate(stacked)
    return leads & is_effective
