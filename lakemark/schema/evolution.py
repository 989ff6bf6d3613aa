"""Evolves a table's schema to fit its records.

A proposal is a set of sightings. Each sighting states that values of a kind were seen at a path.
Proposals are merged by union. So the result does not depend on the order in which workers saw the
records, or on whether they saw some records twice. ``evolve`` chooses the types once all sightings
are known:

- A new field becomes a boolean, a string, a number, or an array or struct of the fields that were
  seen in it. Numbers become ``int``, ``bigint`` or ``double``. Kinds without a common type become a
  string. A type that the writer's schema declares is used unchanged. New fields are nullable and
  come last, in the order of their names.
- An existing ``int`` column may be widened to ``bigint`` or ``double``, and a ``float`` column to
  ``double``.

Integers become ``double`` only if a double represents each of them exactly. If both larger integers
and fractions were seen, the type is ``bigint``, and the fractions do not fit.

A type is widened only if Apache Hudi 1.2.0 reads the values of older files without loss.
``lakemark.schema.promotion`` can also read older files of other types, but may lose digits or the
kind of a value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from lakemark.errors import InvalidConfig

#: Field names from the column inwards. The elements of an array have the name ``ELEMENT``.
Path = tuple[str, ...]

#: The empty string cannot be mistaken for a field, because no field has an empty name.
ELEMENT = ""


def dotted(path: Path) -> str:
    """Return a path as users write it, for example ``items[].price``."""
    return "".join("[]" if name == ELEMENT else f".{name}" for name in path).removeprefix(".")


class ValueKind(StrEnum):
    """Kind of the values that were seen."""

    BOOLEAN = "boolean"
    #: An integer of 32 bits.
    INT = "int"
    #: An integer of more than 32 bits that a double represents exactly.
    SHORT_LONG = "short long"
    #: Any other integer of 64 bits.
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    ARRAY = "array"
    STRUCT = "struct"
    #: A map with string keys. Its values are seen at the path of its ``ELEMENT``.
    MAP = "map"


class DeclaredType(str):
    """A type that the schema of the records declares, and that their values alone do not show."""

    @classmethod
    def of(cls, arrow: pa.DataType) -> DeclaredType:
        """Return the declared type for an Arrow type: float, bytes, date, timestamp or decimal."""
        return cls(arrow)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type."""
        if self in _DECLARED:
            return _DECLARED[self]
        precision, scale = self.removeprefix("decimal128(").removesuffix(")").split(", ")
        return pa.decimal128(int(precision), int(scale))


_DECLARED = {
    str(arrow): arrow
    for arrow in (
        pa.float32(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
    )
}

Sighting = tuple[Path, ValueKind | DeclaredType]

Proposal = frozenset[Sighting]

NOTHING_PROPOSED: Proposal = frozenset()

#: Largest number of columns of an evolved schema, including those inside structs.
MAX_EVOLVED_COLUMNS = 2_000

#: Largest number of levels of a new column. Parquet readers allow 100 levels. The limit is lower,
#: because the readers of Spark and Avro are recursive.
MAX_EVOLVED_DEPTH = 32

_NUMBERS = frozenset({ValueKind.INT, ValueKind.SHORT_LONG, ValueKind.LONG, ValueKind.DOUBLE})

#: For each type that can be widened, the types that can store all of its values.
_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}


def evolve(schema: pa.Schema, proposal: Proposal) -> pa.Schema:
    """Return a schema that fits, as far as possible, the values that were seen.

    Columns keep their positions and names. The new type of a column can store all values of its old
    type. If new fields differ only by case, only the first one in the order of names is added.

    Args:
        schema: schema with which the records are currently decoded.
        proposal: sightings of values that do not fit the schema.
    """
    seen = _Sightings(proposal)
    return pa.schema(_evolved_fields(list(schema), (), seen), metadata=schema.metadata)


