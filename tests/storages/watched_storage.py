from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakemark.storage.storage import Storage
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")

#: Called with method and path of a write right before it is carried out.
BeforeWrite = Callable[[str, str], None]


class WatchedStorage(WrappedStorage):
    """Calls a function before each write; ``WrappedStorage`` defines a write."""

    def __init__(self, inner: Storage, before_write: BeforeWrite) -> None:
        super().__init__(inner)
        self._before_write = before_write

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        self._before_write(method, path)
        return call()
