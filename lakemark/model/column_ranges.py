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

from lakemark.model.bounds import bounds_of, plain, plain_type, widest, widest_of_types
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import (
    COMMIT_TIME,
    PARTITION_PATH,
    RECORD_KEY,
    without_meta_columns,
)

#: Columns of the user's of which there are statistics.
MAX_COLUMNS = 32

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
        bounds: two rows, the smallest and the largest value of each column
            (``lakemark.model.bounds``); null where there is none.
        null_counts: of each column.
        value_counts: of each column, nulls counted.
        sizes: of columns of one file, as its footer tells them; of no column where none does.
    """

    bounds: pa.RecordBatch
    null_counts: tuple[int, ...]
    value_counts: tuple[int, ...]
    sizes: Mapping[str, ColumnSize] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self.bounds.schema.names
        return names

    @classmethod
    def of(cls, rows: pa.Table, columns: Iterable[str]) -> ColumnRanges:
        """The ranges of those columns that the rows have."""
        names = set(rows.column_names)
        arrays = {name: rows.column(name) for name in columns if name in names}
        return cls(
            pa.RecordBatch.from_arrays([bounds_of(one) for one in arrays.values()], list(arrays)),
            tuple(array.null_count for array in arrays.values()),
            tuple(map(len, arrays.values())),
        )

    @classmethod
    def of_nulls(cls, schema: pa.Schema, row_count: int) -> ColumnRanges:
        """The ranges of so many rows in which these columns have no value."""
        bounds = [pa.nulls(2, field.type) for field in schema]
        counts = (row_count,) * len(schema)
        return cls(pa.RecordBatch.from_arrays(bounds, schema.names), counts, counts)

    @classmethod
    def united(cls, parts: Sequence[ColumnRanges]) -> ColumnRanges:
        """The ranges of all parts together.

        A part that does not have a column has no value in it. A column has the last one of the
        types that hold all of its values.
        """
        if len(parts) == 1:
            return parts[0]
        held: dict[str, list[_Held]] = {}
        for part in parts:
            for place, name in enumerate(part.columns):
                held.setdefault(name, []).append((part, place))
        return cls(
            pa.RecordBatch.from_arrays([_widest(where) for where in held.values()], list(held)),
            tuple(sum(part.null_counts[at] for part, at in where) for where in held.values()),
            tuple(sum(part.value_counts[at] for part, at in where) for where in held.values()),
        )

    @cached_property
    def _pairs(self) -> list[_Pair]:
        """The bounds of each column as values that are ordered as the column's are."""
        return [tuple(plain(column).to_pylist()) for column in self.bounds.columns]


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


def _widest(held: Sequence[_Held]) -> pa.Array:
    """The bounds of a column over all parts."""
    arrays = [part.bounds.column(place) for part, place in held]
    kind = arrays[-1].type
    if any(array.type != kind for array in arrays):
        return widest_of_types(arrays)
    pairs = [part._pairs[place] for part, place in held]
    found = widest(pairs)
    if found in pairs:
        return arrays[pairs.index(found)]
    return pa.array(found, plain_type(kind)).view(kind)
