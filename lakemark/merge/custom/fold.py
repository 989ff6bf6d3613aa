"""The order in which the changes of a key are merged.

Merging is associative, so neighbouring changes may be merged first. The changes of a key are halved
until one is left, with one call per round for all keys; the number of rounds is the number of
binary digits of the count. In this order the merger does not see the result of all earlier changes.
So it is used only within runs of upserts that have every column. Two kinds of changes are merged
one by one, oldest first: deletes, because an unconditional delete is not associative in Hudi's own
rules; and changes of keys with partial rows, because the source of a missing column depends on
which changes met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lakemark.merge.key_codes import KeyCodes, Mask, Rows

#: Merges older changes with newer ones of the same keys, row by row.
Merge: TypeAlias = Callable[[pa.Table, pa.Table], pa.Table]


def fold_changes(changes: pa.Table, keys: KeyCodes, is_alone: Mask, merge: Merge) -> pa.Table:
    """Fold changes to one per key, in the order of the key codes.

    Args:
        changes: oldest first; at least one.
        keys: key codes of the changes.
        is_alone: changes that must be merged with the result of all earlier changes, and not with
            a neighbour first.
        merge: merges two changes of each of several keys.
    """
    runs = _Runs.of(keys, is_alone)
    halved = _merge_by_halves(changes.take(runs.order), runs.run_of_row, merge)
    return _merge_one_by_one(halved, KeyCodes(runs.key_of_run, keys.key_count), merge)


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Neighbouring changes of a key that may be merged first.

    Attributes:
        order: row numbers of the changes, key by key.
        run_of_row: the run of each change in that order, ascending.
        key_of_run: the key of each run, ascending.
    """

    order: Rows
    run_of_row: Rows
    key_of_run: Rows

    @classmethod
    def of(cls, keys: KeyCodes, is_alone: Mask) -> _Runs:
        order = np.argsort(keys.codes, kind="stable")
        codes, alone = keys.codes[order], is_alone[order]
        begins = _run_starts(codes) | alone
        begins[1:] |= alone[:-1]
        return cls(order, np.cumsum(begins) - 1, codes[begins])


def _merge_by_halves(rows: pa.Table, runs: Rows, merge: Merge) -> pa.Table:
    """Merge each run to one row; input and result are in the order of the runs."""
    finished: list[pa.Table] = []
    finished_runs: list[Rows] = []
    while True:
        begins, ends = _run_starts(runs), _run_starts(runs[::-1])[::-1]
        alone = np.flatnonzero(begins & ends)
        finished.append(rows.take(alone))
        finished_runs.append(runs[alone])
        is_even = _positions_in_run(begins) % 2 == 0
        older, odd = (np.flatnonzero(is_even & one) for one in (~ends, ends & ~begins))
        if len(older) == 0:
            break
        merged = merge(rows.take(older), rows.take(older + 1))
        runs = np.concatenate([runs[older], runs[odd]])
        order = np.argsort(runs, kind="stable")
        rows, runs = pa.concat_tables([merged, rows.take(odd)]).take(order), runs[order]
    return pa.concat_tables(finished).take(np.argsort(np.concatenate(finished_runs)))


def _merge_one_by_one(changes: pa.Table, keys: KeyCodes, merge: Merge) -> pa.Table:
    """Round ``k`` merges the ``k``-th change of every key that has one with its earlier ones."""
    if keys.are_unique:
        return changes
    rounds = _Rounds.of(keys)
    merged = changes.take(rounds.rows(0))
    finished = []
    for number in range(1, rounds.count):
        newer = changes.take(rounds.rows(number))
        finished.append(merged.slice(len(newer)))
        merged = merge(merged.slice(0, len(newer)), newer)
    # Keys with the fewest changes finished first, and their rows come last.
    return pa.concat_tables([merged, *finished[::-1]]).take(rounds.position_of_key)


@dataclass(frozen=True, slots=True, eq=False)
class _Rounds:
    """Rows of keys in rounds; keys with the most rows come first in each, so each is a prefix.

    Attributes:
        order: row numbers, key by key as ``keys_by_count`` orders them, each key's in sequence.
        starts: index in ``order`` at which the rows of each key begin.
        counts: rows of each key, descending.
        position_of_key: position of each key code in a round.
    """

    order: Rows
    starts: Rows
    counts: Rows
    position_of_key: Rows

    @classmethod
    def of(cls, keys: KeyCodes) -> _Rounds:
        counts = np.bincount(keys.codes, minlength=keys.key_count)
        keys_by_count = np.argsort(-counts, kind="stable")
        position_of_key = np.empty(keys.key_count, np.int64)
        position_of_key[keys_by_count] = np.arange(keys.key_count)
        order = np.argsort(position_of_key[keys.codes], kind="stable")
        descending = counts[keys_by_count]
        starts = np.cumsum(descending) - descending
        return cls(order, starts, descending, position_of_key)

    @property
    def count(self) -> int:
        return int(self.counts[0])

    def rows(self, number: int) -> Rows:
        """Return the rows of a round: one of every key that has that many earlier rows."""
        has_one = np.searchsorted(-self.counts, -number, side="left")
        rows: Rows = self.order[self.starts[:has_one] + number]
        return rows


def _run_starts(numbers: Rows) -> Mask:
    """Return whether a number differs from the one before it."""
    begins: Mask = np.ones(len(numbers), np.bool_)
    begins[1:] = numbers[1:] != numbers[:-1]
    return begins


def _positions_in_run(begins: Mask) -> Rows:
    """Return the position of each row in its run, from 0."""
    rows = np.arange(len(begins))
    positions: Rows = rows - np.maximum.accumulate(np.where(begins, rows, 0))
    return positions
