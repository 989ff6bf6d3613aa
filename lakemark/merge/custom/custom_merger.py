"""The base class of all custom mergers: the strategy id, and how a merger reaches a worker."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Any, SupportsIndex

from lakemark.errors import InvalidConfig
from lakemark.merge.custom.class_path import object_at


class CustomMerger(ABC):
    """Base class of ``VectorMerger`` and ``BufferedRecordMerger``; holds no state between calls.

    It is pickled by the path of its class, so a worker that cannot import it reports the path.

    Attributes:
        merging_strategy: a UUID that tables of this merger store as
            ``hoodie.record.merge.strategy.id`` (``getMergingStrategy`` of the specification).
            Generate it once, with ``uuid.uuid4()``. If the merger starts to merge differently, it
            needs a new one.
    """

    merging_strategy: str

    @property
    def name(self) -> str:
        """The path of the class, for error messages."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle by class path; other processes cannot import a class of ``__main__``."""
        reduced: Any = super().__reduce_ex__(max(2, protocol.__index__()))
        if type(self).__module__ == "__main__" or "." in type(self).__qualname__:
            return reduced
        _, (_, *arguments), *state = reduced
        return (_new, (self.name, *arguments), *state)


def refused(merger: CustomMerger, record_key: object, fault: str) -> InvalidConfig:
    """An error about a record that the merger returned."""
    return InvalidConfig(f"merger {merger.name}, record {record_key!r}: {fault}")


def _new(path: str, *arguments: object) -> object:
    kind = object_at(path)
    if not isinstance(kind, type):
        message = f"merger {path} is not a class in this process; install the same code here"
        raise InvalidConfig(message)
    make: Callable[..., object] = kind.__new__
    return make(kind, *arguments)
