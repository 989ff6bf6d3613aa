"""Finds the values that a condition demands of columns: each matching row has one of them.

``note = 'a' and v > 3`` demands one value of ``note``, and ``note in ('a', 'b') or note is null``
three. Conditions that are Arrow expressions demand only the values of equalities that are joined by
``and``, because a program cannot take other expressions apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakemark.read.where import parse_condition

#: For some columns, the values of which each matching row has one. None is a null.
DemandedValues: TypeAlias = Mapping[str, frozenset[object]]

_NOTHING: DemandedValues = {}


def demanded_values(where: pc.Expression | str, schema: pa.Schema) -> DemandedValues:
    """Return the values that a condition demands.

    Args:
        where: the condition, as Arrow expression or in the language of ``where``.
        schema: the columns that the condition may name.

    Raises:
        InvalidWhere: as for ``parse_where``.
    """
    if isinstance(where, str):
        return parse_condition(where, schema, _DemandedValues())
    return {name: frozenset([value]) for name, value in equalities(where).items()}


def equalities(condition: pc.Expression) -> dict[str, object]:
    """Return the columns, and their values, of the equalities that an expression demands."""
    try:
        values: dict[str, object] = ds.get_partition_keys(condition)
    except AssertionError:  # pyarrow's answer to an equality of a field inside a struct
        return {}
    return values


class _DemandedValues:
    """The demanded values of parsed conditions, a ``ConditionMaker``."""

    def compare(self, column: Sequence[str], comparison: str, literal: pa.Scalar) -> DemandedValues:
        if comparison != "=" or len(column) > 1:
            return _NOTHING
        return {column[0]: frozenset([literal.as_py()])}

    def is_in(self, column: Sequence[str], literals: pa.Array) -> DemandedValues:
        return {column[0]: frozenset(literals.to_pylist())} if len(column) == 1 else _NOTHING

    def is_null(self, column: Sequence[str]) -> DemandedValues:
        return {column[0]: frozenset([None])} if len(column) == 1 else _NOTHING

    def both(self, one: DemandedValues, other: DemandedValues) -> DemandedValues:
        common = {name: one[name] & other[name] for name in one.keys() & other.keys()}
        return {**one, **other, **common}

    def either(self, one: DemandedValues, other: DemandedValues) -> DemandedValues:
        return {name: one[name] | other[name] for name in one.keys() & other.keys()}

    def negate(self, condition: DemandedValues) -> DemandedValues:
        return _NOTHING
