"""Derives Avro schemas whose values fit columns from schemas that nearly do.

- A union of numbers is a column of the one among them that represents the others exactly: ``int``
  and ``long`` are a ``long``; ``int`` or ``float`` and ``double`` a ``double``. No such number is
  in ``long`` and ``double``, or ``int`` and ``float``.
- A field of the type ``null`` takes no bytes and has no information: there is no column for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

_Change: TypeAlias = Callable[[object], object]

_EXACT_IN = {"long": {"int", "long"}, "double": {"int", "float", "double"}}


def with_one_type(avro: object) -> object:
    """Replace each union of numbers by the type of its column, nullable if the union was."""
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
    """Return the number type of a union that represents all of its types; None if there is none.

    Args:
        kinds: of the branches; None for a type that is not primitive.
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
    """Return the name of a type without a logical type."""
    if isinstance(branch, Mapping) and "logicalType" not in branch:
        branch = branch.get("type")
    return branch if isinstance(branch, str) else None


def _is_null(field: object) -> bool:
    return isinstance(field, Mapping) and _primitive(field.get("type")) == "null"
