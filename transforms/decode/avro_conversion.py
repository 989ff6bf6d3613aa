"""Values of a writer's types in the types of the table's columns.

Fields go by name; one that the writer lacks is null. A value fits its column when the column holds
it, as for JSON: integers in range, nearest floats, decimals exactly, times of the years 1 to 9999.
What does not fit is null in its column and told by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.schema.promotion import promote
from transforms.decode.decoder import EpochUnit
from transforms.decode.timestamps import find_out_of_range, to_microseconds

Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.intp]

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Values of one place that their column does not hold.

    Attributes:
        rows: that have such values.
        column: at the top, that the place lies in.
        reason: why not.
        is_wider: whether a wider type would hold them.
    """

    rows: Mask
    column: str
    reason: str
    is_wider: bool


class ColumnConverter:
    """Puts rows of one writer schema into columns.

    Attributes:
        mismatches: what did not fit.
    """

    def __init__(self, epoch_unit: EpochUnit) -> None:
        self._epoch_unit = epoch_unit
        self.mismatches: list[Mismatch] = []
        self._row_count = 0

    def convert(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """The columns of a schema; see the module."""
        self._row_count = rows.num_rows
        numbers = np.arange(rows.num_rows)
        columns = [
            self._fit(rows.column(f.name).combine_chunks(), f.type, (f.name,), numbers)
            if f.name in rows.column_names
            else pa.nulls(rows.num_rows, f.type)
            for f in schema
        ]
        return pa.table(columns, schema=schema)

    def _fit(
        self, values: pa.Array, wanted: pa.DataType, path: tuple[str, ...], rows: Rows
    ) -> pa.Array:
        """The values in a column's type.

        Args:
            values: of the writer.
            wanted: the column's type.
            path: of the place, for reasons.
            rows: for each value, which row it is part of.
        """
        stored = values.type
        if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
            return self._fit_struct(values, wanted, path, rows)
        if pa.types.is_list(stored) and pa.types.is_list(wanted):
            items = self._fit_items(values, values.values, wanted.value_type, path, rows)
            return _over(values, wanted, items)
        if pa.types.is_map(stored) and pa.types.is_map(wanted):
            items = self._fit_items(values, values.items, wanted.item_type, path, rows)
            fields = [wanted.key_field, wanted.item_field]
            return _over(
                values, wanted, pa.StructArray.from_arrays([values.keys, items], fields=fields)
            )
        return self._fit_leaf(values, wanted, path, rows)

    def _fit_struct(
        self, values: pa.StructArray, wanted: pa.StructType, path: tuple[str, ...], rows: Rows
    ) -> pa.Array:
        members = dict(zip(values.type.names, values.flatten(), strict=True))
        children = [
            self._fit(members[field.name], field.type, (*path, field.name), rows)
            if field.name in members
            else pa.nulls(len(values), field.type)
            for field in wanted
        ]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)

    def _fit_items(
        self,
        values: pa.Array,
        items: pa.Array,
        wanted: pa.DataType,
        path: tuple[str, ...],
        rows: Rows,
    ) -> pa.Array:
        counts = np.diff(values.offsets.to_numpy())
        return self._fit(items, wanted, (*path[:-1], f"{path[-1]}[]"), np.repeat(rows, counts))

    def _fit_leaf(
        self, values: pa.Array, wanted: pa.DataType, path: tuple[str, ...], rows: Rows
    ) -> pa.Array:
        given = _mask(values.is_valid())
        fitted = _leaf(values, wanted, self._epoch_unit)
        lost = given & ~_mask(fitted.is_valid())
        if lost.any():
            wider = lost & _would_widen(values, wanted)
            self._tell(rows[wider], path, values.type, wanted, is_wider=True)
            self._tell(rows[lost & ~wider], path, values.type, wanted, is_wider=False)
        return fitted

    def _tell(
        self,
        rows: Rows,
        path: tuple[str, ...],
        stored: pa.DataType,
        wanted: pa.DataType,
        *,
        is_wider: bool,
    ) -> None:
        if not len(rows):
            return
        found = np.zeros(self._row_count, np.bool_)
        found[rows] = True
        column = path[0].removesuffix("[]")
        fault = f"{wanted} does not hold this value of {stored}"
        if stored == wanted:
            fault = "a date or timestamp lies outside the years 1 to 9999"
        reason = f"column {'.'.join(path)!r}: {fault}"
        self.mismatches.append(Mismatch(found, column, reason, is_wider))


