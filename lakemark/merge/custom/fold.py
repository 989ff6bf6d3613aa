"""Folds the changes of each key with a custom merger, in an order that needs few calls.

Merging is associative, so neighbouring changes of a key may be merged first. In each round, one
call merges pairs of neighbours of all keys, until each key has one change. The number of rounds
grows with the logarithm of the number of changes. In this order, a change is not merged with the
result of all earlier changes. So only runs of upserts that have every column are merged in pairs.

Two kinds of changes are merged one by one, oldest first:

- deletes, because in Hudi's own rules merging an unconditional delete is not associative
- changes of keys with partial rows, because the order of merging determines from which change a
  missing column is filled
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lakemark.merge.key_codes import KeyCodes, Mask, Rows

#: Merges older changes with newer changes to the same keys, row by row.
Merge: TypeAlias = Callable[[pa.Table, pa.Table], pa.Table]


def fold_changes(changes: pa.Table, keys: KeyCodes, is_alone: Mask, merge: Merge) -> pa.Table:
    """Fold changes to one per key, in the order of the key codes.

    Args:
        changes: at least one change, oldest first.
        keys: key codes of the changes.
        is_alone: mask of the changes that must not be merged with a neighbour first, but only with
            the result of all earlier changes.
        merge: merges two changes of each of several keys.
    """
    runs = _Runs.of(keys, is_alone)
    halved = _merge_by_halves(changes.take(runs.order), runs.run_of_row, merge)
    return _merge_one_by_one(halved, KeyCodes(runs.key_of_run, keys.key_count), merge)


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Runs of neighbouring changes of a key that may be merged with each other first.

    Attributes:
        order: row numbers of the changes, sorted by key.
        run_of_row: number of the run of each change in ``order``, ascending.
        key_of_run: key code of each run, ascending.
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
    """Merge each run to one row; ``rows`` and the result are sorted by run."""
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
    """Fold the changes of each key in their order.

    Round ``k`` merges, for every key with more than ``k`` changes, the result so far with change
    ``k`` (counted from 0).
    """
    if keys.are_unique:
        return changes
    rounds = _Rounds.of(keys)
    merged = changes.take(rounds.rows(0))
    finished = []
    for number in range(1, rounds.count):
        newer = changes.take(rounds.rows(number))
        finished.append(merged.slice(len(newer)))
        merged = merge(merged.slice(0, len(newer)), newer)
    # Keys with the fewest changes are finished first, and their rows come last.
    return pa.concat_tables([merged, *finished[::-1]]).take(rounds.position_of_key)


@dataclass(frozen=True, slots=True, eq=False)
class _Rounds:
    """The rows of each round of merging.

    Keys are sorted by their number of rows, most rows first. So the keys of a round are always the
    first keys of the round before.

    Attributes:
        order: row numbers, sorted by the position of their key; the rows of a key keep their order.
        starts: for each key, in sorted order, the index in ``order`` of its first row.
        counts: number of rows of each key, in sorted order and so descending.
        position_of_key: for each key code, the key's position in sorted order.
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
        """Return the rows of a round.

        For each key with more than ``number`` rows, this is row ``number``, counted from 0.
        """
        has_one = np.searchsorted(-self.counts, -number, side="left")
        rows: Rows = self.order[self.starts[:has_one] + number]
        return rows


def _run_starts(numbers: Rows) -> Mask:
    """Return which numbers differ from the number before."""
    begins: Mask = np.ones(len(numbers), np.bool_)
    begins[1:] = numbers[1:] != numbers[:-1]
    return begins


def _positions_in_run(begins: Mask) -> Rows:
    """Return the position of each row in its run, from 0."""
    rows = np.arange(len(begins))
    positions: Rows = rows - np.maximum.accumulate(np.where(begins, rows, 0))
    return positions
