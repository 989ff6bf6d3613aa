"""What one JSON record has that its schema does not hold: unknown fields, and wider values.

Only records that are suspected of it come here. An unknown field that holds nothing yet (null, an
empty array, an empty object, or what is made of such) tells no type: it asks for no column.

Whatever a record holds, its unknown fields are found, or there is a fault: none is lost.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.schema.canonical import canonical
from lakemark.schema.evolution import ELEMENT, MAX_EVOLVED_DEPTH, Path, ValueKind, depth, dotted
from transforms.decode.aliases import conflict_reason
from transforms.decode.json_inspection import (
    RepeatingObject,
    read_integer,
    read_number,
    spell_out_infinity,
    to_object,
)
from transforms.decode.json_rescue import field_types
from transforms.decode.schema_policy import SchemaPolicy

_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_EXACT_IN_DOUBLE = range(-(2**53), 2**53 + 1)

#: From here on, rounding makes infinity of a ``float``.
_FLOAT_END = 2.0**128 - 2.0**103

_SHOWN_CHARACTERS = 40

#: A longer name is no name.
_MAX_NAME_CHARACTERS = 255

#: Spark takes structs whose fields are all called so for unions.
_UNION_MEMBER = re.compile(r"member\d+")


@dataclass(slots=True)
class Mismatches:
    """What was found in one record.

    Attributes:
        unknown: what its unknown fields hold, by the record's own names.
        wider: values that their columns do not hold and a wider type would.
        first_unknown: dotted name of the first unknown field that is not null.
        fault: why some unknown field can be no column, or why none could be looked for.
    """

    unknown: set[tuple[Path, ValueKind]] = field(default_factory=set)
    wider: set[tuple[Path, ValueKind]] = field(default_factory=set)
    first_unknown: str | None = None
    fault: str | None = None


class MismatchFinder:
    """Looks at single records, against one schema.

    Args:
        schema: columns of the records, aliases among them.
        policy: names that are taken, columns whose type is fixed_types.
    """

    def __init__(self, schema: pa.Schema, policy: SchemaPolicy) -> None:
        self._policy = policy
        self._types = field_types(schema)

    def find(self, value: bytes) -> Mismatches:
        """The mismatches of a record."""
        found = Mismatches()
        try:
            record = _DECODER.decode(spell_out_infinity(value.decode()))
            if isinstance(record, dict):
                self._search_object(record, self._types, (), found)
                found.fault = found.fault or self._alias_conflict(record)
        except RecursionError:
            return Mismatches(fault="it is nested too deeply to look for unknown fields")
        except ValueError as error:
            return Mismatches(fault=f"it cannot be searched for unknown fields: {error}")
        return found

    def _search_object(
        self,
        members: Mapping[str, object],
        known: Mapping[str, pa.DataType],
        path: Path,
        to: Mismatches,
    ) -> None:
        for name, member in members.items():
            if member is None:
                continue
            if name == "":
                # In a path it would stand for the elements of an array.
                to.first_unknown = dotted(path) if to.first_unknown is None else to.first_unknown
                to.fault = to.fault or _nameless(path)
            elif name in known:
                self._search(member, known[name], (*path, name), to)
            else:
                self._search_unknown(member, known, (*path, name), to)
                to.fault = to.fault or _repetition(members, (*path, name))

    def _search(self, value: object, known: pa.DataType, path: Path, to: Mismatches) -> None:
        if isinstance(value, dict) and pa.types.is_struct(known):
            types = field_types(known)
            self._search_object(value, types, path, to)
        elif isinstance(value, list) and pa.types.is_list(known):
            for element in value:
                if element is not None:
                    self._search(element, known.value_type, (*path, ELEMENT), to)
        elif _is_beyond(value, known) and not self._policy.has_fixed_type(path):
            kind = _number_kind(value)
            if kind is not None:
                to.wider.add((path, kind))

    def _search_unknown(
        self, value: object, siblings: Mapping[str, pa.DataType], path: Path, to: Mismatches
    ) -> None:
        to.first_unknown = dotted(path) if to.first_unknown is None else to.first_unknown
        seen = _see(value, path, to)
        if seen:
            clash = _case_clash(path[-1], siblings) or self._policy.reserved_name_fault(path)
            to.fault = to.fault or clash or _name_fault(path)
            to.unknown |= seen

    def _alias_conflict(self, record: Mapping[str, object]) -> str | None:
        """Whether the columns that it asks for would hold different values under two names."""
        for alias, column in self._policy.aliases.items():
            if record.get(column) is None or record.get(alias) is None:
                continue
            known = self._types[column]
            if _unknown_part(record[column], known) != _unknown_part(record[alias], known):
                return conflict_reason(column, alias)
        return None


#: Numbers that no column holds become ``Decimal``.
_DECODER = json.JSONDecoder(
    object_pairs_hook=to_object, parse_int=read_integer, parse_float=read_number
)


def _is_beyond(value: object, known: pa.DataType) -> bool:
    """Whether a number does not fit the column, but might fit a wider one.

    An integer that is spelled as a fraction (5.0) and what is not finite are no reason to give up
    the integers of a column.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if known == pa.int32():
        if isinstance(value, float):
            return math.isfinite(value) and not value.is_integer()
        return value not in _INT32
    if known == pa.float32():
        return abs(value) >= _FLOAT_END and value not in (float("inf"), float("-inf"))
    return False


