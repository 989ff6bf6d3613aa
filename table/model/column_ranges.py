"""What the columns of a data file hold: bounds and counts, gathered while it is written.

Which columns: Hudi's own three that say where and when, then the first ``MAX_COLUMNS`` of the table
whose values have an order. Source: ``HoodieTableMetadataUtil.getColumnsToIndex`` of Apache Hudi
1.2.0, ``hoodie.metadata.index.column.stats.max.columns.to.index``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

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


@dataclass(frozen=True)
class ColumnRanges:
    """Bounds and counts of columns, of one file or of several; pickles to the driver.

    Attributes:
        bounds: two rows, the smallest and the largest value of each column; null where there is
            none.
        null_counts: of each column.
        value_counts: of each column, nulls counted.
        unknown: columns that hold values whose bounds are not kept.
    """

    bounds: pa.RecordBatch
    null_counts: tuple[int, ...]
    value_counts: tuple[int, ...]
    unknown: frozenset[str] = frozenset()

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns that are known."""
        names: list[str] = self.bounds.schema.names
        return names

    @classmethod
    def of(cls, rows: pa.Table, columns: Iterable[str]) -> ColumnRanges:
        """The ranges of those columns that the rows have."""
        names = set(rows.column_names)
        asked = [name for name in columns if name in names]
        return cls._of_arrays({name: rows.column(name) for name in asked})

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
        known = {name: _joined(where) for name, where in held.items()}
        changed = {name for name, array in known.items() if array is None}
        ranges = cls._of_arrays({n: a for n, a in known.items() if a is not None})
        whole = cls(
            ranges.bounds,
            tuple(sum(p.null_counts[at] for p, at in held[name]) for name in ranges.columns),
            tuple(sum(p.value_counts[at] for p, at in held[name]) for name in ranges.columns),
        )
        return whole.without(unknown | ranges.unknown | changed)

    def without(self, columns: Iterable[str]) -> ColumnRanges:
        """The same, where of these columns nothing is known."""
        unknown = self.unknown | frozenset(columns)
        kept = [place for place, name in enumerate(self.columns) if name not in unknown]
        return ColumnRanges(
            self.bounds.select(kept),
            tuple(self.null_counts[place] for place in kept),
            tuple(self.value_counts[place] for place in kept),
            unknown,
        )

    @classmethod
    def _of_arrays(cls, arrays: dict[str, pa.ChunkedArray]) -> ColumnRanges:
        bounds = {name: _bounds(array) for name, array in arrays.items()}
        known = {name: pair for name, pair in bounds.items() if pair is not None}
        return cls(
            pa.RecordBatch.from_arrays(list(known.values()), list(known)),
            tuple(arrays[name].null_count for name in known),
            tuple(len(arrays[name]) for name in known),
            frozenset(bounds.keys() - known.keys()),
        )


#: A part that knows a column, and the column's place in it.
_Held: TypeAlias = tuple[ColumnRanges, int]


def indexed_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns of a table of which statistics are kept; meta columns first."""
    own = [name for name in _OWN if name in schema.names]
    ordered = [
        field.name
        for field in without_meta_columns(schema)
        if field.name != _OPERATION and any(check(field.type) for check in _ORDERED)
    ]
    return (*own, *ordered[:MAX_COLUMNS])


def _bounds(values: pa.ChunkedArray) -> pa.Array | None:
    """Smallest and largest value; None when they say too little, or too much.

    A NaN is larger than all else in Spark, and is left out by Arrow.
    """
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return None
    extremes = pc.min_max(values)
    pair = pa.array([extremes["min"], extremes["max"]], values.type)
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        if (pc.max(pc.binary_length(pair)).as_py() or 0) > MAX_BOUND_BYTES:
            return None
    return pair


def _joined(held: Sequence[_Held]) -> pa.ChunkedArray | None:
    """The bounds of all parts, in one type; None where a part has another that is none of it."""
    arrays = [part.bounds.column(place) for part, place in held]
    target = arrays[-1].type
    if not all(_keeps_order(array.type, target) for array in arrays):
        return None
    try:
        return pa.chunked_array([array.cast(target) for array in arrays], target)
    except pa.ArrowInvalid:
        return None


def _keeps_order(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values that were widened from one type to the other have the order they had."""
    are_times = pa.types.is_timestamp(source) and pa.types.is_timestamp(target)
    return bool(source == target or are_times or (_is_number(source) and _is_number(target)))


def _is_number(kind: pa.DataType) -> bool:
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in checks)
