"""A schema as a registry or a file contains it, with the schemas that it refers to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


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
