"""Converts dataclasses to and from stored records with Apache Hudi's camelCase names.

The fields of a dataclass are the snake_case of the stored names. So one rule converts in both
directions, and there is no second table of names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")

#: Marks, in its metadata, a field that is not part of the stored record.
UNSTORED = "unstored"


def wire_name(field_name: str) -> str:
    """Convert ``num_update_writes`` to ``numUpdateWrites``."""
    head, *tail = field_name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def to_record(value: Any) -> dict[str, Any]:
    """Build the stored record of a flat dataclass; tuples become lists.

    Fields whose metadata has ``UNSTORED`` are omitted.
    """
    stored = (f for f in fields(value) if UNSTORED not in f.metadata)
    return {wire_name(f.name): _plain(getattr(value, f.name)) for f in stored}


def from_record(kind: type[T], record: Mapping[str, Any]) -> T:
    """Build a flat dataclass from its stored record; missing and null fields get their defaults."""
    known = {f.name: record.get(wire_name(f.name)) for f in fields(kind)}  # type: ignore[arg-type]
    given = {name: _frozen(value) for name, value in known.items() if value is not None}
    return kind(**given)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
