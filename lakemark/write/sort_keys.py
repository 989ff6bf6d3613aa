"""Converts columns to keys that order rows, of types that compare the same everywhere.

The order is that of Spark: nulls first, then values; NaN is larger than any other number, and texts
are compared by their bytes. The keys are integers, decimals, texts or binaries. On a space-filling
curve, the key of a row is the position of a point. The coordinates of the point are the ranks of
the row's values among a sample of the values, so that each coordinate divides the rows evenly,
whatever the values are. Source: ``SpaceCurveSortingHelper`` and ``RangeSampleSort`` of Apache Hudi
1.2.0, which also implements curves whose coordinates are the first bytes of the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.row_order import Curve, RowOrder
from lakemark.schema.dictionaries import is_encoded
from lakemark.write.space_filling_curves import (
    Coordinates,
    bits_per_dimension,
    hilbert_positions,
    z_order_positions,
)

#: The largest number of columns of a space-filling curve. Each then has 16 coordinates.
MAX_CURVE_COLUMNS = 16

#: The number of rows of a sample. It is above the number of coordinates that a column may have.
_SAMPLE_ROWS = 100_000

_POSITION = "curve position"


def is_sortable(arrow: pa.DataType) -> bool:
    """Return whether rows can be sorted by a column of this type; nested types have no order."""
    return not pa.types.is_nested(arrow)


def sort_key(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a key for each value of a column, in the same order as the values.

    Args:
        values: the values; ``is_sortable`` must be true for their type.
    """
    if is_encoded(values.type):
        values = values.cast(values.type.value_type)
    arrow = values.type
    chunk = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_floating(arrow):
        return _float_key(chunk.cast(pa.float64()))
    if pa.types.is_boolean(arrow):
        return chunk.cast(pa.int64())
    if pa.types.is_date32(arrow) or pa.types.is_time32(arrow):
        return chunk.cast(pa.int32())
    if pa.types.is_temporal(arrow):
        return chunk.cast(pa.int64())
    if pa.types.is_fixed_size_binary(arrow) and not pa.types.is_decimal(arrow):
        return chunk.cast(pa.binary())
    return chunk


@dataclass(frozen=True, slots=True)
class RowKeys:
    """Computes the keys by which rows are sorted, one after the other.

    Attributes:
        order: the columns and the curve.
        bounds: for a space-filling curve, the distinct sampled values of each column, ascending.
    """

    order: RowOrder
    bounds: tuple[pa.Array, ...] = ()

    @classmethod
    def of(cls, order: RowOrder, tables: Iterable[pa.Table]) -> RowKeys:
        """Return the keys of an order. For a space-filling curve, all rows are read once.

        Args:
            order: the order, with at least one column.
            tables: the rows with the columns of the order.
        """
        if order.curve is Curve.LINEAR or len(order.columns) == 1:
            return cls(order)
        sample = _sample([sort_key(rows.column(name)) for name in order.columns] for rows in tables)
        return cls(order, tuple(_distinct(values) for values in sample))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the key columns that ``add`` adds. No column of a table has such a name."""
        if self.bounds:
            return (_POSITION,)
        return tuple(f"sort key {number}" for number in range(len(self.order.columns)))

    def add(self, rows: pa.Table) -> pa.Table:
        """Return the rows with their key columns."""
        keys = [sort_key(rows.column(name)) for name in self.order.columns]
        if self.bounds:
            keys = [pa.array(self._positions(keys))]
        for name, values in zip(self.names, keys, strict=True):
            rows = rows.append_column(name, values)
        return rows

    def _positions(self, keys: Sequence[pa.Array]) -> Coordinates:
        bits = bits_per_dimension(len(keys))
        dimensions = [
            _coordinates(values, bounds, bits)
            for values, bounds in zip(keys, self.bounds, strict=True)
        ]
        if self.order.curve is Curve.HILBERT:
            return hilbert_positions(dimensions, bits)
        return z_order_positions(dimensions, bits)


def _float_key(values: pa.Array) -> pa.Array:
    """Return integers in the order of the numbers, with NaN at the end."""
    numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0
    numbers = np.where(np.isnan(numbers), np.nan, numbers)  # NaN has one of its many encodings
    encoded = numbers.view(np.int64)
    ordered = encoded ^ ((encoded >> np.int64(63)) & np.int64(0x7FFF_FFFF_FFFF_FFFF))
    return pa.array(ordered, mask=values.is_null().to_numpy(zero_copy_only=False))


def _sample(tables: Iterable[Sequence[pa.Array]]) -> list[pa.Array]:
    """Return every n-th row of some columns, which depends only on the rows and their order."""
    kept: list[list[pa.Array]] = []
    step, seen = 1, 0
    for columns in tables:
        chosen = pa.array(np.arange(-seen % step, len(columns[0]), step))
        seen += len(columns[0])
        kept.append([values.take(chosen) for values in columns])
        while sum(len(values) for values, *_ in kept) > 2 * _SAMPLE_ROWS:
            kept = [[values.take(_every_second(values)) for values in _joined(kept)]]
            step *= 2
    return _joined(kept)


def _joined(parts: Sequence[Sequence[pa.Array]]) -> list[pa.Array]:
    return [pa.concat_arrays(list(columns)) for columns in zip(*parts, strict=True)]


def _every_second(values: pa.Array) -> pa.Array:
    return pa.array(np.arange(0, len(values), 2))


def _distinct(values: pa.Array) -> pa.Array:
    distinct = pc.unique(pc.drop_null(values))
    return distinct.take(pc.array_sort_indices(distinct))


def _coordinates(values: pa.Array, bounds: pa.Array, bits: int) -> Coordinates:
    """Return the rank of each value among the bounds, scaled to the coordinates of the grid."""
    ranks = _ranks(values, bounds).astype(np.uint64)
    largest = np.uint64((1 << bits) - 1)
    return ranks * largest // np.uint64(max(1, len(bounds)))


def _ranks(values: pa.Array, bounds: pa.Array) -> npt.NDArray[np.int64]:
    """Return how many bounds are not above each value; 0 for a null."""
    together = pa.concat_arrays([bounds, values])
    order = pc.array_sort_indices(together, null_placement="at_start").to_numpy().astype(np.int64)
    is_value = order >= len(bounds)  # of equal ones, the bound comes first
    passed = np.cumsum(~is_value)
    ranks = np.empty(len(values), np.int64)
    ranks[order[is_value] - len(bounds)] = passed[is_value]
    return ranks
