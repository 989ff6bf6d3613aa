"""Clocks on which waiting takes no real time."""

from __future__ import annotations

import time

from lakemark.operations.table_writer import TableWriter
from lakemark.timeline.locks.open_lock import open_lock
from tests.tables import reopened


class ManualClock:
    """A clock that advances only when a test sets it or a caller sleeps."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def sleep(self, seconds: float) -> None:
        self.time_ms += max(1, round(1000 * seconds))


class SharedClock:
    """This machine's clock, advanced by the time that all writers have waited."""

    def __init__(self) -> None:
        self._waited_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._waited_ms

    def sleep(self, seconds: float) -> None:
        self._waited_ms += int(1000 * seconds) + 1


def on_clock(to: TableWriter, clock: SharedClock) -> TableWriter:
    """Reopen a writer with a lock that uses this clock."""
    return reopened(to, lock=open_lock(to.table.storage, clock=clock))
