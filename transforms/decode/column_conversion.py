"""Converts values from a writer's types to the types of the table's columns.

Fields are matched by name. A field that the writer lacks is null. The same values fit as for JSON:
integers in range, nearest floats, exact decimals, times of the years 1 to 9999. A value that does
not fit becomes null in its column, and a mismatch reports the row.
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
from transforms.reject_reason import RejectCode, RejectReason

Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.intp]

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Values of one field that do not fit their column.

    Attributes:
        rows: the rows that have such values.
        column: the top-level column that contains the field.
        reason: why the values do not fit.
        is_wider: whether the values fit a wider type.
    """

    rows: Mask
    column: str
    reason: RejectReason
    is_wider: bool


class ColumnConverter:
    """Converts rows that were written with one schema.

    Attributes:
        mismatches: the values that did not fit.
    """

    def __init__(self, epoch_unit: EpochUnit) -> None:
        self._epoch_unit = epoch_unit
        self.mismatches: list[Mismatch] = []
        self._row_count = 0

    def convert(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Convert rows to the columns of a schema, as the module's docstring describes."""
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
        """Convert values to the type of a column.

        Args:
            values: the values, in the writer's type.
            wanted: the type of the column.
            path: the path of the field, for reasons.
            rows: for each value, the number of the row that contains it.
        """
        stored = values.type
        if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
            return self._fit_struct(values, wanted, path, rows)
        if pa.types.is_list(stored) and pa.types.is_list(wanted):
            items = self._fit_items(values, values.values, wanted.value_type, path, rows)
            return _with_items(values, wanted, items)
        if pa.types.is_map(stored) and pa.types.is_map(wanted):
            items = self._fit_items(values, values.items, wanted.item_type, path, rows)
            fields = [wanted.key_field, wanted.item_field]
            return _with_items(
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
        is_present = _mask(values.is_valid())
        converted = self.convert_leaf(values, wanted)
        misses = is_present & ~_mask(converted.is_valid())
        if misses.any():
            wider = misses & _find_wider(values, wanted)
            self._add_mismatch(rows[wider], path, values.type, wanted, is_wider=True)
            self._add_mismatch(rows[misses & ~wider], path, values.type, wanted, is_wider=False)
        return converted

    def convert_leaf(self, values: pa.Array, wanted: pa.DataType) -> pa.Array:
        """Convert values that are not nested; values that do not fit become null."""
        return _convert_leaf(values, wanted, self._epoch_unit)

    def _add_mismatch(
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
        fault = f"this value of type {stored} does not fit {wanted}"
        if stored == wanted:
            fault = "a date or timestamp lies outside the years 1 to 9999"
        name = ".".join(path)
        reason = RejectReason(RejectCode.INVALID_VALUE, f"column {name!r}: {fault}", name)
        self.mismatches.append(Mismatch(found, column, reason, is_wider))


def is_widening(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether numbers of a writer's type may need a wider type than the column's."""
    if wanted == pa.int32():
        return stored in (pa.int64(), pa.float32(), pa.float64())
    return bool(wanted == pa.float32() and stored == pa.float64())


def _with_items(values: pa.Array, wanted: pa.DataType, items: pa.Array) -> pa.Array:
    """Return the lists or maps in ``values`` with their items replaced."""
    buffers = values.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(values), buffers, offset=values.offset, children=[items]
    )


def _convert_leaf(values: pa.Array, wanted: pa.DataType, unit: EpochUnit) -> pa.Array:
    """Convert values that are not nested; values that do not fit become null."""
    stored = values.type
    if stored != wanted:
        values = _convert_type(values, wanted, unit)
    if pa.types.is_date32(wanted) or pa.types.is_timestamp(wanted):
        out_of_range = find_out_of_range(values)
        if out_of_range is not None:
            values = pc.if_else(out_of_range, pa.scalar(None, wanted), values)
    return values


def _convert_type(values: pa.Array, wanted: pa.DataType, unit: EpochUnit) -> pa.Array:
    stored = values.type
    if pa.types.is_integer(wanted):
        return _to_integers(values, wanted)
    if pa.types.is_floating(wanted):
        return _to_floats(values, wanted)
    if pa.types.is_timestamp(wanted):
        return _to_timestamps(values, wanted, unit)
    if pa.types.is_decimal(wanted) and (pa.types.is_decimal(stored) or pa.types.is_integer(stored)):
        return cast_if_possible(values, partial(_promote, wanted=wanted), wanted)
    if pa.types.is_string(wanted) and pa.types.is_binary(stored):
        return cast_if_possible(values, lambda part: part.cast(wanted), wanted)
    if pa.types.is_binary(wanted) and (
        pa.types.is_string(stored) or pa.types.is_fixed_size_binary(stored)
    ):
        return values.cast(wanted)
    return _nulls(values, wanted)


def _to_integers(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    stored = values.type
    if pa.types.is_time(stored):
        values = values.view(pa.int32() if pa.types.is_time32(stored) else pa.int64())
    if not pa.types.is_integer(values.type):
        return _nulls(values, wanted)
    if wanted == pa.int32() and values.type == pa.int64():
        fits = pc.and_(pc.greater_equal(values, _INT32_MIN), pc.less_equal(values, _INT32_MAX))
        values = pc.if_else(fits, values, pa.scalar(None, values.type))
    return values.cast(wanted)


def _to_floats(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    stored = values.type
    if pa.types.is_integer(stored) or stored == pa.float32():
        return _promote(values, wanted)
    if stored != pa.float64():
        return _nulls(values, wanted)
    floats = values.cast(wanted, safe=False)
    too_large = pc.and_(pc.is_inf(floats), pc.is_finite(values))
    return pc.if_else(too_large, pa.scalar(None, wanted), floats)


def _to_timestamps(values: pa.Array, wanted: pa.DataType, unit: EpochUnit) -> pa.Array:
    """Convert to timestamps. Local times count as UTC if the column has a zone."""
    stored = values.type
    if stored == pa.int64():
        stored = pa.timestamp(unit, "UTC")
    if not pa.types.is_timestamp(stored) or (stored.tz is not None and wanted.tz is None):
        return _nulls(values, wanted)

    def cast(part: pa.Array) -> pa.Array:
        return to_microseconds(part.view(stored)).cast(wanted)

    return cast_if_possible(values, cast, wanted)


def _promote(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return promote(pa.chunked_array([values]), wanted).chunk(0)


def cast_if_possible(
    values: pa.Array, cast: Callable[[pa.Array], pa.Array], wanted: pa.DataType
) -> pa.Array:
    """Cast values; those that cannot be cast become null.

    A cast fails if a single value fails. So the values are split in halves until the failing values
    are found. This takes little time if only few values fail.
    """
    try:
        return cast(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return _nulls(values, wanted)
    middle = len(values) // 2
    halves = [cast_if_possible(half, cast, wanted) for half in (values[:middle], values[middle:])]
    return pa.concat_arrays(halves)


def _nulls(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return pa.nulls(len(values), wanted)


def _find_wider(values: pa.Array, wanted: pa.DataType) -> Mask:
    """Return which values would fit a wider type than that of the column."""
    if not is_widening(values.type, wanted):
        return np.zeros(len(values), np.bool_)
    if pa.types.is_floating(values.type) and wanted == pa.int32():
        fractional = pc.not_equal(pc.trunc(values), values)
        return _mask(pc.and_(pc.is_finite(values), fractional).fill_null(False))
    return np.ones(len(values), np.bool_)


def _mask(booleans: pa.Array) -> Mask:
    mask: Mask = booleans.to_numpy(zero_copy_only=False)
    return mask
