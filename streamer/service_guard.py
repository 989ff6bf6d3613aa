"""Runs a table service between two batches so that its failures do not end the stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from streamer.backoff import pause_after
from streamer.events import Listener, ServiceFailed

T = TypeVar("T")

#: The pause after the first of several consecutive failures, and the longest pause.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0


class ServiceFailures:
    """Reports the consecutive failures of a service, and how long to pause after each.

    Args:
        service: the name of the service in events and metrics.
        table: the URL of the table.
        listener: receives the events.
        longest_pause_s: the longest pause in seconds.
    """

    def __init__(
        self, service: str, table: str, listener: Listener, longest_pause_s: float = LONGEST_PAUSE_S
    ) -> None:
        self._service, self._table, self._listener = service, table, listener
        self._longest_pause_s, self._count = longest_pause_s, 0

    def forget(self) -> None:
        """Forget the failures, because the service has succeeded."""
        self._count = 0

    def report(self, error: Exception) -> float:
        """Report a failure; return the seconds until the service may run again."""
        self._count += 1
        pause_s = pause_after(self._count, FIRST_PAUSE_S, self._longest_pause_s)
        name = type(error).__name__
        self._listener(
            ServiceFailed(self._service, str(error), self._count, pause_s, name, self._table)
        )
        return pause_s


class ServiceGuard:
    """Runs the work of a service, and pauses work that has failed.

    Args:
        service, table, listener: as for ``ServiceFailures``.
        monotonic_s: returns seconds of a clock that is never set back.
    """

    def __init__(
        self,
        service: str,
        table: str,
        listener: Listener,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service, self._table, self._listener = service, table, listener
        self._monotonic_s = monotonic_s
        self._failures: dict[str, ServiceFailures] = {}
        self._paused_until: dict[str, float] = {}

    def pause(self, name: str) -> None:
        """Pause some work as after its first failure."""
        self._paused_until[name] = self._monotonic_s() + FIRST_PAUSE_S

    def attempt(self, name: str, work: Callable[[], list[T]]) -> list[T]:
        """Do some work and return its results; none if it fails, or pauses after a failure.

        Args:
            name: identifies the work. Only work of this name pauses after its failure.
            work: the work, which leaves the table in a state in which batches can be written.
        """
        if self._monotonic_s() < self._paused_until.get(name, 0.0):
            return []
        try:
            done = work()
        except Exception as error:
            known = self._failures.setdefault(
                name, ServiceFailures(self._service, self._table, self._listener)
            )
            pause_s = known.report(error)
            self._paused_until[name] = self._monotonic_s() + pause_s
            return []
        self._failures.pop(name, None)
        self._paused_until.pop(name, None)
        return done
