from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Literal, TypeVar

from table.errors import StorageUnavailable
from table.storage.storage import Storage
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")

When = Literal["before", "after", "doubtful"]


class SimulatedCrash(BaseException):
    """The process is dead. No ``Exception``: what is dead neither handles errors nor cleans up."""


class FaultyStorage(WrappedStorage):
    """Fails at the write number ``nth`` (0 is the first), see ``WrappedStorage`` for what counts.

    Args:
        inner: where the other writes go.
        nth: which write fails; None for none, to count them in ``writes``.
        when: ``before`` and ``after`` the write the process dies, and every later call raises
            ``SimulatedCrash``; ``doubtful`` does the write, raises ``StorageUnavailable`` once and
            lives on.
    """

    def __init__(self, inner: Storage, nth: int | None = None, when: When = "before") -> None:
        super().__init__(inner)
        self.writes = 0
        self._nth = nth
        self._when = when
        self._dead = False
        self._lock = Lock()

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        self._still_alive()
        return call()

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        with self._lock:
            self._still_alive()
            chosen = self.writes == self._nth
            self.writes += 1
            self._dead = chosen and self._when != "doubtful"
        if chosen and self._when == "before":
            raise SimulatedCrash(self._when, method, path)
        answer = call()
        if chosen and self._when == "doubtful":
            message = f"no answer to {method} {path}, which was done"
            raise StorageUnavailable(message)
        if chosen:
            raise SimulatedCrash(self._when, method, path)
        return answer

    def _still_alive(self) -> None:
        if self._dead:
            raise SimulatedCrash
