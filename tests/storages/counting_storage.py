from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple, TypeVar

from lakemark.storage.storage import Storage
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")


class Request(NamedTuple):
    """One call of a storage's method."""

    method: str
    path: str


class CountingStorage(WrappedStorage):
    """Records every call, in order; ``delete`` counts once for each path."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.requests: list[Request] = []
        self._lock = Lock()

    def count(self, method: str | None = None, *, under: str = "") -> int:
        """Count the calls, by default all of them.

        Args:
            method: counts only calls of this method.
            under: counts only calls for paths that start with this text.
        """
        return sum(
            method in (None, request.method) and request.path.startswith(under)
            for request in self.requests
        )

    def forget(self) -> None:
        """Forget the calls so far."""
        self.requests.clear()

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        with self._lock:
            self.requests.append(Request(method, path))
        return call()

    _writing = _reading
