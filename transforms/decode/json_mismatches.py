"""Finds the unknown fields and the wider values of single JSON records.

The decoder passes only records that may contain such fields or values. An unknown field without
content (null, an empty array, an empty object, or nested values of these kinds) has no type. So the
field requests no column.

Each unknown field of a record is either found or reported as a fault, so that no value is lost.
"""

from __future__ import annotations

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
from transforms.decode.json_rescue import field_types
from transforms.decode.json_scanner import RepeatingObject, parse
from transforms.decode.schema_policy import SchemaPolicy

_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_EXACT_IN_DOUBLE = range(-(2**53), 2**53 + 1)

#: A number of at least this size is rounded to infinity in a ``float``.
_FLOAT_END = 2.0**128 - 2.0**103

_SHOWN_CHARACTERS = 40

#: The longest name of a column.
_MAX_NAME_CHARACTERS = 255

#: Spark reads a struct as a union if all its field names match this pattern.
_UNION_MEMBER = re.compile(r"member\d+")


@dataclass(slots=True)
class Mismatches:
    """The mismatches of one record.

    Attributes:
        unknown: the paths of unknown fields, in the record's own names, and their kinds of values.
        wider: the paths and kinds of values that only fit a wider type than their column's.
        first_unknown: the dotted name of the first unknown field that is not null.
        fault: why an unknown field cannot become a column, or why the search failed.
    """

    unknown: set[tuple[Path, ValueKind]] = field(default_factory=set)
    wider: set[tuple[Path, ValueKind]] = field(default_factory=set)
    first_unknown: str | None = None
    fault: str | None = None


class MismatchFinder:
    """Compares single records with a schema.

    Args:
        schema: the columns of the records, including aliases.
        policy: contains aliases, reserved names, and columns of fixed types.
    """

    def __init__(self, schema: pa.Schema, policy: SchemaPolicy) -> None:
        self._policy = policy
        self._types = field_types(schema)

    def find(self, value: bytes) -> Mismatches:
        """Return the mismatches of a record."""
        found = Mismatches()
        try:
            record = parse(value.decode())
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
        found: Mismatches,
    ) -> None:
        for name, member in members.items():
            if member is None:
                continue
            if name not in known and self._policy.is_ignored((*path, name)):
                continue
            if name == "":
                # In a path, an empty name stands for the elements of an array.
                found.first_unknown = (
                    dotted(path) if found.first_unknown is None else found.first_unknown
                )
                found.fault = found.fault or _empty_name_fault(path)
            elif name in known:
                self._search(member, known[name], (*path, name), found)
            else:
                self._search_unknown(member, known, (*path, name), found)
                found.fault = found.fault or _repeated_name_fault(members, (*path, name))

    def _search(self, value: object, known: pa.DataType, path: Path, found: Mismatches) -> None:
        if isinstance(value, dict) and pa.types.is_struct(known):
            types = field_types(known)
            self._search_object(value, types, path, found)
        elif isinstance(value, list) and pa.types.is_list(known):
            for element in value:
                if element is not None:
                    self._search(element, known.value_type, (*path, ELEMENT), found)
        elif _exceeds_column(value, known) and not self._policy.has_fixed_type(path):
            kind = _number_kind(value)
            if kind is not None:
                found.wider.add((path, kind))

    def _search_unknown(
        self, value: object, siblings: Mapping[str, pa.DataType], path: Path, found: Mismatches
    ) -> None:
        found.first_unknown = dotted(path) if found.first_unknown is None else found.first_unknown
        kinds = _collect_kinds(value, path, found)
        if kinds:
            name_fault = _case_fault(path[-1], siblings) or self._policy.reserved_name_fault(path)
            found.fault = found.fault or name_fault or _name_fault(path)
            found.unknown |= kinds

    def _alias_conflict(self, record: Mapping[str, object]) -> str | None:
        """Return a reject reason if the unknown parts of a column and its alias differ."""
        for alias, column in self._policy.aliases.items():
            if record.get(column) is None or record.get(alias) is None:
                continue
            known = self._types[column]
            if _unknown_part(record[column], known) != _unknown_part(record[alias], known):
                return conflict_reason(column, alias)
        return None


