"""Compares the columns of two tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakemark.model.meta_columns import without_meta_columns
from lakemark.schema.evolution import common_type

#: The units of timestamps, the coarsest first.
_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True, slots=True)
class TypeDifference:
    """A column, or a field in a nested column, whose type differs.

    Attributes:
        path: the name; fields of structs follow after a dot, ``[]`` stands for the elements of a
            list, and ``{}`` for the values of a map.
        old: the type in the old table; None if the field is missing there.
        new: the type in the new table; None if the field is missing there.
    """

    path: str
    old: pa.DataType | None
    new: pa.DataType | None


@dataclass(frozen=True, slots=True)
class SchemaComparison:
    """Which columns of two tables are compared, and what differs.

    Attributes:
        compared: the columns whose values are compared, with the type to which both are converted.
        only_old: the columns that only the old table has.
        only_new: the columns that only the new table has.
        types: the columns and nested fields whose types differ.
        not_compared: the columns of both tables whose types are so different that no value is
            compared.
    """

    compared: pa.Schema
    only_old: tuple[str, ...] = ()
    only_new: tuple[str, ...] = ()
    types: tuple[TypeDifference, ...] = ()
    not_compared: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether both tables have the same columns, in any order, with the same types."""
        return not (self.only_old or self.only_new or self.types)


def compare_schemas(
    old: pa.Schema, new: pa.Schema, ignored: Collection[str] = ()
) -> SchemaComparison:
    """Compare the columns of two tables by name, without meta columns.

    Neither the order of the columns nor whether they may contain nulls is a difference.

    Args:
        old: the columns of the old table.
        new: the columns of the new table.
        ignored: the names of columns that are neither compared nor reported.
    """
    old, new = (
        pa.schema([one for one in without_meta_columns(side) if one.name not in ignored])
        for side in (old, new)
    )
    both = [name for name in old.names if name in new.names]
    compared = [
        pa.field(name, wide)
        for name in both
        for wide in [_wide_type(old.field(name).type, new.field(name).type)]
        if wide is not None
    ]
    types = [
        found
        for name in both
        for found in _differences(name, old.field(name).type, new.field(name).type)
    ]
    return SchemaComparison(
        pa.schema(compared),
        tuple(name for name in old.names if name not in both),
        tuple(name for name in new.names if name not in both),
        tuple(types),
        tuple(name for name in both if name not in {field.name for field in compared}),
    )


def _wide_type(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """Return the type in which values are compared; None if they cannot be compared."""
    if not [*_differences("", old, new)]:
        return old
    if pa.types.is_timestamp(old) and pa.types.is_timestamp(new):
        if (old.tz is None) != (new.tz is None):
            return None
        return pa.timestamp(max(old.unit, new.unit, key=_UNITS.index), old.tz)
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return _wide_decimal(old, new)
    if pa.types.is_nested(old):
        return None  # the fields that differ are named instead
    return common_type(old, new)


def _wide_decimal(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    scale = max(old.scale, new.scale)
    digits = max(old.precision - old.scale, new.precision - new.scale) + scale
    return pa.decimal256(digits, scale) if digits > 38 else pa.decimal128(digits, scale)


def _differences(path: str, old: pa.DataType, new: pa.DataType) -> Iterator[TypeDifference]:
    """Yield the innermost types that differ."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        fields, others = ({one.name: one.type for one in kind} for kind in (old, new))
        for name in dict.fromkeys([*fields, *others]):
            inner = f"{path}.{name}"
            if name in fields and name in others:
                yield from _differences(inner, fields[name], others[name])
            else:
                yield TypeDifference(inner, fields.get(name), others.get(name))
    elif pa.types.is_list(old) and pa.types.is_list(new):
        yield from _differences(f"{path}[]", old.value_type, new.value_type)
    elif pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        yield from _differences(f"{path}{{}}", old.item_type, new.item_type)
    elif old != new:
        yield TypeDifference(path, old, new)
