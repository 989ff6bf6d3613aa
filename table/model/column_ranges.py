"""What the columns of a data file hold: bounds and counts, gathered while it is written.

Which columns: Hudi's own three that say where and when, then the first ``MAX_COLUMNS`` of the table
whose values have an order. Source: ``HoodieTableMetadataUtil.getColumnsToIndex`` of Apache Hudi
1.2.0, ``hoodie.metadata.index.column.stats.max.columns.to.index``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from table.model.format_version import FormatVersion
from table.model.meta_columns import (
    COMMIT_TIME,
    PARTITION_PATH,
    RECORD_KEY,
    without_meta_columns,
)

#: Columns of the user's of which there are statistics.
MAX_COLUMNS = 32

#: Of a text or bytes beyond this length nothing is kept: it would be kept for every file.
MAX_BOUND_BYTES = 1024

_OWN = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
_OPERATION = "_hoodie_operation"
#: Digits before and after the point in decimals of statistics before table version 9.
_OLD_DIGITS = 15
_ORDERED = (
    pa.types.is_boolean,
    pa.types.is_int32,
    pa.types.is_int64,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_decimal,
    pa.types.is_date32,
    pa.types.is_time,
    lambda kind: pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"),
)


class ColumnSize(NamedTuple):
    """Bytes that a column takes in a file, with its pages compressed and not."""

    size_bytes: int
    uncompressed_bytes: int


#: Of what has no footer.
NO_SIZE = ColumnSize(0, 0)


@dataclass(frozen=True)
class ColumnRanges:
    """Bounds and counts of columns, of one file or of several; pickles to the driver.

    Attributes:
        bounds: two rows, the smallest and the largest value of each column; null where there is
            none.
        null_counts: of each column.
        value_counts: of each column, nulls counted.
        unknown: columns that hold values whose bounds are not kept.
        sizes: of columns of one file, as its footer tells them; of no column where none does.
    """

    bounds: pa.RecordBatch
    null_counts: tuple[int, ...]
    value_counts: tuple[int, ...]
    unknown: frozenset[str] = frozenset()
    sizes: Mapping[str, ColumnSize] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns that are known."""
        names: list[str] = self.bounds.schema.names
        return names

    @classmethod
    def of(cls, rows: pa.Table, columns: Iterable[str]) -> ColumnRanges:
        """The ranges of those columns that the rows have."""
        names = set(rows.column_names)
        arrays = {name: rows.column(name) for name in columns if name in names}
        bounds = {name: _bounds(array) for name, array in arrays.items()}
        known = {name: pair for name, pair in bounds.items() if pair is not None}
        return cls(
            pa.RecordBatch.from_arrays(list(known.values()), list(known)),
            tuple(arrays[name].null_count for name in known),
            tuple(len(arrays[name]) for name in known),
            frozenset(bounds.keys() - known.keys()),
        )

    @classmethod
    def united(cls, parts: Sequence[ColumnRanges]) -> ColumnRanges:
        """The ranges of all parts together; a column has the type that it has in the last one.

        Where two types of a column have no common order, nothing is known of it.
        """
        if len(parts) == 1:
            return parts[0]
        unknown = frozenset[str]().union(*(part.unknown for part in parts))
        held: dict[str, list[_Held]] = {}
        for part in parts:
            for place, name in enumerate(part.columns):
                held.setdefault(name, []).append((part, place))
        bounds = {n: _widest(where) for n, where in held.items() if n not in unknown}
        known = {name: pair for name, pair in bounds.items() if pair is not None}
        return cls(
            pa.RecordBatch.from_arrays(list(known.values()), list(known)),
            tuple(sum(part.null_counts[at] for part, at in held[name]) for name in known),
            tuple(sum(part.value_counts[at] for part, at in held[name]) for name in known),
            unknown | (bounds.keys() - known.keys()),
        )

    def without(self, columns: Iterable[str]) -> ColumnRanges:
        """The same, where of these columns nothing is known."""
        unknown = self.unknown | frozenset(columns)
        if unknown == self.unknown:
            return self
        kept = [place for place, name in enumerate(self.columns) if name not in unknown]
        return ColumnRanges(
            self.bounds.select(kept),
            tuple(self.null_counts[place] for place in kept),
            tuple(self.value_counts[place] for place in kept),
            unknown,
            self.sizes,
        )

    @cached_property
    def _pairs(self) -> list[_Pair]:
        """The bounds of each column as values that are ordered as the column's are."""
        return [tuple(_plain(column).to_pylist()) for column in self.bounds.columns]


