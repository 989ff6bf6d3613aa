"""Numbers record keys with small integers, in the order in which the keys first appear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.errors import InvalidConfig, InvalidRecords

Rows: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

#: The row number that stands for "no row" when rows are looked up by key.
NO_ROW = -1


@dataclass(frozen=True, slots=True, eq=False)
class KeyCodes:
    """The keys of rows as integers.

    Attributes:
        codes: for each row the code of its key, from 0 to ``key_count - 1``. Equal keys have equal
            codes.
        key_count: number of different keys.
    """

    codes: Rows
    key_count: int

    @property
    def are_unique(self) -> bool:
        """Whether no key appears twice."""
        return self.key_count == len(self.codes)

    def first(self, rows: Rows) -> Rows:
        """Return for each key the first of ``rows`` with that key, or NO_ROW.

        Args:
            rows: row numbers, in ascending order.
        """
        return self.last(rows[::-1])

    def last(self, rows: Rows) -> Rows:
        """Return for each key the last of ``rows`` with that key, or NO_ROW."""
        found = np.full(self.key_count, NO_ROW, dtype=np.int64)
        found[self.codes[rows]] = rows  # the last assignment to an element wins
        return found


def key_codes(rows: pa.Table, key_columns: Sequence[str]) -> KeyCodes:
    """Number the keys of ``rows``.

    Raises:
        InvalidRecords: a key column holds a null.
        InvalidConfig: a key column is missing.
    """
    first, *others = [_column_codes(rows, name) for name in key_columns]
    for other in others:
        first = _encode(pa.array(first.codes * max(other.key_count, 1) + other.codes))
    return first


def _column_codes(rows: pa.Table, name: str) -> KeyCodes:
    if name not in rows.column_names:
        message = f"key column {name!r} is not among the columns {rows.column_names}"
        raise InvalidConfig(message)
    column = rows.column(name)
    if column.null_count:
        message = (
            f"{column.null_count} of {len(column)} rows have no {name}; "
            "a record cannot be written or merged without a key"
        )
        raise InvalidRecords(message)
    return _encode(column)


def _encode(column: pa.ChunkedArray | pa.Array) -> KeyCodes:
    """Number the values of a column.

    The codes of all chunks are comparable, because the chunks of an encoded column share one
    dictionary.
    """
    encoded = column.dictionary_encode()
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    if not chunks:
        return KeyCodes(np.empty(0, dtype=np.int64), 0)
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
    return KeyCodes(codes.astype(np.int64), len(chunks[-1].dictionary))
