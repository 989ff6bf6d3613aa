"""A store whose process pauses before one request, or is cut off from the store at that request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from lakemark.errors import HudiError, StorageUnavailable
from lakemark.storage import Storage
from tests.storages import SimulatedCrash
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")


class Fault(Enum):
    """What happens to the request before which a process pauses, and to those that follow.

    Attributes:
        NONE: the process resumes, and all requests are answered.
        LOST: the request and some that follow never arrive, and get no answer.
        DONE: the request is carried out at once, and its answer is lost; then as ``LOST``.
        DEATH: the request arrives after the others have acted; the process never resumes.
    """

    NONE = "none"
    LOST = "lost"
    DONE = "done"
    DEATH = "death"


class StalledStore(WrappedStorage):
    """Pauses its process before request ``stop``, while others act.

    Attributes:
        requests: how many requests were counted so far. A caller may set it to 0.
        stopped_at: the request before which the process paused; None until then.
    """

    def __init__(
        self,
        inner: Storage,
        stop: int | None = None,
        meanwhile: Callable[[], object] = lambda: None,
        fault: Fault = Fault.NONE,
    ) -> None:
        super().__init__(inner)
        self._stop, self._meanwhile, self._fault = stop, meanwhile, fault
        self._is_counting = False
        self.requests = 0
        self.stopped_at: str | None = None

    def begin(self) -> None:
        """Count the requests from now on."""
        self._is_counting = True

    def _request(self, method: str, path: str, call: Callable[[], T]) -> T:
        if not self._is_counting:
            return call()
        number, self.requests = self.requests, self.requests + 1
        if number == self._stop:
            self._pause(method, path, call)
        if self._stop is None or number < self._stop or self._fault is Fault.NONE:
            return call()
        if self._fault is Fault.DEATH:
            raise SimulatedCrash
        if number <= self._stop + self._stop % _MOST_UNANSWERED:
            message = f"no answer to {method} {path}"
            raise StorageUnavailable(message)
        return call()

    _reading = _writing = _request

    def _pause(self, method: str, path: str, call: Callable[[], T]) -> None:
        self.stopped_at = f"{method} {path}"
        if self._fault is Fault.DONE:
            with suppress(HudiError):
                call()
        self._meanwhile()
        if self._fault is Fault.DEATH:
            with suppress(HudiError):
                call()


#: The most requests that fail while a process is cut off; how many depends on ``stop``.
_MOST_UNANSWERED = 5
