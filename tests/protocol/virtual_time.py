"""A clock for all processes of a test; its time passes only while a process waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from math import ceil

import pytest

from lakemark.timeline.clock import ClockSlot, TimelineClock

_START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualTime:
    """A clock for the lock, the timeline, heartbeats and the store.

    Attributes:
        passed_ms: milliseconds since the beginning of a test.
    """

    def __init__(self, passed_ms: int = 0) -> None:
        self.passed_ms = passed_ms

    def now_ms(self) -> int:
        return int(_START.timestamp()) * 1000 + self.passed_ms

    def sleep(self, seconds: float) -> None:
        """Advance the clock by at least a millisecond."""
        self.passed_ms += max(1, ceil(1000 * seconds))

    def moment(self, ms: int) -> datetime:
        return datetime.fromtimestamp(ms / 1000, UTC)

    def now(self, zone: tzinfo | None = UTC) -> datetime:
        return self.moment(self.now_ms()).astimezone(zone)

    def time(self) -> float:
        """Like ``time.time``."""
        return self.now_ms() / 1000


@dataclass(frozen=True, slots=True)
class VirtualTimelineClock(TimelineClock):
    """Generates the instant times of a table from virtual time.

    Attributes:
        virtual: the virtual clock.
    """

    virtual: VirtualTime = field(default_factory=VirtualTime)

    def next_instant(
        self,
        newest_time: str | None,
        turn: ClockSlot | None = None,
        now: Callable[[], datetime] | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> str:
        follow = now or self.virtual.now, sleep or self.virtual.sleep
        return TimelineClock.next_instant(self, newest_time, turn, *follow)


@contextmanager
def on_virtual_time(passed_ms: int = 0) -> Iterator[VirtualTime]:
    """Run a block in which heartbeats and waits for other writers follow a virtual clock.

    No heartbeat thread runs, because it would wait by the clock of the machine.
    """
    virtual = VirtualTime(passed_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakemark.transaction.heartbeat.time", virtual)
        patch.setattr("lakemark.transaction.heartbeat.datetime", virtual)
        patch.setattr("lakemark.transaction.heartbeat.Heartbeat._run", lambda self: None)
        patch.setattr("lakemark.transaction.multi_writer.time", virtual)
        patch.setattr("lakemark.transaction.transaction.time", virtual)
        yield virtual
