"""A storage that lets other processes act before one request of its writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakemark.storage import Storage
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")


class InterruptedStorage(WrappedStorage):
    """Pauses its writer once, before the request that ``is_before`` selects.

    Attributes:
        meanwhile: the acts of other processes during the pause.
        is_before: gets each request's number, from 0 on, its method and its path.
        stopped_at: the request before which the writer was paused; None until then.
    """

    def __init__(self, inner: Storage, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self.meanwhile = meanwhile
        self.is_before: Callable[[int, str, str], bool] = lambda number, method, path: False
        self.requests = 0
        self.stopped_at: str | None = None

    def _request(self, method: str, path: str, call: Callable[[], T]) -> T:
        number, self.requests = self.requests, self.requests + 1
        if self.stopped_at is None and self.is_before(number, method, path):
            self.stopped_at = f"{method} {path}"
            self.meanwhile()
        return call()

    _reading = _writing = _request
