"""What a writer's schema has that the table's columns lack: told by the schemas, not by values.

A field is unknown whether or not a record has something in it, and it asks for a column of the type
that its writer gives it. Names and depths that no column can have are a fault of all its records.
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
    Sighting,
    ValueKind,
    depth,
    dotted,
)
from transforms.decode.avro_conversion import is_widening
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
    """What was found, by the writer's names.

    Attributes:
        unknown: fields that no column is there for.
        wider: numbers of a wider type than their column's, where that may change.
        first_unknown: dotted name of the first unknown field.
        fault: why some unknown field can be no column.
    """

    unknown: set[Sighting] = field(default_factory=set)
    wider: set[Sighting] = field(default_factory=set)
    first_unknown: str | None = None
    fault: str | None = None


def find_differences(
    writer: Iterable[pa.Field], schema: pa.Schema, policy: SchemaPolicy
) -> Differences:
    """Hold a writer's schema against columns.

    Args:
        writer: fields of its record.
        schema: the columns, aliases among them.
        policy: names that are taken, columns whose type is fixed_types.
    """
    search = _Search(policy)
    search.record(list(writer), list(schema), ())
    return search.found


def column_types(writer: Iterable[pa.Field]) -> pa.Schema:
    """The columns that a writer's fields become: nullable, of types that a table can hold.

    Raises:
        InvalidConfig: one that can be none, such as a record that holds itself.
    """
    return canonical(pa.schema([_as_column(member) for member in writer]))


class _Search:
    def __init__(self, policy: SchemaPolicy) -> None:
        self._policy = policy
        self.found = Differences()

    def record(self, writer: list[pa.Field], known: list[pa.Field], path: Path) -> None:
        types = {member.name: member.type for member in known}
        for member in writer:
            place = (*path, member.name)
            if member.name in types:
                self._both(member.type, types[member.name], place)
            else:
                self._unknown(member, types, place)

    def _both(self, stored: pa.DataType, wanted: pa.DataType, path: Path) -> None:
        if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
            self.record(list(stored), list(wanted), path)
        elif pa.types.is_list(stored) and pa.types.is_list(wanted):
            self._both(stored.value_type, wanted.value_type, (*path, ELEMENT))
        elif pa.types.is_map(stored) and pa.types.is_map(wanted):
            self._both(stored.item_type, wanted.item_type, (*path, ELEMENT))
        elif is_widening(stored, wanted) and not self._policy.has_fixed_type(path):
            is_long = stored == pa.int64()
            self.found.wider.add((path, ValueKind.LONG if is_long else ValueKind.DOUBLE))

    def _unknown(self, member: pa.Field, siblings: dict[str, pa.DataType], path: Path) -> None:
        found = self.found
        found.first_unknown = found.first_unknown or dotted(path)
        sightings = set(_sightings(_as_column(member).type, path))
        found.unknown |= sightings
        found.fault = found.fault or self._fault(member, siblings, path)
        if max(depth(place) for place, _ in sightings) > MAX_EVOLVED_DEPTH:
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
    """The type of a new column; a time of the day is the integer that it is written as."""
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


def _sightings(column: pa.DataType, path: Path) -> Iterable[Sighting]:
    """What a new column of a type would be seen as."""
    if pa.types.is_struct(column):
        yield path, ValueKind.STRUCT
        for member in column:
            yield from _sightings(member.type, (*path, member.name))
    elif pa.types.is_list(column):
        yield path, ValueKind.ARRAY
        yield from _sightings(column.value_type, (*path, ELEMENT))
    elif pa.types.is_map(column):
        yield path, ValueKind.MAP
        yield from _sightings(column.item_type, (*path, ELEMENT))
    else:
        yield path, _KINDS.get(column) or DeclaredType.of(column)
