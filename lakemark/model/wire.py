"""Values that are stored as Avro or JSON records under Apache's camelCase names.

A dataclass whose fields are the snake_case of the stored names converts both ways by one rule, so
no second table of names can drift from the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")

#: In the metadata of a field that is not part of the stored record.
UNSTORED = "unstored"


def wire_name(field_name: str) -> str:
    """``num_update_writes`` → ``numUpdateWrites``."""
    head, *tail = field_name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def to_record(value: Any) -> dict[str, Any]:
    """The stored record of a flat dataclass; tuples become lists.

    Fields whose metadata has ``UNSTORED`` are left out.
    """
    stored = (f for f in fields(value) if UNSTORED not in f.metadata)
    return {wire_name(f.name): _plain(getattr(value, f.name)) for f in stored}


def from_record(kind: type[T], record: Mapping[str, Any]) -> T:
    """A flat dataclass from its stored record; absent and null fields take their defaults."""
    known = {f.name: record.get(wire_name(f.name)) for f in fields(kind)}  # type: ignore[arg-type]
    given = {name: _frozen(value) for name, value in known.items() if value is not None}
    return kind(**given)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
