"""Compares the rows of two tables by key, within one bucket of keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.model.python_values import python_value
from lakemark.schema.field_path import column_at
from streamer.comparison.key_buckets import key_column
from streamer.comparison.values import all_equal, equal_values

#: A key or a row, as Python values by column.
Facts = dict[str, Any]

#: Numbers of rows.
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DifferentRow:
    """A row of which the tables have different values.

    Attributes:
        key: the key of the row.
        values: the value in the old and in the new table, of each column that differs.
    """

    key: Facts
    values: Mapping[str, tuple[Any, Any]]


@dataclass(slots=True)
class RowComparison:
    """The counts of a comparison, and the first differences.

    Attributes:
        equal: the number of rows that are equal in both tables.
        only_old: the number of rows that only the old table has.
        only_new: the number of rows that only the new table has.
        different: the number of keys of which the tables have different rows.
        by_column: the number of different rows by column.
        examples_old: the keys of the first rows that only the old table has.
        examples_new: the keys of the first rows that only the new table has.
        examples_different: the first rows that differ.
        most_examples: how many examples of each kind are kept.
    """

    equal: int = 0
    only_old: int = 0
    only_new: int = 0
    different: int = 0
    by_column: Counter[str] = field(default_factory=Counter)
    examples_old: list[Facts] = field(default_factory=list)
    examples_new: list[Facts] = field(default_factory=list)
    examples_different: list[DifferentRow] = field(default_factory=list)
    most_examples: int = 5

    @property
    def is_equal(self) -> bool:
        """Whether both tables have the same rows."""
        return not (self.only_old or self.only_new or self.different)

    def add(self, old: pa.Table, new: pa.Table, key: Sequence[str]) -> None:
        """Compare the rows of one bucket of keys.

        Rows whose key is not unique are matched so that as many as possible are equal.

        Args:
            old: the rows of the old table.
            new: the rows of the new table, with the same columns in the same order.
            key: the columns of the key; a name with dots is the path of a field in structs.
        """
        old, new = (one.combine_chunks() for one in (old, new))
        codes, other_codes = _key_codes(old, new, key)
        is_repeated = _repeated(codes, other_codes)
        pairs = _pair_unique(codes, other_codes, is_repeated)
        compared = _compare(old, new, pairs)
        alone_old = np.setdiff1d(np.flatnonzero(~is_repeated[codes]), pairs[0])
        alone_new = np.setdiff1d(np.flatnonzero(~is_repeated[other_codes]), pairs[1])
        self._count(old, new, key, pairs, compared)
        self._count_alone(old, alone_old, new, alone_new, key)
        if is_repeated.any():
            self._add_repeated(
                old.take(np.flatnonzero(is_repeated[codes])),
                new.take(np.flatnonzero(is_repeated[other_codes])),
                key,
            )

    def _add_repeated(self, old: pa.Table, new: pa.Table, key: Sequence[str]) -> None:
        """Compare the rows whose keys are repeated in a table."""
        pairs, alone_old, alone_new = _pair_repeated(old, new, key)
        self._count(old, new, key, pairs, _compare(old, new, pairs))
        self._count_alone(old, alone_old, new, alone_new, key)

    def _count(
        self,
        old: pa.Table,
        new: pa.Table,
        key: Sequence[str],
        pairs: tuple[Positions, Positions],
        compared: Mapping[str, npt.NDArray[np.bool_]],
    ) -> None:
        """Count pairs of rows with the same key, and keep the first ones that differ."""
        same = all_equal(len(pairs[0]), compared.values())
        self.equal += int(same.sum())
        self.different += int((~same).sum())
        self.by_column.update(
            {name: count for name, one in compared.items() if (count := int((~one).sum()))}
        )
        for pair in np.flatnonzero(~same)[: self._room(self.examples_different)]:
            names = [name for name, one in compared.items() if not one[pair]]
            left, right = pairs[0][pair], pairs[1][pair]
            values = {
                name: (python_value(old[name][int(left)]), python_value(new[name][int(right)]))
                for name in names
            }
            self.examples_different.append(DifferentRow(_facts(old, left, key), values))

    def _count_alone(
        self, old: pa.Table, alone: Positions, new: pa.Table, others: Positions, key: Sequence[str]
    ) -> None:
        """Count the rows that only one table has, and keep the first ones."""
        self.only_old += len(alone)
        self.only_new += len(others)
        room, other_room = self._room(self.examples_old), self._room(self.examples_new)
        self.examples_old += [_facts(old, row, key) for row in alone[:room]]
        self.examples_new += [_facts(new, row, key) for row in others[:other_room]]

    def _room(self, examples: Sequence[object]) -> int:
        return max(0, self.most_examples - len(examples))


def _key_codes(old: pa.Table, new: pa.Table, key: Sequence[str]) -> tuple[Positions, Positions]:
    """Return a number for each row, which is the same if the keys are the same."""
    codes = np.zeros(len(old) + len(new), np.int64)
    for name in key:
        column = pa.concat_arrays([key_column(one, name) for one in (old, new)])
        encoded = column.dictionary_encode("encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, codes = np.unique(codes * max(len(encoded.dictionary), 1) + indices, return_inverse=True)
    return codes[: len(old)], codes[len(old) :]


def _repeated(codes: Positions, other_codes: Positions) -> npt.NDArray[np.bool_]:
    """Return for each number of a key whether a table has several rows with this key."""
    length = int(max(codes.max(initial=-1), other_codes.max(initial=-1))) + 1
    left, right = (np.bincount(one, minlength=length) > 1 for one in (codes, other_codes))
    is_repeated: npt.NDArray[np.bool_] = left | right
    return is_repeated


def _pair_unique(
    codes: Positions, other_codes: Positions, is_repeated: npt.NDArray[np.bool_]
) -> tuple[Positions, Positions]:
    """Return the positions of the rows with the same key in both tables, if the key is unique."""
    rows = np.full(len(is_repeated), -1, np.int64)
    rows[codes] = np.arange(len(codes))
    rows[is_repeated] = -1
    found = rows[other_codes]
    others = np.flatnonzero(found >= 0)
    return found[others], others


def _compare(
    old: pa.Table, new: pa.Table, pairs: tuple[Positions, Positions]
) -> dict[str, npt.NDArray[np.bool_]]:
    """Return for each column whether the values of each pair of rows are equal."""
    taken, others = (
        table.take(pa.array(rows)).combine_chunks()
        for table, rows in zip((old, new), pairs, strict=True)
    )
    return {
        name: equal_values(_only_chunk(taken[name]), _only_chunk(others[name]))
        for name in old.column_names
    }


def _pair_repeated(
    old: pa.Table, new: pa.Table, key: Sequence[str]
) -> tuple[tuple[Positions, Positions], Positions, Positions]:
    """Pair equal rows of each repeated key first, then the others; return the rest of both."""
    lefts, rights = _by_key(old, key), _by_key(new, key)
    pairs: list[tuple[int, int]] = []
    alone_old: list[int] = []
    alone_new: list[int] = []
    for one in dict.fromkeys([*lefts, *rights]):
        equal, rest, others = _pair_equal(lefts.get(one, []), rights.get(one, []))
        common = min(len(rest), len(others))
        pairs += [*equal, *zip(rest, others, strict=False)]
        alone_old += rest[common:]
        alone_new += others[common:]
    paired = np.array(pairs, np.int64).reshape(-1, 2)
    return (
        (paired[:, 0], paired[:, 1]),
        np.array(alone_old, np.int64),
        np.array(alone_new, np.int64),
    )


def _pair_equal(
    left: Sequence[tuple[int, str]], right: Sequence[tuple[int, str]]
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Pair rows with the same text; return the pairs, and the positions of the others."""
    waiting: dict[str, list[int]] = defaultdict(list)
    for row, text in right:
        waiting[text].append(row)
    pairs, rest = [], []
    for row, text in left:
        if waiting[text]:
            pairs.append((row, waiting[text].pop()))
        else:
            rest.append(row)
    return pairs, rest, sorted(row for rows in waiting.values() for row in rows)


def _by_key(table: pa.Table, key: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    """Return the positions and texts of the rows of each key."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    columns = [column_at(table, name).to_pylist() for name in key]
    keys = zip(*columns, strict=True) if columns else repeat((), len(table))
    for row, (one, values) in enumerate(zip(keys, table.to_pylist(), strict=True)):
        found[_text(one)].append((row, _text(values)))
    return found


def _text(value: Any) -> str:
    """Return a text that is the same for equal values, as ``equal_values`` defines them."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name!r}:{_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        parts: Iterator[str] = map(_text, value)
        is_map = bool(value) and all(isinstance(one, tuple) for one in value)
        return "[" + ",".join(sorted(parts) if is_map else parts) + "]"
    if isinstance(value, tuple):
        return "(" + ",".join(map(_text, value)) + ")"
    return repr(value + 0.0) if isinstance(value, float) else repr(value)


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _facts(table: pa.Table, row: int, names: Sequence[str]) -> Facts:
    return {name: python_value(column_at(table, name)[int(row)]) for name in names}
