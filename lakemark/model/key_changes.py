"""The record keys that a new file adds to its file group, or removes from it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """The keys that have a row in a file group only before or only after a commit.

    Attributes:
        added: distinct keys, as strings, that the file group has only after the commit.
        removed: distinct keys, as strings, that the file group has only before the commit.
    """

    added: pa.Array
    removed: pa.Array

    @classmethod
    def removing(cls, keys: pa.Array) -> KeyChanges:
        """Return changes that only remove keys."""
        return cls(keys.slice(0, 0), keys)

    @classmethod
    def between(cls, before: pa.Array, after: pa.Array) -> KeyChanges:
        """Return the changes from the keys of one file slice to those of the next one."""
        return cls(_without(after, before), _without(before, after))


def _without(keys: pa.Array, others: pa.Array) -> pa.Array:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=others)))
