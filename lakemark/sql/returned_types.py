"""The types in which a query returns values whose types of DuckDB Arrow, Parquet or JSON lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakemark.sql.engine import quoted_name


@dataclass(frozen=True)
class ReturnedTypes:
    """The types of DuckDB that are returned as others.

    Attributes:
        others: the type, in SQL, for each of these types.
    """

    others: Mapping[str, str]

    def returns_as_another(self, kind: Any) -> bool:
        """Return whether a type of DuckDB, or a type inside it, is returned as another type."""
        return any(name in self.others for name in _names(kind))

    def convert(self, query: str, kinds: Sequence[Any], names: Sequence[str]) -> str:
        """Return a query whose columns are those of another one, in the returned types.

        Args:
            query: the other query.
            kinds: the types of its columns.
            names: the names of the columns of the result.
        """
        given = [quoted_name(f"c{n}") for n in range(len(names))]
        values = [
            f"cast({name} as {self._type_of(kind)})" if self.returns_as_another(kind) else name
            for name, kind in zip(given, kinds, strict=True)
        ]
        pairs = zip(values, names, strict=True)
        listed = ", ".join(f"{value} as {quoted_name(name)}" for value, name in pairs)
        inner = query.rstrip(" ;\n")
        return f"select {listed} from ({inner}) as result({', '.join(given)})"

    def _type_of(self, kind: Any) -> str:
        """Return the type, in SQL, in which values of a type of DuckDB are returned."""
        match kind.id:
            case "list":
                return f"{self._type_of(kind.child)}[]"
            case "array":
                (_, child), (_, size) = kind.children
                return f"{self._type_of(child)}[{size}]"
            case "map":
                return f"map({', '.join(self._type_of(child) for _, child in kind.children)})"
            case "struct" if all(name for name, _ in kind.children):
                fields = (
                    f"{quoted_name(name)} {self._type_of(child)}" for name, child in kind.children
                )
                return f"struct({', '.join(fields)})"
        return self.others.get(kind.id, str(kind))


#: The types of which a row of a table has no values, so that they become text.
AS_TEXT = ReturnedTypes(
    dict.fromkeys(
        ("uhugeint", "bignum", "interval", "bit", "enum", "variant", "time with time zone"),
        "varchar",
    )
)

#: A sum of integers is a ``hugeint``; Arrow has no integers of 128 bits.
OF_QUERIES = ReturnedTypes({"hugeint": "bigint", **AS_TEXT.others})


def _names(kind: Any) -> Iterator[str]:
    yield kind.id
    if kind.id in ("list", "array", "map", "struct"):
        for name, child in kind.children:
            if (kind.id, name) != ("array", "size"):
                yield from _names(child)
