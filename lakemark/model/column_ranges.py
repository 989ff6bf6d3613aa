"""Column ranges of a data file: bounds and counts, collected while the file is written.

Ranges are collected for Hudi's commit time, partition path and record key, and for the user's
columns that were chosen, or the first ``MAX_COLUMNS`` of those whose type has an order. Source:
``HoodieTableMetadataUtil.getColumnsToIndex`` of Apache Hudi 1.2.0,
``hoodie.metadata.index.column.stats.max.columns.to.index``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from lakemark.model.bounds import (
    bounds_of,
    storage_type,
    to_storage_type,
    unite_bounds,
    unite_typed_bounds,
)
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import (
    COMMIT_TIME,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
    without_meta_columns,
)

#: Largest number of the user's columns with statistics.
MAX_COLUMNS = 32

_OWN = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
#: Digits before the decimal point, and after it, in decimals of statistics before table version 9.
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
    """Size of a column in a file, compressed and uncompressed."""

    size_bytes: int
    uncompressed_bytes: int

    @classmethod
    def total(cls, sizes: Iterable[ColumnSize]) -> ColumnSize:
        """Return the size of a column in several files."""
        return cls(*map(sum, zip(*sizes, strict=True)))


#: The size of a column if the file has no footer.
NO_SIZE = ColumnSize(0, 0)


@dataclass(frozen=True)
class ColumnRanges:
    """Bounds and counts of columns in one or several files. The object can be pickled.

    Attributes:
        bounds: two rows with the smallest and the largest value of each column
            (``lakemark.model.bounds``); null if a column has no value.
        null_counts: number of nulls in each column.
        value_counts: number of values in each column, including nulls.
        sizes: sizes of the columns, from the footers of the files; a column that is in no footer
            has none.
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
        """Return the ranges of these columns. Columns that ``rows`` lacks are ignored."""
        names = set(rows.column_names)
        arrays = {name: rows.column(name) for name in columns if name in names}
        return cls(
            pa.RecordBatch.from_arrays([bounds_of(one) for one in arrays.values()], list(arrays)),
            tuple(array.null_count for array in arrays.values()),
            tuple(map(len, arrays.values())),
        )

    @classmethod
    def of_nulls(cls, schema: pa.Schema, row_count: int) -> ColumnRanges:
        """Return the ranges of ``row_count`` rows that are null in all of these columns."""
        bounds = [pa.nulls(2, field.type) for field in schema]
        counts = (row_count,) * len(schema)
        return cls(pa.RecordBatch.from_arrays(bounds, schema.names), counts, counts)

    def select(self, names: Collection[str]) -> ColumnRanges:
        """Return the ranges of these columns only. Columns without ranges are ignored."""
        places = [at for at, name in enumerate(self.columns) if name in names]
        kept = [self.columns[at] for at in places]
        return ColumnRanges(
            self.bounds.select(places),
            tuple(self.null_counts[at] for at in places),
            tuple(self.value_counts[at] for at in places),
            {name: size for name, size in self.sizes.items() if name in kept},
        )

    @classmethod
    def union(cls, parts: Sequence[ColumnRanges]) -> ColumnRanges:
        """Return the ranges of all parts together.

        A part without ranges of a column adds nothing to the column's bounds and counts. The type
        of a column is the last type that can hold all of its values.
        """
        if len(parts) == 1:
            return parts[0]
        found: dict[str, list[_Occurrence]] = {}
        for part in parts:
            for at, name in enumerate(part.columns):
                found.setdefault(name, []).append((part, at))
        return cls(
            pa.RecordBatch.from_arrays([_unite(where) for where in found.values()], list(found)),
            tuple(sum(part.null_counts[at] for part, at in where) for where in found.values()),
            tuple(sum(part.value_counts[at] for part, at in where) for where in found.values()),
            _total_sizes(parts),
        )

    @cached_property
    def _pairs(self) -> list[_Pair]:
        """The bounds of each column as Python values that compare like the column's values."""
        return [tuple(to_storage_type(column).to_pylist()) for column in self.bounds.columns]


#: A part with ranges of a column, and the column's position in the part.
_Occurrence: TypeAlias = tuple[ColumnRanges, int]

#: The smallest and the largest value of a column.
_Pair: TypeAlias = tuple[Any, Any]


def indexed_columns(
    schema: pa.Schema,
    version: FormatVersion = FormatVersion.V9,
    chosen: Collection[str] | None = None,
) -> tuple[str, ...]:
    """Return the columns that have statistics in a table of this version, meta columns first.

    Args:
        schema: the columns of the table.
        version: the version of the table.
        chosen: the user's columns that have statistics (``TableProperties.statistics_columns``);
            None for the first ``MAX_COLUMNS`` that can have them.
    """
    own = [name for name in _OWN if name in schema.names]
    ordered = columns_with_order(schema, version)
    if chosen is None:
        return (*own, *ordered[:MAX_COLUMNS])
    return (*own, *(name for name in ordered if name in chosen))


def columns_with_order(schema: pa.Schema, version: FormatVersion = FormatVersion.V9) -> list[str]:
    """Return the user's columns that can have statistics in a table of this version."""
    return [
        field.name
        for field in without_meta_columns(schema)
        if field.name != OPERATION
        and any(check(field.type) for check in _ORDERED)
        and (version is FormatVersion.V9 or not _is_wide_decimal(field.type))
    ]


def _is_wide_decimal(kind: pa.DataType) -> bool:
    """Return whether a value of this type may not fit into the decimals of older statistics.

    Statistics before table version 9 have 15 digits before the decimal point, and 15 after it.
    """
    if not pa.types.is_decimal(kind):
        return False
    return bool(kind.scale > _OLD_DIGITS or kind.precision - kind.scale > _OLD_DIGITS)


def _total_sizes(parts: Iterable[ColumnRanges]) -> dict[str, ColumnSize]:
    found: dict[str, list[ColumnSize]] = {}
    for part in parts:
        for name, size in part.sizes.items():
            found.setdefault(name, []).append(size)
    return {name: ColumnSize.total(sizes) for name, sizes in found.items()}


def _unite(found: Sequence[_Occurrence]) -> pa.Array:
    """Return the bounds of a column in all parts that have ranges of it."""
    arrays = [part.bounds.column(at) for part, at in found]
    kind = arrays[-1].type
    if any(array.type != kind for array in arrays):
        return unite_typed_bounds(arrays)
    pairs = [part._pairs[at] for part, at in found]
    united = unite_bounds(pairs)
    if united in pairs:
        return arrays[pairs.index(united)]
    return pa.array(united, storage_type(kind)).view(kind)