def kind_named(text: str) -> ValueKind | DeclaredType:
    """Return the kind with this text, which may be a declared type."""
    kinds = {kind.value: kind for kind in ValueKind}
    return kinds.get(text) or DeclaredType(text)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the narrowest type that can store all values of two types; None if there is none.

    The operation is associative, commutative and idempotent, except for the order of the fields of
    structs: the fields of ``one`` come first.
    """
    if one.equals(other):
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = _common_fields(list(one), list(other))
        return None if fields is None else pa.struct(fields)
    if pa.types.is_list(one) and pa.types.is_list(other):
        element = _common_field(one.value_field, other.value_field)
        return None if element is None else pa.list_(element)
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type == other.key_type:
        item = _common_field(one.item_field, other.item_field)
        return None if item is None else pa.map_(one.key_type, item)
    for wide in (one, other, pa.float64()):
        if _holds(wide, one) and _holds(wide, other):
            return wide
    return None


def unite_schemas(table: pa.Schema, ours: pa.Schema, table_url: str) -> pa.Schema:
    """Return the columns of a table, widened if necessary, then the new columns of a writer.

    Args:
        table: schema of the table.
        ours: schema of the writer.
        table_url: URL of the table, for errors.

    Raises:
        InvalidConfig: the types of a column in both schemas have no common type, or a new column
            differs from a column of the table only by case.
    """
    spelled = {name.lower(): name for name in table.names}
    for field in _not_in(ours, table):
        if field.name.lower() in spelled:
            message = (
                f"column {field.name} differs from column {spelled[field.name.lower()]} of table "
                f"{table_url} only by case, and engines cannot tell them apart; spell it as in the "
                "table"
            )
            raise InvalidConfig(message)
    fields = []
    for field in table:
        index = ours.get_field_index(field.name)
        own = field.with_nullable(True) if index < 0 else ours.field(index)
        common = _common_field(field, own)
        if common is None:
            message = (
                f"column {field.name} is {field.type} in table {table_url} and {own.type} in this "
                "writer, and no type can store the values of both; declare the type of the table"
            )
            raise InvalidConfig(message)
        fields.append(common)
    return pa.schema([*fields, *(field.with_nullable(True) for field in _not_in(ours, table))])


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A column that is new, or whose type was widened.

    As text it reads ``home.zip string`` or ``n int32 -> int64``.

    Attributes:
        name: name of the column, with the path if the column is nested.
        was: old type of the column; None if the column is new.
        now: new type of the column.
    """

    name: str
    was: pa.DataType | None
    now: pa.DataType

    def __str__(self) -> str:
        return (
            f"{self.name} {self.now}"
            if self.was is None
            else f"{self.name} {self.was} -> {self.now}"
        )


def changes_between(before: pa.Schema, after: pa.Schema) -> list[SchemaChange]:
    """List the changes that ``evolve`` or ``unite_schemas`` made."""
    return list(_changes("", list(before), list(after)))


def depth(path: Path) -> int:
    """Return the number of levels of a Parquet schema at a path; ``ELEMENT`` counts as two."""
    return sum(2 if name == ELEMENT else 1 for name in path)


def column_count(schema: pa.Schema) -> int:
    """Return the number of columns of a schema, including those inside structs."""
    return sum(_field_count(field.type) for field in schema)


# --- from sightings to types


class _Sightings:
    """The sightings of a proposal, grouped by path."""

    def __init__(self, proposal: Proposal) -> None:
        self._kinds: dict[Path, set[ValueKind | DeclaredType]] = defaultdict(set)
        self._names: dict[Path, set[str]] = defaultdict(set)
        for path, kind in proposal:
            self._kinds[path].add(kind)
            self._names[path[:-1]].add(path[-1])

    def kinds(self, path: Path) -> set[ValueKind | DeclaredType]:
        return self._kinds.get(path, set())

    def names(self, path: Path) -> list[str]:
        """Return the field names that were seen inside a struct, in alphabetical order."""
        return sorted(self._names.get(path, set()) - {ELEMENT})


def _evolved_fields(fields: list[pa.Field], path: Path, seen: _Sightings) -> list[pa.Field]:
    kept = [f.with_type(_evolved_type(f.type, (*path, f.name), seen)) for f in fields]
    taken = {field.name.lower() for field in fields}
    for name in seen.names(path):
        new = _new_type((*path, name), seen)
        if new is not None and name.lower() not in taken:
            taken.add(name.lower())
            kept.append(pa.field(name, new))
    return kept


def _evolved_type(known: pa.DataType, path: Path, seen: _Sightings) -> pa.DataType:
    if pa.types.is_struct(known):
        return pa.struct(_evolved_fields(list(known), path, seen))
    if pa.types.is_list(known):
        element = known.value_field
        return pa.list_(element.with_type(_evolved_type(element.type, (*path, ELEMENT), seen)))
    if pa.types.is_map(known):
        item = known.item_field
        inside = _evolved_type(item.type, (*path, ELEMENT), seen)
        return pa.map_(known.key_type, item.with_type(inside))
    numbers = seen.kinds(path) & _NUMBERS
    if not numbers or known not in _WIDER:
        return known
    wanted = _number_type(numbers)
    return wanted if wanted in _WIDER[known] else known


