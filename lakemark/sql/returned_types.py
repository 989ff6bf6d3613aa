"""The types in which a query returns values whose types of DuckDB Arrow, Parquet or JSON lack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lakemark.sql.engine import quoted_name

#: A sum of integers is a ``hugeint``; Arrow has no integers of 128 bits.
_RETURNED_AS: Final = {
    "hugeint": "bigint",
    **dict.fromkeys(
        ("uhugeint", "bignum", "interval", "bit", "enum", "variant", "time with time zone"),
        "varchar",
    ),
}


def is_returned_as_another(kind: Any) -> bool:
    """Return whether a type of DuckDB, or a type inside it, is returned as another type."""
    return any(name in _RETURNED_AS for name in _names(kind))


def returned_type(kind: Any) -> str:
    """Return the type, in SQL, in which values of a type of DuckDB are returned."""
    match kind.id:
        case "list":
            return f"{returned_type(kind.child)}[]"
        case "array":
            (_, child), (_, size) = kind.children
            return f"{returned_type(child)}[{size}]"
        case "map":
            return f"map({', '.join(returned_type(child) for _, child in kind.children)})"
        case "struct" if all(name for name, _ in kind.children):
            fields = (
                f"{quoted_name(name)} {returned_type(child)}" for name, child in kind.children
            )
            return f"struct({', '.join(fields)})"
    return _RETURNED_AS.get(kind.id, str(kind))


def _names(kind: Any) -> Iterator[str]:
    yield kind.id
    if kind.id in ("list", "array", "map", "struct"):
        for name, child in kind.children:
            if (kind.id, name) != ("array", "size"):
                yield from _names(child)
