"""Resolves references from Avro schemas to types in other schemas.

A registry stores a schema together with the names and versions of the schemas that it refers to.
The decoder needs one complete schema. So the first use of a type of another schema is replaced by
its definition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lakemark.errors import CorruptData

_NAMED = ("record", "error", "enum", "fixed")


@dataclass(frozen=True, slots=True)
class Reference:
    """A type that another schema defines."""

    name: str
    stored: StoredSchema


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A schema as stored in a registry or a file.

    Attributes:
        text: the schema: JSON, or for Protocol Buffers the text of a ``.proto`` file.
        references: the schemas that this schema refers to.
    """

    text: str
    # Without a hash: schemas that many schemas share would be hashed once for each path to them.
    references: tuple[Reference, ...] = field(default=(), hash=False)

    def all_references(self) -> Iterator[Reference]:
        """Yield the references of this schema and of those that it refers to, each only once.

        The references of a schema come before the references to this schema.
        """
        yield from self._unseen_references(set())

    def _unseen_references(self, seen: set[tuple[str, int]]) -> Iterator[Reference]:
        for reference in self.references:
            identity = reference.name, id(reference.stored)
            if identity not in seen:
                seen.add(identity)
                yield from reference.stored._unseen_references(seen)
                yield reference

    def resolve(self) -> object:
        """Parse the schema and replace references by definitions.

        Raises:
            CorruptData: the text is not JSON.
        """
        return _ReferenceInliner(_definitions(self)).resolve(self._parsed(), "")

    def _parsed(self) -> object:
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            path = "Avro schema"
            raise CorruptData(path, None, "JSON", self.text[:80]) from None


def _definitions(stored: StoredSchema) -> dict[str, object]:
    """Return the definitions of all schemas that a schema refers to, at any depth, by full name."""
    return {one.name: one.stored._parsed() for one in stored.all_references()}


class _ReferenceInliner:
    """Replaces the first use of each name by its definition, and keeps further uses."""

    def __init__(self, definitions: Mapping[str, object]) -> None:
        self._missing = dict(definitions)

    def resolve(self, schema: object, namespace: str) -> object:
        if isinstance(schema, str):
            return self._resolve_name(schema, namespace)
        if isinstance(schema, list):
            return [self.resolve(branch, namespace) for branch in schema]
        if not isinstance(schema, dict):
            return schema
        inner = _namespace_within(schema, namespace)
        changed = dict(schema)
        for part in ("items", "values"):
            if part in schema:
                changed[part] = self.resolve(schema[part], inner)
        if isinstance(schema.get("fields"), list):
            changed["fields"] = [self._resolve_field(field, inner) for field in schema["fields"]]
        elif schema.get("type") not in _NAMED and "type" in schema:
            changed["type"] = self.resolve(schema["type"], inner)
        return changed

    def _resolve_field(self, field: object, namespace: str) -> object:
        if not isinstance(field, dict) or "type" not in field:
            return field
        return {**field, "type": self.resolve(field["type"], namespace)}

    def _resolve_name(self, name: str, namespace: str) -> object:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        definition = self._missing.pop(full, None)
        if not isinstance(definition, dict):
            return name
        # The definition does not inherit the namespace of the schema that uses it.
        own = {"namespace": "", **definition}
        return self.resolve(own, "")


def _namespace_within(schema: Mapping[str, object], namespace: str) -> str:
    """Return the namespace that applies to the names inside a type."""
    if schema.get("type") not in _NAMED:
        return namespace
    name, space = str(schema.get("name", "")), schema.get("namespace", namespace)
    return name.rpartition(".")[0] if "." in name else str(space)