def _new_type(path: Path, seen: _Sightings) -> pa.DataType | None:
    """Return the type of a new field; None if no value was seen in it, or it is nested too deeply.

    An array of which no element was seen counts as a field without a value.
    """
    kinds = seen.kinds(path)
    if not kinds or depth(path) > MAX_EVOLVED_DEPTH:
        return None
    if kinds <= _NUMBERS:
        return _number_type(kinds)
    if kinds == {ValueKind.BOOLEAN}:
        return pa.bool_()
    if kinds == {ValueKind.ARRAY}:
        element = _new_type((*path, ELEMENT), seen)
        return None if element is None else pa.list_(pa.field("element", element))
    if kinds == {ValueKind.MAP}:
        item = _new_type((*path, ELEMENT), seen)
        return None if item is None else pa.map_(pa.string(), pa.field("value", item))
    if kinds == {ValueKind.STRUCT}:
        fields = _evolved_fields([], path, seen)
        return pa.struct(fields) if fields else None
    return _declared_type(kinds) or pa.string()


def _declared_type(kinds: Set[ValueKind | DeclaredType]) -> pa.DataType | None:
    """Return the type that can store the declared types and the numbers among the kinds.

    None if there is no such type, if no type is declared, or if other kinds were seen.
    """
    declared = sorted(kind for kind in kinds if isinstance(kind, DeclaredType))
    numbers = kinds & _NUMBERS
    if not declared or len(kinds) > len(declared) + len(numbers):
        return None
    found: pa.DataType | None = _number_type(numbers) if numbers else declared[0].arrow
    for kind in declared:
        found = found and common_type(found, kind.arrow)
    return found


def _number_type(kinds: Set[ValueKind | DeclaredType]) -> pa.DataType:
    if ValueKind.LONG in kinds:
        return pa.int64()
    if ValueKind.DOUBLE in kinds:
        return pa.float64()
    return pa.int64() if ValueKind.SHORT_LONG in kinds else pa.int32()


# --- from two schemas to one


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    return wide.equals(narrow) or any(wide.equals(wider) for wider in _WIDER.get(narrow, ()))


def _common_field(one: pa.Field, other: pa.Field) -> pa.Field | None:
    common = common_type(one.type, other.type)
    if common is None:
        return None
    return pa.field(one.name, common, nullable=one.nullable or other.nullable)


def _common_fields(ones: list[pa.Field], others: list[pa.Field]) -> list[pa.Field] | None:
    """Return the common fields of two structs; None if two fields have no common type.

    Fields are matched by name. A field that only one struct has becomes nullable, because rows of
    the other struct have no value for it. The result is also None if such a field differs from
    another field only by case.
    """
    by_name = {field.name: field for field in others}
    common = [
        _common_field(one, by_name[one.name]) if one.name in by_name else one.with_nullable(True)
        for one in ones
    ]
    kept = [field for field in common if field is not None]
    added = [field.with_nullable(True) for field in _not_in(others, ones)]
    spelled = {one.name.lower() for one in ones}
    if len(kept) < len(common) or any(field.name.lower() in spelled for field in added):
        return None
    return [*kept, *added]


def _not_in(fields: Iterable[pa.Field], known: Iterable[pa.Field]) -> list[pa.Field]:
    names = {field.name for field in known}
    return [field for field in fields if field.name not in names]


def _field_count(data_type: pa.DataType) -> int:
    inside = [data_type.field(n).type for n in range(data_type.num_fields)]
    return max(1, sum(map(_field_count, inside)))


def _changes(within: str, before: list[pa.Field], after: list[pa.Field]) -> Iterator[SchemaChange]:
    known = {field.name: field.type for field in before}
    for field in after:
        name = f"{within}{field.name}"
        if field.name not in known:
            yield SchemaChange(name, None, field.type)
        else:
            yield from _type_changes(name, known[field.name], field.type)


def _type_changes(name: str, before: pa.DataType, after: pa.DataType) -> Iterator[SchemaChange]:
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        yield from _changes(f"{name}.", list(before), list(after))
    elif pa.types.is_list(before) and pa.types.is_list(after):
        yield from _type_changes(f"{name}[]", before.value_type, after.value_type)
    elif not before.equals(after):
        yield SchemaChange(name, before, after)
