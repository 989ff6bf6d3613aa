"""Decides which of several changes to a key win and contribute columns.

The changes to a key are processed in order. Each change is compared with the result of the earlier
changes. A change that wins replaces the result and is called leading; any other change is called
late. A leading delete also discards the columns of all earlier changes. So the last leading change
is the result of the key. Columns that the result lacks are filled from the changes that were not
discarded.
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
    """The role of each change in the result of its key.

    Attributes:
        winners: for each key, the number of its last leading row. If no row leads, this is the
            delete that discarded all earlier rows.
        contributes: mask of the rows whose columns contribute to the result. If the result is a
            delete, no row of the key contributes.
        leads: mask of the contributing rows that lead. The other contributing rows are late.
    """

    winners: Rows
    contributes: Mask
    leads: Mask


def find_unconditional_deletes(changes: pa.Table, ordering_fields: Sequence[str]) -> Mask:
    """Return which rows are deletes that always win.

    A delete always wins if it has no ordering value, or Hudi's default ordering value 0.
    """
    kinds = changes.column(CHANGE_KIND).to_numpy()
    unconditional: Mask = kinds == ChangeKind.COMMIT_TIME_DELETE
    ordered = (kinds == ChangeKind.DELETE) | (kinds == ChangeKind.FLAGGED_DELETE)
    if ordered.any():
        unconditional |= ordered & find_default_ordering(changes, ordering_fields)
    return unconditional


def find_effective_rows(kinds: Kinds, keys: KeyCodes, unconditional: Mask) -> tuple[Mask, Rows]:
    """Find the changes that are effective after the last unconditional delete of their key.

    ``DELETE`` changes directly after such a delete are not effective either, because the first
    effective change is the first change of another kind. If a key has no unconditional delete, all
    its changes are effective.

    Returns:
        A mask of the effective rows, and for each key its last unconditional delete or NO_ROW.
    """
    rows = np.arange(len(kinds))
    last_delete = keys.last(rows[unconditional])
    is_after = rows > last_delete[keys.codes]
    had_delete = last_delete[keys.codes] != NO_ROW
    restart = keys.first(rows[is_after & ((kinds != ChangeKind.DELETE) | ~had_delete)])[keys.codes]
    return is_after & (rows >= restart) & (restart != NO_ROW), last_delete


def decide_by_rank(kinds: Kinds, keys: KeyCodes, ranks: Ranks, unconditional: Mask) -> Precedence:
    """Decide by rank: a change leads unless its rank is smaller than the result's rank so far.

    The rule is the same for upserts and deletes.
    """
    rows = np.arange(len(kinds))
    is_effective, last_delete = find_effective_rows(kinds, keys, unconditional)
    leads = _find_leading(keys, ranks, is_effective)
    winners = keys.last(rows[leads])
    winners = np.where(winners == NO_ROW, last_delete, winners)
    is_upsert = kinds == ChangeKind.UPSERT
    deleted_at = keys.last(rows[leads & ~is_upsert])[keys.codes]
    # A leading delete discards the columns of all earlier changes, late ones included.
    begin = keys.first(rows[leads & (rows > deleted_at)])[keys.codes]
    counts = is_effective & is_upsert & (rows >= begin) & (begin != NO_ROW)
    return Precedence(winners, counts, leads & counts)


def decide_by_payload(
    kinds: Kinds, keys: KeyCodes, ranks: Ranks, unconditional: Mask
) -> Precedence:
    """Decide by the rule of the payload classes in ``lakemark.merge.payload_merger``.

    A delete leads regardless of its rank. A data row leads unless its rank is smaller than the
    result's rank so far. The columns of a data row that is flagged as deleted contribute to later
    changes.
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
    """Return the effective rows that have the largest rank of their key's effective rows so far."""
    if len(ranks) == 0:
        return is_effective
    dense_ranks = np.unique(ranks, return_inverse=True)[1].astype(np.int64) + 1
    dense_ranks[~is_effective] = 0
    order = np.argsort(keys.codes, kind="stable")
    # The rows are sorted by key, and each key's ranks are shifted above those of the key before.
    # So one running maximum over all rows is also the running maximum within each key.
    stacked = keys.codes[order] * (len(ranks) + 2) + dense_ranks[order]
    leads = np.empty(len(ranks), dtype=np.bool_)
    leads[order] = stacked == np.maximum.accumulate(stacked)
    return leads & is_effective
