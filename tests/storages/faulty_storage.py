from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal, TypeVar

from lakemark.errors import StorageUnavailable
from lakemark.storage.storage import Storage
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")

When = Literal["before", "after", "lost", "doubtful"]


class SimulatedCrash(BaseException):
    """The process died.

    This is no ``Exception``, because a dead process neither handles errors nor cleans up.
    """


@dataclass
class _Process:
    """The state that all storages of one process share: its writes, and its death."""

    writes: int = 0
    is_dead: bool = False
    lock: Lock = field(default_factory=Lock)


class FaultyStorage(WrappedStorage):
    """Fails at write number ``nth`` (0 is the first); ``WrappedStorage`` defines a write.

    Args:
        inner: the storage that carries out all other writes.
        nth: which write fails. If it is None, none fails, and ``writes`` counts them.
        when: with ``before`` and ``after`` the process dies before or after the write, and every
            later call raises ``SimulatedCrash``. With ``lost`` the write is not carried out, with
            ``doubtful`` it is; both raise ``StorageUnavailable`` once, and later calls work.
    """

    def __init__(self, inner: Storage, nth: int | None = None, when: When = "before") -> None:
        super().__init__(inner)
        self._nth, self._when = nth, when
        self._process = _Process()

    @property
    def writes(self) -> int:
        """How many writes there were."""
        return self._process.writes

    @property
    def has_failed(self) -> bool:
        """Whether the write number ``nth`` has failed."""
        return self._nth is not None and self._nth < self.writes

    def die(self) -> None:
        """End the process: every later call raises ``SimulatedCrash``."""
        self._process.is_dead = True

    def for_storage(self, inner: Storage) -> FaultyStorage:
        """Wrap another storage of the same process; writes to both are counted together."""
        other = FaultyStorage(inner, self._nth, self._when)
        other._process = self._process
        return other

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        self._check_alive()
        return call()

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        process, is_doubt = self._process, self._when in ("lost", "doubtful")
        with process.lock:
            self._check_alive()
            chosen = process.writes == self._nth
            process.writes += 1
            process.is_dead = chosen and not is_doubt
        if chosen and self._when == "before":
            raise SimulatedCrash(self._when, method, path)
        if chosen and self._when == "lost":
            message = f"no answer to {method} {path}, which never arrived"
            raise StorageUnavailable(message)
        answer = call()
        if chosen and self._when == "doubtful":
            message = f"no answer to {method} {path}, which was done"
            raise StorageUnavailable(message)
        if chosen:
            raise SimulatedCrash(self._when, method, path)
        return answer

    def _check_alive(self) -> None:
        if self._process.is_dead:
            raise SimulatedCrash
