"""What each change to a key means for what becomes of the key.

The changes of a key come one after the other, and each meets what the ones before have come to. It
takes the lead, or it comes too late; a delete that takes the lead makes all before it void. So the
outcome of a key is decided by the last change that took the lead; and a column that this one leaves
open is looked for among the others that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.merge.key_codes import NO_ROW, KeyCodes, Mask, Rows
from lakemark.merge.ordering import Ranks, default_ordering
from lakemark.model.changes import CHANGE_KIND, ChangeKind

#: The change kind of each row.
Kinds: TypeAlias = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class Precedence:
    """The part that each of several changes plays.

    Attributes:
        winners: for each key the last row that took the lead.
        counts: rows whose columns are part of the outcome; none of a key that ends deleted.
        leads: those of them that took the lead; the others came late.
    """

    winners: Rows
    counts: Mask
    leads: Mask


def unconditional_deletes(changes: pa.Table, ordering_fields: Sequence[str]) -> Mask:
    """Rows that delete whatever they meet: without an ordering value, or with Hudi's default."""
    kinds = changes.column(CHANGE_KIND).to_numpy()
    unconditional: Mask = kinds == ChangeKind.COMMIT_TIME_DELETE
    ordered = (kinds == ChangeKind.DELETE) | (kinds == ChangeKind.FLAGGED_DELETE)
    if ordered.any():
        unconditional |= ordered & default_ordering(changes, ordering_fields)
    return unconditional


def after_unconditional_deletes(
    kinds: Kinds, keys: KeyCodes, unconditional: Mask
) -> tuple[Mask, Rows]:
    """Rows that count where unconditional deletes cut sequences short, and these deletes.

    Of a key's changes only those after its last unconditional delete count, and of those only the
    ones from the first data row on.

    Returns:
        A mask of rows; and for each key its last unconditional delete, or NO_ROW.
    """
    rows = np.arange(len(kinds))
    last_delete = keys.last(rows[unconditional])
    is_after = rows > last_delete[keys.codes]
    had_delete = last_delete[keys.codes] != NO_ROW
    restart = keys.first(rows[is_after & ((kinds != ChangeKind.DELETE) | ~had_delete)])[keys.codes]
    return is_after & (rows >= restart) & (restart != NO_ROW), last_delete


def by_rank(kinds: Kinds, keys: KeyCodes, ranks: Ranks, unconditional: Mask) -> Precedence:
    """The larger rank leads, deletes included; of equal ones the later."""
    rows = np.arange(len(kinds))
    in_play, last_delete = after_unconditional_deletes(kinds, keys, unconditional)
    leads = _leads(keys, ranks, in_play)
    winners = keys.last(rows[leads])
    winners = np.where(winners == NO_ROW, last_delete, winners)
    is_upsert = kinds == ChangeKind.UPSERT
    deleted_at = keys.last(rows[leads & ~is_upsert])[keys.codes]
    # What came late while a delete stood is lost; it had no columns to be filled.
    begin = keys.first(rows[leads & (rows > deleted_at)])[keys.codes]
    counts = in_play & is_upsert & (rows >= begin) & (begin != NO_ROW)
    return Precedence(winners, counts, leads & counts)


def by_payload(kinds: Kinds, keys: KeyCodes, ranks: Ranks, unconditional: Mask) -> Precedence:
    """As older payloads have it: a delete leads whatever its rank, of data the larger rank leads.

    The columns of a data row that is flagged as deleted count for what comes after it.
    """
    rows = np.arange(len(kinds))
    is_upsert = kinds == ChangeKind.UPSERT
    last_delete = keys.last(rows[~is_upsert])
    deleted_at = last_delete[keys.codes]
    has_columns = (rows == deleted_at) & (kinds == ChangeKind.FLAGGED_DELETE) & ~unconditional
    in_play = (rows > deleted_at) | has_columns
    leads = _leads(keys, ranks, in_play)
    winners = keys.last(rows[leads])
    winners = np.where(winners == NO_ROW, last_delete, winners)
    begin = keys.first(rows[leads & is_upsert])[keys.codes]
    counts = (has_columns | (in_play & (rows >= begin))) & (begin != NO_ROW)
    return Precedence(winners, counts, leads & counts)


def _leads(keys: KeyCodes, ranks: Ranks, in_play: Mask) -> Mask:
    """Rows in play whose rank no earlier row in play of their key exceeds."""
    if len(ranks) == 0:
        return in_play
    places = np.unique(ranks, return_inverse=True)[1].astype(np.int64) + 1
    places[~in_play] = 0
    order = np.argsort(keys.codes, kind="stable")
    # Keys one behind the other, each above all places of the one before.
    stacked = keys.codes[order] * (len(ranks) + 2) + places[order]
    leads = np.empty(len(ranks), dtype=np.bool_)
    leads[order] = stacked == np.maximum.accumulate(stacked)
    return leads & in_play