def _see(value: object, path: Path, to: Mismatches) -> set[tuple[Path, ValueKind]]:
    """What an unknown field holds, nothing when it holds nothing yet."""
    if depth(path) > MAX_EVOLVED_DEPTH:
        to.fault = to.fault or (
            f"field {path[0]!r}: it is nested more than {MAX_EVOLVED_DEPTH} levels deep (an array "
            "counts as two)"
        )
        return set()
    if isinstance(value, dict):
        return _see_object(value, path, to)
    if isinstance(value, list):
        seen: set[tuple[Path, ValueKind]] = set()
        for element in value:
            seen |= _see(element, (*path, ELEMENT), to)
        return seen | {(path, ValueKind.ARRAY)} if seen else seen
    if value is None:
        return set()
    kind = _kind(value)
    if kind is None:
        shown = str(value)[:_SHOWN_CHARACTERS]
        to.fault = to.fault or f"field {dotted(path)!r}: no type holds the number {shown}"
        return set()
    return {(path, kind)}


def _see_object(
    members: Mapping[str, object], path: Path, to: Mismatches
) -> set[tuple[Path, ValueKind]]:
    seen: set[tuple[Path, ValueKind]] = set()
    names: list[str] = []
    for name, member in members.items():
        if name == "":
            to.fault = to.fault or (_nameless(path) if member is not None else None)
            continue
        inside = _see(member, (*path, name), to)
        if inside:
            to.fault = to.fault or _repetition(members, (*path, name))
            names.append(name)
            seen |= inside
            to.fault = to.fault or _name_fault((*path, name))
    if len({name.lower() for name in names}) < len(names):
        to.fault = to.fault or f"field {dotted(path)!r}: names in it differ only by case"
    if names and all(_UNION_MEMBER.fullmatch(name) for name in names):
        to.fault = to.fault or f"field {dotted(path)!r}: Spark takes its fields for a union's"
    return seen | {(path, ValueKind.STRUCT)} if seen else seen


def _kind(value: object) -> ValueKind | None:
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    return ValueKind.STRING if isinstance(value, str) else _number_kind(value)


def _number_kind(value: object) -> ValueKind | None:
    """None for a number that neither a ``bigint`` nor a ``double`` holds."""
    if isinstance(value, int):
        if value in _INT32:
            return ValueKind.INT
        if value in _EXACT_IN_DOUBLE:
            return ValueKind.SHORT_LONG
        return ValueKind.LONG if value in _INT64 else None
    return ValueKind.DOUBLE if isinstance(value, float) else None


def _unknown_part(value: object, known: pa.DataType | None) -> object:
    """What of a value no column holds, without fields that tell no type; None where all is known.

    Of an array it is one for each element.
    """
    if isinstance(value, list) and (known is None or pa.types.is_list(known)):
        of_elements = None if known is None else known.value_type
        parts = [_unknown_part(element, of_elements) for element in value]
        return parts if any(part is not None for part in parts) else None
    if isinstance(value, dict) and (known is None or pa.types.is_struct(known)):
        types = {} if known is None else field_types(known)
        inside = {name: _unknown_part(member, types.get(name)) for name, member in value.items()}
        return {name: part for name, part in inside.items() if part is not None} or None
    return value if known is None else None


def _nameless(path: Path) -> str:
    within = f" in {dotted(path)!r}" if path else ""
    return f"a field{within} has an empty name: no column can have this name"


def _repetition(members: Mapping[str, object], path: Path) -> str | None:
    """A reader of a column would not know which of the values is meant."""
    if isinstance(members, RepeatingObject) and path[-1] in members.repeated:
        return f"field {dotted(path)!r}: it is given twice"
    return None


def _case_clash(name: str, siblings: Mapping[str, pa.DataType]) -> str | None:
    for other in siblings:
        if other.lower() == name.lower():
            return f"field {name!r}: it differs from column {other!r} only by case"
    return None


def _name_fault(path: Path) -> str | None:
    if len(path[-1]) > _MAX_NAME_CHARACTERS:
        shown = path[-1][:_SHOWN_CHARACTERS]
        return f"field '{shown}...': its name has more than {_MAX_NAME_CHARACTERS} characters"
    return None if _is_name(path[-1]) else f"field {dotted(path)!r}: no column can have this name"


@lru_cache(maxsize=4096)
def _is_name(name: str) -> bool:
    try:
        canonical(pa.schema([(name, pa.string())]))
    except InvalidConfig:
        return False
    return True
