"""Resolves references from Avro schemas to types in other schemas.

A registry stores a schema together with the names and versions of the schemas that it refers to.
The decoder needs one complete schema. So the first use of a type of another schema is replaced by
its definition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from lakemark.errors import CorruptData
from transforms.decode.stored_schema import StoredSchema

_NAMED = ("record", "error", "enum", "fixed")


def resolve_references(stored: StoredSchema) -> object:
    """Parse an Avro schema, and replace references by definitions.

    Raises:
        CorruptData: the text is not JSON.
    """
    return _ReferenceInliner(_definitions(stored)).resolve(_parse(stored), "")


def _parse(stored: StoredSchema) -> object:
    try:
        return json.loads(stored.text)
    except (ValueError, RecursionError):
        path = "Avro schema"
        raise CorruptData(path, None, "JSON", stored.text[:80]) from None


def _definitions(stored: StoredSchema) -> dict[str, object]:
    """Return the definitions of all schemas that a schema refers to, at any depth, by full name."""
    return {one.name: _parse(one.stored) for one in stored.all_references()}


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
