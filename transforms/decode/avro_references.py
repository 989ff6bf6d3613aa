"""Avro schemas that refer to types of other schemas, made whole.

A registry stores such a schema with the names and the places of those that it refers to. What reads
columns knows one text only: the first mention of a foreign type is replaced by its definition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from lakemark.errors import CorruptData

_NAMED = ("record", "error", "enum", "fixed")


@dataclass(frozen=True, slots=True)
class Reference:
    """A type that another schema defines."""

    name: str
    stored: StoredSchema


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A schema as a registry, or a file, keeps it.

    Attributes:
        text: the schema's JSON; a name alone may stand without quotes.
        references: what it refers to.
    """

    text: str
    references: tuple[Reference, ...] = ()

    def whole(self) -> object:
        """The parsed schema, with all that it refers to inside.

        Raises:
            CorruptData: no JSON.
        """
        return _Inlining(_definitions(self)).whole(self._parsed(), "")

    def _parsed(self) -> object:
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            place = "Avro schema"
            raise CorruptData(place, None, "JSON", self.text[:80]) from None


def _definitions(stored: StoredSchema) -> dict[str, object]:
    """Full name to definition, of everything that a schema refers to at any distance."""
    found: dict[str, object] = {}
    for reference in stored.references:
        found |= _definitions(reference.stored)
        found[reference.name] = reference.stored._parsed()
    return found


class _Inlining:
    """Puts definitions where their names first stand."""

    def __init__(self, definitions: Mapping[str, object]) -> None:
        self._missing = dict(definitions)

    def whole(self, schema: object, namespace: str) -> object:
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return [self.whole(branch, namespace) for branch in schema]
        if not isinstance(schema, dict):
            return schema
        inner = _namespace_within(schema, namespace)
        changed = dict(schema)
        for part in ("items", "values"):
            if part in schema:
                changed[part] = self.whole(schema[part], inner)
        if isinstance(schema.get("fields"), list):
            changed["fields"] = [self._field(field, inner) for field in schema["fields"]]
        elif schema.get("type") not in _NAMED and "type" in schema:
            changed["type"] = self.whole(schema["type"], inner)
        return changed

    def _field(self, field: object, namespace: str) -> object:
        if not isinstance(field, dict) or "type" not in field:
            return field
        return {**field, "type": self.whole(field["type"], namespace)}

    def _named(self, name: str, namespace: str) -> object:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        definition = self._missing.pop(full, None)
        if not isinstance(definition, dict):
            return name
        # Its namespace is its own, and not that of where it now stands.
        own = {"namespace": "", **definition}
        return self.whole(own, "")


def _namespace_within(schema: Mapping[str, object], namespace: str) -> str:
    """The namespace of names inside a type."""
    if schema.get("type") not in _NAMED:
        return namespace
    name, space = str(schema.get("name", "")), schema.get("namespace", namespace)
    return name.rpartition(".")[0] if "." in name else str(space)