def _exceeds_column(value: object, known: pa.DataType) -> bool:
    """Return whether a number does not fit the column, but may fit a wider one.

    An integer column is not widened for an integer that is written as a fraction (5.0), nor for a
    value that is not finite.
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


def _collect_kinds(value: object, path: Path, found: Mismatches) -> set[tuple[Path, ValueKind]]:
    """Return the paths and kinds of the values in an unknown field; empty if it has no content."""
    if depth(path) > MAX_EVOLVED_DEPTH:
        found.fault = found.fault or (
            f"field {path[0]!r}: it is nested more than {MAX_EVOLVED_DEPTH} levels deep (an array "
            "counts as two)"
        )
        return set()
    if isinstance(value, dict):
        return _collect_object_kinds(value, path, found)
    if isinstance(value, list):
        kinds: set[tuple[Path, ValueKind]] = set()
        for element in value:
            kinds |= _collect_kinds(element, (*path, ELEMENT), found)
        return kinds | {(path, ValueKind.ARRAY)} if kinds else kinds
    if value is None:
        return set()
    kind = _kind(value)
    if kind is None:
        shown = str(value)[:_SHOWN_CHARACTERS]
        found.fault = found.fault or f"field {dotted(path)!r}: no type holds the number {shown}"
        return set()
    return {(path, kind)}


def _collect_object_kinds(
    members: Mapping[str, object], path: Path, found: Mismatches
) -> set[tuple[Path, ValueKind]]:
    kinds: set[tuple[Path, ValueKind]] = set()
    names: list[str] = []
    for name, member in members.items():
        if name == "":
            found.fault = found.fault or (_empty_name_fault(path) if member is not None else None)
            continue
        inside = _collect_kinds(member, (*path, name), found)
        if inside:
            found.fault = found.fault or _repeated_name_fault(members, (*path, name))
            names.append(name)
            kinds |= inside
            found.fault = found.fault or _name_fault((*path, name))
    if len({name.lower() for name in names}) < len(names):
        found.fault = found.fault or f"field {dotted(path)!r}: names in it differ only by case"
    if names and all(_UNION_MEMBER.fullmatch(name) for name in names):
        found.fault = (
            found.fault
            or f"field {dotted(path)!r}: Spark reads a struct with these field names as a union"
        )
    return kinds | {(path, ValueKind.STRUCT)} if kinds else kinds


def _kind(value: object) -> ValueKind | None:
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    return ValueKind.STRING if isinstance(value, str) else _number_kind(value)


def _number_kind(value: object) -> ValueKind | None:
    """Return the kind of a number; None if it fits neither ``bigint`` nor ``double``."""
    if isinstance(value, int):
        if value in _INT32:
            return ValueKind.INT
        if value in _EXACT_IN_DOUBLE:
            return ValueKind.SHORT_LONG
        return ValueKind.LONG if value in _INT64 else None
    return ValueKind.DOUBLE if isinstance(value, float) else None


def _unknown_part(value: object, known: pa.DataType | None) -> object:
    """Return the unknown part of a value, without fields that have no type.

    None means that everything is known. For an array, the result has one part for each element.
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


def _empty_name_fault(path: Path) -> str:
    within = f" in {dotted(path)!r}" if path else ""
    return f"a field{within} has an empty name: no column can have this name"


def _repeated_name_fault(members: Mapping[str, object], path: Path) -> str | None:
    """Return a reason if a field occurs twice, because only one value can be in its column."""
    if isinstance(members, RepeatingObject) and path[-1] in members.repeated:
        return f"field {dotted(path)!r}: it is given twice"
    return None


def _case_fault(name: str, siblings: Mapping[str, pa.DataType]) -> str | None:
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
