"""Converts dataclasses to and from stored records with Apache Hudi's camelCase names.

The names of a dataclass's fields are the stored names in snake_case. So one rule converts names in
both directions, and no table of names is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")

#: Key in a field's metadata; it marks a field that is not part of the stored record.
UNSTORED = "unstored"


def wire_name(field_name: str) -> str:
    """Convert ``num_update_writes`` to ``numUpdateWrites``."""
    head, *tail = field_name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def to_record(value: Any) -> dict[str, Any]:
    """Build the stored record of a dataclass without nested dataclasses. Tuples become lists.

    Fields with ``UNSTORED`` in their metadata are omitted.
    """
    names = _names(type(value))
    return {stored: _plain(getattr(value, name)) for name, stored, is_stored in names if is_stored}


def from_record(kind: type[T], record: Mapping[str, Any]) -> T:
    """Build a dataclass from its stored record. Missing and null fields get their defaults."""
    known = {name: record.get(stored) for name, stored, _ in _names(kind)}
    given = {name: _frozen(value) for name, value in known.items() if value is not None}
    return kind(**given)


#: The names of the fields of each dataclass, because a commit may have a record for each of very
#: many files.
_known: dict[type[Any], list[tuple[str, str, bool]]] = {}


def _names(kind: type[Any]) -> list[tuple[str, str, bool]]:
    """Return for each field its name, its stored name, and whether it is stored."""
    if kind not in _known:
        found = [(f.name, wire_name(f.name), UNSTORED not in f.metadata) for f in fields(kind)]
        _known[kind] = found
    return _known[kind]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
