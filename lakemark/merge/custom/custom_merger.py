"""What all mergers of users have in common: a strategy id, and the way to a worker."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Any, SupportsIndex

from lakemark.errors import InvalidConfig
from lakemark.merge.custom.class_path import object_at


class CustomMerger(ABC):
    """Base of ``VectorMerger`` and ``BufferedRecordMerger``; holds no state between calls.

    It pickles by the path of its class, so that a worker that cannot import it says so.

    Attributes:
        merging_strategy: the UUID that tables merged so carry as
            ``hoodie.record.merge.strategy.id`` (``getMergingStrategy`` of the specification). Make
            it once, with ``uuid.uuid4()``; what merges otherwise needs another one.
    """

    merging_strategy: str

    @property
    def name(self) -> str:
        """The path of the class, for messages."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """By class path; a class of ``__main__`` has none that another process knows."""
        reduced: Any = super().__reduce_ex__(max(2, protocol.__index__()))
        if type(self).__module__ == "__main__" or "." in type(self).__qualname__:
            return reduced
        _, (_, *arguments), *state = reduced
        return (_new, (self.name, *arguments), *state)


def refused(merger: CustomMerger, record_key: object, fault: str) -> InvalidConfig:
    """What a merger made of a record that cannot be taken."""
    return InvalidConfig(f"merger {merger.name}, record {record_key!r}: {fault}")


def _new(path: str, *arguments: object) -> object:
    kind = object_at(path)
    if not isinstance(kind, type):
        message = f"merger {path} is no class in this process; the same code must be installed"
        raise InvalidConfig(message)
    make: Callable[..., object] = kind.__new__
    return make(kind, *arguments)