def is_widening(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a writer's numbers may ask for a wider column."""
    if wanted == pa.int32():
        return stored in (pa.int64(), pa.float32(), pa.float64())
    return bool(wanted == pa.float32() and stored == pa.float64())


def _over(values: pa.Array, wanted: pa.DataType, items: pa.Array) -> pa.Array:
    """The lists or maps of ``values`` over other items."""
    buffers = values.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(values), buffers, offset=values.offset, children=[items]
    )


def _leaf(values: pa.Array, wanted: pa.DataType, unit: EpochUnit) -> pa.Array:
    """The values in another type; null where it does not hold them."""
    stored = values.type
    if stored != wanted:
        values = _converted(values, wanted, unit)
    if pa.types.is_date32(wanted) or pa.types.is_timestamp(wanted):
        outside = find_out_of_range(values)
        if outside is not None:
            values = pc.if_else(outside, pa.scalar(None, wanted), values)
    return values


def _converted(values: pa.Array, wanted: pa.DataType, unit: EpochUnit) -> pa.Array:
    stored = values.type
    if pa.types.is_integer(wanted):
        return _integers(values, wanted)
    if pa.types.is_floating(wanted):
        return _floats(values, wanted)
    if pa.types.is_timestamp(wanted):
        return _timestamps(values, wanted, unit)
    if pa.types.is_decimal(wanted) and (pa.types.is_decimal(stored) or pa.types.is_integer(stored)):
        return _where_it_can(values, partial(_promoted, wanted=wanted), wanted)
    if pa.types.is_string(wanted) and pa.types.is_binary(stored):
        return _where_it_can(values, lambda some: some.cast(wanted), wanted)
    if pa.types.is_binary(wanted) and (
        pa.types.is_string(stored) or pa.types.is_fixed_size_binary(stored)
    ):
        return values.cast(wanted)
    return _nulls(values, wanted)


def _integers(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    stored = values.type
    if pa.types.is_time(stored):
        values = values.view(pa.int32() if pa.types.is_time32(stored) else pa.int64())
    if not pa.types.is_integer(values.type):
        return _nulls(values, wanted)
    if wanted == pa.int32() and values.type == pa.int64():
        fits = pc.and_(pc.greater_equal(values, _INT32_MIN), pc.less_equal(values, _INT32_MAX))
        values = pc.if_else(fits, values, pa.scalar(None, values.type))
    return values.cast(wanted)


def _floats(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    stored = values.type
    if pa.types.is_integer(stored) or stored == pa.float32():
        return _promoted(values, wanted)
    if stored != pa.float64():
        return _nulls(values, wanted)
    floats = values.cast(wanted, safe=False)
    too_large = pc.and_(pc.is_inf(floats), pc.is_finite(values))
    return pc.if_else(too_large, pa.scalar(None, wanted), floats)


def _timestamps(values: pa.Array, wanted: pa.DataType, unit: EpochUnit) -> pa.Array:
    """A time without a zone is one of UTC where a zone is wanted; integers count from 1970."""
    stored = values.type
    if stored == pa.int64():
        stored = pa.timestamp(unit, "UTC")
    if not pa.types.is_timestamp(stored) or (stored.tz is not None and wanted.tz is None):
        return _nulls(values, wanted)

    def cast(some: pa.Array) -> pa.Array:
        return to_microseconds(some.view(stored)).cast(wanted)

    return _where_it_can(values, cast, wanted)


def _promoted(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return promote(pa.chunked_array([values]), wanted).chunk(0)


def _where_it_can(
    values: pa.Array, cast: Callable[[pa.Array], pa.Array], wanted: pa.DataType
) -> pa.Array:
    """A cast that fails as a whole if one value fails it; halves, so that a few cost little."""
    try:
        return cast(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return _nulls(values, wanted)
    middle = len(values) // 2
    halves = [_where_it_can(half, cast, wanted) for half in (values[:middle], values[middle:])]
    return pa.concat_arrays(halves)


def _nulls(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return pa.nulls(len(values), wanted)


def _would_widen(values: pa.Array, wanted: pa.DataType) -> Mask:
    """Which values a wider type than the column's holds."""
    if not is_widening(values.type, wanted):
        return np.zeros(len(values), np.bool_)
    if pa.types.is_floating(values.type) and wanted == pa.int32():
        fractional = pc.not_equal(pc.trunc(values), values)
        return _mask(pc.and_(pc.is_finite(values), fractional).fill_null(False))
    return np.ones(len(values), np.bool_)


def _mask(booleans: pa.Array) -> Mask:
    mask: Mask = booleans.to_numpy(zero_copy_only=False)
    return mask