#: A part that knows a column, and the column's place in it.
_Held: TypeAlias = tuple[ColumnRanges, int]

#: The smallest and the largest value of a column.
_Pair: TypeAlias = tuple[Any, Any]


def indexed_columns(
    schema: pa.Schema, version: FormatVersion = FormatVersion.V9
) -> tuple[str, ...]:
    """The columns of a table of that version of which statistics are kept; meta columns first."""
    own = [name for name in _OWN if name in schema.names]
    ordered = [
        field.name
        for field in without_meta_columns(schema)
        if field.name != _OPERATION
        and any(check(field.type) for check in _ORDERED)
        and (version is FormatVersion.V9 or not _is_wide_decimal(field.type))
    ]
    return (*own, *ordered[:MAX_COLUMNS])


def _is_wide_decimal(kind: pa.DataType) -> bool:
    """Whether a value may not fit the one decimal, of 30 digits, that versions before 9 store."""
    if not pa.types.is_decimal(kind):
        return False
    return bool(kind.scale > _OLD_DIGITS or kind.precision - kind.scale > _OLD_DIGITS)


def _bounds(values: pa.ChunkedArray) -> pa.Array | None:
    """Smallest and largest value; None when they say too little, or too much.

    A NaN is larger than all else in Spark, and is left out by Arrow.
    """
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return None
    extremes = pc.min_max(values)
    pair = pa.array([extremes["min"], extremes["max"]], values.type)
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        if pair.nbytes > MAX_BOUND_BYTES and _longest(pair) > MAX_BOUND_BYTES:
            return None
    return pair


def _longest(pair: pa.Array) -> int:
    """Bytes of the longer one of two texts."""
    length: int | None = pc.max(pc.binary_length(pair)).as_py()
    return length or 0


def _widest(held: Sequence[_Held]) -> pa.Array | None:
    """The bounds of a column over all parts, in its type in the last one; None as ``_bounds``.

    Single values are compared without kernels, which cost as much for two rows as for thousands.
    """
    arrays = [part.bounds.column(place) for part, place in held]
    kind = arrays[-1].type
    if any(array.type != kind for array in arrays):
        return _widest_cast(arrays, kind)
    pairs = [part._pairs[place] for part, place in held]
    lows = [low for low, _ in pairs if low is not None]
    highs = [high for _, high in pairs if high is not None]
    widest = (min(lows, default=None), max(highs, default=None))
    if widest in pairs:
        return arrays[pairs.index(widest)]
    return pa.array(widest, _plain_type(kind)).view(kind)


def _widest_cast(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array | None:
    """The same of several types, all of them widened to the last one."""
    if not all(_keeps_order(array.type, kind) for array in arrays):
        return None
    try:
        return _bounds(pa.chunked_array([array.cast(kind) for array in arrays], kind))
    except pa.ArrowInvalid:
        return None


def _plain(values: pa.Array) -> pa.Array:
    """Times as the numbers that they are stored as: Python's own do not hold all of them."""
    return values.view(_plain_type(values.type))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


def _keeps_order(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values that were widened from one type to the other have the order they had."""
    are_times = pa.types.is_timestamp(source) and pa.types.is_timestamp(target)
    return bool(source == target or are_times or (_is_number(source) and _is_number(target)))


def _is_number(kind: pa.DataType) -> bool:
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in checks)
