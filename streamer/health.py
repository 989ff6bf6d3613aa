"""Decides whether a run is alive and makes progress, from its events and the state of its loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from streamer.events import (
    Alive,
    BatchPlanned,
    BatchWritten,
    CompactionCompleted,
    CompactionFailed,
    CompactionResolved,
    Event,
    Retrying,
    RunFailed,
    RunStarted,
    RunStopped,
    WarningLogged,
)

#: Seconds of waiting for records after which a stream that failed counts as recovered.
_RECOVERED_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The health of a run.

    Attributes:
        is_alive: False if the process should be replaced.
        is_ready: whether the stream runs, and nothing has failed since its last success.
        reason: the reason, in one line.
    """

    is_alive: bool
    is_ready: bool
    reason: str


@dataclass(frozen=True, slots=True, order=True)
class _FailingCompaction:
    """The time of a compaction's first failure, and the error class of its last failure."""

    since: float
    error_type: str


class Health:
    """A listener that tracks the health of a run. Any thread may call ``verdict``.

    The run makes progress when the loop emits an event or waits for records. The loop notes several
    times a second that it waits. Events of other threads do not count. So a run counts as stuck if
    a start, a batch or a service takes too long, or if Spark's JVM no longer answers the loop.

    Args:
        stuck_after_s: the run counts as stuck after this number of seconds without progress, or
            with failed attempts only.
        clock: monotonic seconds.
    """

    def __init__(self, stuck_after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stuck_after_s, self._clock = stuck_after_s, clock
        self._lock = threading.Lock()
        self._waiting_at: Callable[[], float] = lambda: 0.0
        self._doing, self._progress_at = "starting", clock()
        self._is_streaming = False
        self._failing_since: float | None = None
        self._failure = ""
        self._failing_compactions: dict[str, _FailingCompaction] = {}
        self._ended: str | None = None

    def watch(self, waiting_at: Callable[[], float]) -> None:
        """Also use the time at which the loop last waited for records.

        Args:
            waiting_at: returns this time, on the same clock.
        """
        with self._lock:
            self._waiting_at = waiting_at

    def __call__(self, event: Event, /) -> None:
        """Update the health with an event."""
        with self._lock:
            if isinstance(event, CompactionFailed):
                self._note_failed_compaction(event)
            elif not isinstance(event, Alive | WarningLogged):
                self._progress_at = self._clock()
                self._note(event)

    def verdict(self) -> Verdict:
        """Return the health of the run now."""
        with self._lock:
            return self._judge(self._clock())

    def _note(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._doing, self._is_streaming = "waiting for records", True
            case BatchPlanned():
                self._doing = f"batch {event.batch_id}"
            case BatchWritten():
                self._doing = f"table services after batch {event.batch_id}"
                self._failing_since = None
            case Retrying():
                self._is_streaming = False
                self._doing = f"attempt {event.attempt + 1} of {event.max_attempts}"
                self._failing_since = self._failing_since or self._progress_at
                self._failure = event.error_type
            case CompactionCompleted() | CompactionResolved():
                self._failing_compactions.pop(event.instant, None)
            case RunFailed():
                self._ended = f"failed: {event.error_type}"
            case RunStopped():
                self._ended = f"stopped: {event.reason}"
            case _:
                pass  # counts as progress only

    def _note_failed_compaction(self, event: CompactionFailed) -> None:
        """Note a failed compaction. It does not count as progress of the loop."""
        since = self._clock() - event.failing_s
        before = self._failing_compactions.get(event.instant)
        if before is not None:  # a deferred plan counts its failures from zero again
            since = min(since, before.since)
        self._failing_compactions[event.instant] = _FailingCompaction(since, event.error_type)

    def _judge(self, now: float) -> Verdict:
        if self._ended is not None:
            return Verdict(False, False, self._ended)
        waited_at = self._waiting_at()
        silent_s = now - max(self._progress_at, waited_at)
        if silent_s > self._stuck_after_s:
            return Verdict(False, False, f"stuck for {silent_s:.0f} s: {self._doing}")
        if self._is_streaming and waited_at - self._progress_at > _RECOVERED_AFTER_S:
            self._failing_since = None
        if self._failing_since is not None:
            failing_s = now - self._failing_since
            text = f"failing for {failing_s:.0f} s ({self._failure}): {self._doing}"
            return Verdict(failing_s <= self._stuck_after_s, False, text)
        doing = "waiting for records" if waited_at > self._progress_at else self._doing
        return Verdict(True, self._is_streaming, doing + self._failing_compaction(now))

    def _failing_compaction(self, now: float) -> str:
        if not self._failing_compactions:
            return ""
        longest = min(self._failing_compactions.values())
        return f"; compaction failing for {now - longest.since:.0f} s ({longest.error_type})"
