"""One turn of a stream in a process of several pipelines: when it ends, and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto

from streamer.schedule import Schedule


class Pause(Enum):
    """Why a stream pauses."""

    #: Others wait for the slot of this stream, which has work.
    TURN_ENDED = auto()
    #: Nothing is unread.
    IDLE = auto()
    #: The run was asked to pause.
    ASKED = auto()
    #: The run was asked for a table service, while no batch was in progress.
    SERVICE = auto()
    #: A part of the sink needs earlier records again (``StreamSink.restart_due_in_s``).
    RESTART = auto()


class StreamTurn:
    """The time from the start of a stream until it pauses.

    Args:
        schedule: the schedule of the pipeline.
        is_caught_up: asks the broker whether nothing is unread.
    """

    def __init__(self, schedule: Schedule, is_caught_up: Callable[[], bool]) -> None:
        self._schedule, self._is_caught_up = schedule, is_caught_up
        self._began = self._busy_at = time.monotonic()

    def find_pause(self, *, is_idle: bool, has_progressed: bool) -> Pause | None:
        """Return why the stream should pause now; None if it should not.

        It pauses only if it has written a batch or is caught up, so that every stream progresses.

        Args:
            is_idle: whether no batch is in progress.
            has_progressed: whether this stream has written a batch.
        """
        now = time.monotonic()
        if not is_idle:
            self._busy_at = now
        if has_progressed and self._schedule.ends_turn(now - self._began):
            return Pause.TURN_ENDED
        if not self._schedule.ends_idle(now - self._busy_at):
            return None
        if self._is_caught_up():
            return Pause.IDLE
        self._busy_at = now  # so that the broker is not asked again at once
        return None
