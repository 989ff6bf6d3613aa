"""Adapts Avro schemas so that each field has one column type.

- A union of number types becomes the member that represents the other members exactly. ``int`` and
  ``long`` become ``long``; ``double`` with ``int`` or ``float`` becomes ``double``. Unions of
  ``long`` and ``double``, or of ``int`` and ``float``, have no such member and do not change.
- A field of the type ``null`` is removed, because it takes no bytes and has no information.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

_Change: TypeAlias = Callable[[object], object]

_EXACT_IN = {"long": {"int", "long"}, "double": {"int", "float", "double"}}


def with_one_type(avro: object) -> object:
    """Replace each union of number types by its widest type; null stays in the union."""
    if not isinstance(avro, list):
        return _with_parts(avro, with_one_type)
    wide = _widest([_primitive(branch) for branch in avro])
    if wide is None:
        return [with_one_type(branch) for branch in avro]
    return ["null", wide] if "null" in map(_primitive, avro) else [wide]


def without_null_fields(avro: object) -> object:
    """Remove the fields that are always null, at any depth."""
    if isinstance(avro, list):
        return [without_null_fields(branch) for branch in avro]
    changed = _with_parts(avro, without_null_fields)
    if isinstance(changed, dict) and isinstance(changed.get("fields"), list):
        kept = [field for field in changed["fields"] if not _is_null(field)]
        return {**changed, "fields": kept}
    return changed


def _widest(kinds: list[str | None]) -> str | None:
    """Return the type in a union that represents all other types exactly; None if there is none.

    Args:
        kinds: types of the branches; None for a type that is not primitive.
    """
    numbers = {kind for kind in kinds if kind != "null"}
    if len(numbers) < 2:
        return None
    fits = (wide for wide, exact in _EXACT_IN.items() if wide in numbers and numbers <= exact)
    return next(fits, None)


def _with_parts(avro: object, change: _Change) -> object:
    """Return a type with its component types changed."""
    if not isinstance(avro, Mapping):
        return avro
    changed = dict(avro)
    for part in ("type", "items", "values"):
        if part in changed:
            changed[part] = change(changed[part])
    if isinstance(changed.get("fields"), list):
        changed["fields"] = [_with_parts(field, change) for field in changed["fields"]]
    return changed


def _primitive(branch: object) -> str | None:
    """Return the name of a type; None for a union, and for a type with a logical type."""
    if isinstance(branch, Mapping) and "logicalType" not in branch:
        branch = branch.get("type")
    return branch if isinstance(branch, str) else None


def _is_null(field: object) -> bool:
    return isinstance(field, Mapping) and _primitive(field.get("type")) == "null"
