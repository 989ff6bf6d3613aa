"""A storage that fails one read."""

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

#: Methods that may raise ``NotFound`` because the object was deleted a moment ago.
MAY_BE_GONE = ("read", "read_versioned", "open")


@dataclass
class Reads:
    """The reads of one process through all its storages.

    Attributes:
        nth: which read fails (0 is the first); None to only count the reads.
        is_gone: whether the read raises ``NotFound``, if its method may raise it.
        methods: the methods of the reads so far.
        failed: the path of the read that failed.
    """

    nth: int | None = None
    is_gone: bool = False
    methods: list[str] = field(default_factory=list)
    failed: str | None = None
    lock: Lock = field(default_factory=Lock)

    def note(self, method: str, path: str) -> None:
        """Count a read, and fail if it is number ``nth``."""
        with self.lock:
            self.methods.append(method)
            fails = len(self.methods) - 1 == self.nth
            if fails:
                self.failed = path
        if fails and self.is_gone and method in MAY_BE_GONE:
            raise NotFound(path)
        if fails:
            message = f"no answer to {method} {path}"
            raise StorageUnavailable(message)


class UnreadStorage(WrappedStorage):
    """Counts its reads among those of a process; creating a streaming file is not a read."""

    def __init__(self, inner: Storage, reads: Reads) -> None:
        super().__init__(inner)
        self._reads = reads

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        if method != "create_streaming":
            self._reads.note(method, path)
        return call()
