"""A storage that once gives no answer to a read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

from lakemark.errors import StorageUnavailable
from lakemark.storage import Storage
from lakemark.storage.storage import NotFound
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")

#: Where a store may say that there is nothing, though there was a moment ago.
MAY_BE_GONE = ("read", "read_versioned", "open")


@dataclass
class Reads:
    """The reads of one process, of all its storages.

    Attributes:
        nth: which one fails (0 is the first); None for none, to count them.
        is_gone: whether it raises ``NotFound`` where a store may.
        methods: of each read so far.
    """

    nth: int | None = None
    is_gone: bool = False
    methods: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def note(self, method: str, path: str) -> None:
        """Count a read, and fail if it is the one."""
        with self.lock:
            self.methods.append(method)
            fails = len(self.methods) - 1 == self.nth
        if fails and self.is_gone and method in MAY_BE_GONE:
            raise NotFound(path)
        if fails:
            message = f"no answer to {method} {path}"
            raise StorageUnavailable(message)


class UnreadStorage(WrappedStorage):
    """Its reads count among those of a process; the opening of a new file is none."""

    def __init__(self, inner: Storage, reads: Reads) -> None:
        super().__init__(inner)
        self._reads = reads

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        if method != "create_streaming":
            self._reads.note(method, path)
        return call()
