"""Compares a writer's schema with the columns of the table, without reading values.

A field without a column is unknown, even if it is null in all records. It requests a column of the
writer's type. If the field's name or depth is not valid for a column, this is a fault that rejects
all records of the schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.schema.canonical import canonical
from lakemark.schema.evolution import (
    ELEMENT,
    MAX_EVOLVED_DEPTH,
    DeclaredType,
    Path,
    Proposal,
    Sighting,
    ValueKind,
    depth,
    dotted,
)
from transforms.decode.column_conversion import is_widening
from transforms.decode.schema_policy import SchemaPolicy

_KINDS = {
    pa.bool_(): ValueKind.BOOLEAN,
    pa.int32(): ValueKind.INT,
    pa.int64(): ValueKind.LONG,
    pa.float64(): ValueKind.DOUBLE,
    pa.string(): ValueKind.STRING,
}


@dataclass(slots=True)
class Differences:
    """The differences between a writer's schema and columns, with the writer's field names.

    Attributes:
        unknown: the fields without a column.
        wider: the fields whose numbers have a wider type than their column, if the column's type
            may change.
        first_unknown: the dotted name of the first unknown field.
        fault: why an unknown field cannot become a column.
    """

    unknown: set[Sighting] = field(default_factory=set)
    wider: set[Sighting] = field(default_factory=set)
    first_unknown: str | None = None
    fault: str | None = None


def requested_columns(
    found: Iterable[Differences], policy: SchemaPolicy, unknown_fields: str
) -> Proposal:
    """Return the columns and types that the policies request; see ``ColumnDecoder``.

    Args:
        found: the differences of each writer's schema among some values.
        policy: converts the fields, and says what becomes of wider values.
        unknown_fields: what becomes of fields without a column.
    """
    requested: set[Sighting] = set()
    for one in found:
        if unknown_fields == "evolve":
            requested |= one.unknown
        if policy.wider_values == "evolve":
            requested |= one.wider
    return policy.to_columns(requested)


def wider_paths(found: Iterable[Differences], policy: SchemaPolicy) -> set[Path]:
    """Return the paths of columns for which some writers have wider types."""
    return {path for one in found for path, _ in policy.to_columns(one.wider)}


def find_differences(
    writer: Iterable[pa.Field], schema: pa.Schema, policy: SchemaPolicy
) -> Differences:
    """Compare a writer's schema with columns.

    Args:
        writer: the fields of the writer's record.
        schema: the columns, including aliases.
        policy: contains reserved names, and columns of fixed types.
    """
    comparison = _SchemaComparison(policy)
    comparison.compare_records(list(writer), list(schema), ())
    return comparison.found


def column_types(writer: Iterable[pa.Field]) -> pa.Schema:
    """Return the columns for a writer's fields: nullable, with types that a table supports.

    Raises:
        InvalidConfig: a field cannot become a column, such as a recursive record.
    """
    return canonical(pa.schema([_as_column(member) for member in writer]))


def rescued_types(writer: Iterable[pa.Field]) -> pa.Schema:
    """Return the fields as ``column_types`` does, but with any names, because they become JSON."""
    columns = ((member.name, column_types([member.with_name("field")])) for member in writer)
    return pa.schema([types.field(0).with_name(name) for name, types in columns])


class _SchemaComparison:
    """Collects the differences between a writer's schema and columns."""

    def __init__(self, policy: SchemaPolicy) -> None:
        self._policy = policy
        self.found = Differences()

    def compare_records(self, writer: list[pa.Field], known: list[pa.Field], path: Path) -> None:
        types = {member.name: member.type for member in known}
        for member in writer:
            path_of_field = (*path, member.name)
            if member.name in types:
                self._compare_types(member.type, types[member.name], path_of_field)
            elif not self._policy.is_ignored(path_of_field):
                self._add_unknown(member, types, path_of_field)

    def _compare_types(self, stored: pa.DataType, wanted: pa.DataType, path: Path) -> None:
        if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
            self.compare_records(list(stored), list(wanted), path)
        elif pa.types.is_list(stored) and pa.types.is_list(wanted):
            self._compare_types(stored.value_type, wanted.value_type, (*path, ELEMENT))
        elif pa.types.is_map(stored) and pa.types.is_map(wanted):
            self._compare_types(stored.item_type, wanted.item_type, (*path, ELEMENT))
        elif is_widening(stored, wanted) and not self._policy.has_fixed_type(path):
            is_long = stored == pa.int64()
            self.found.wider.add((path, ValueKind.LONG if is_long else ValueKind.DOUBLE))

    def _add_unknown(self, member: pa.Field, siblings: dict[str, pa.DataType], path: Path) -> None:
        found = self.found
        found.first_unknown = found.first_unknown or dotted(path)
        sightings = set(_list_sightings(_as_column(member).type, path))
        found.unknown |= sightings
        found.fault = found.fault or self._fault(member, siblings, path)
        if max(depth(path_of_field) for path_of_field, _ in sightings) > MAX_EVOLVED_DEPTH:
            too_deep = f"it is nested more than {MAX_EVOLVED_DEPTH} levels deep"
            found.fault = found.fault or f"field {dotted(path)!r}: {too_deep}"

    def _fault(self, member: pa.Field, siblings: dict[str, pa.DataType], path: Path) -> str | None:
        name = member.name
        for other in siblings:
            if other.lower() == name.lower():
                return f"field {name!r}: it differs from column {other!r} only by case"
        return self._policy.reserved_name_fault(path) or _type_fault(member)


def _type_fault(member: pa.Field) -> str | None:
    try:
        column_types([member])
    except InvalidConfig as error:
        return str(error)
    return None


def _as_column(member: pa.Field) -> pa.Field:
    return pa.field(member.name, _column_type(member.type))


def _column_type(stored: pa.DataType) -> pa.DataType:
    """Return the type of a new column. A time of the day becomes the integer that was written."""
    if pa.types.is_struct(stored):
        return pa.struct([_as_column(member) for member in stored])
    if pa.types.is_list(stored):
        return pa.list_(pa.field("element", _column_type(stored.value_type)))
    if pa.types.is_map(stored):
        return pa.map_(pa.string(), pa.field("value", _column_type(stored.item_type)))
    if pa.types.is_time32(stored):
        return pa.int32()
    if pa.types.is_time64(stored):
        return pa.int64()
    if pa.types.is_fixed_size_binary(stored):
        return pa.binary()
    if pa.types.is_timestamp(stored):
        return pa.timestamp("us", stored.tz)
    return stored


def _list_sightings(column: pa.DataType, path: Path) -> Iterable[Sighting]:
    """Yield the sightings from which schema evolution creates a column of this type."""
    if pa.types.is_struct(column):
        yield path, ValueKind.STRUCT
        for member in column:
            yield from _list_sightings(member.type, (*path, member.name))
    elif pa.types.is_list(column):
        yield path, ValueKind.ARRAY
        yield from _list_sightings(column.value_type, (*path, ELEMENT))
    elif pa.types.is_map(column):
        yield path, ValueKind.MAP
        yield from _list_sightings(column.item_type, (*path, ELEMENT))
    else:
        yield path, _KINDS.get(column) or DeclaredType.of(column)
