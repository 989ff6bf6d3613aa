"""Slots that threads hold for a while, and get in the order in which they ask."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: How often a waiting thread checks whether it should give up, in seconds.
_POLL_S = 0.5


class Slots:
    """A fixed number of slots.

    Args:
        count: how many threads may hold a slot at the same time.
    """

    def __init__(self, count: int) -> None:
        assert count > 0
        self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    @property
    def are_wanted(self) -> bool:
        """Whether a thread waits for a slot."""
        return bool(self._waiting)

    @contextmanager
    def hold(self, gives_up: Callable[[], bool]) -> Iterator[bool]:
        """Hold a slot until the block ends.

        Args:
            gives_up: called about twice a second while the thread waits; returns whether it should
                wait no longer.

        Yields:
            Whether the thread holds a slot; False if it gave up.
        """
        has_slot = self._acquire(gives_up)
        try:
            yield has_slot
        finally:
            if has_slot:
                self._release()

    def _acquire(self, gives_up: Callable[[], bool]) -> bool:
        granted = threading.Event()
        with self._lock:
            self._waiting.append(granted)
            self._grant()
        try:
            while not granted.wait(_POLL_S):
                if gives_up():
                    return not self._withdraw(granted)
        except BaseException:
            if not self._withdraw(granted):
                self._release()
            raise
        return True

    def _withdraw(self, request: threading.Event) -> bool:
        """Withdraw a request; return False if the slot was granted in the meantime."""
        with self._lock:
            if request.is_set():
                return False
            self._waiting.remove(request)
            return True

    def _release(self) -> None:
        with self._lock:
            self._free += 1
            self._grant()

    def _grant(self) -> None:
        """Give the free slots to the requests that have waited longest; called under the lock."""
        while self._free and self._waiting:
            self._free -= 1
            self._waiting.popleft().set()
