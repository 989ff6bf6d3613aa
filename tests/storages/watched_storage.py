from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakemark.storage.storage import Storage
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")

#: Is told of a write (method and path) right before it is done.
BeforeWrite = Callable[[str, str], None]


class WatchedStorage(WrappedStorage):
    """Tells of each write before it is done, see ``WrappedStorage`` for what counts."""

    def __init__(self, inner: Storage, before_write: BeforeWrite) -> None:
        super().__init__(inner)
        self._before_write = before_write

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        self._before_write(method, path)
        return call()
