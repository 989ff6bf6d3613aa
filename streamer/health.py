"""Whether a run is alive, and whether it makes progress: judged by its events and its loop."""

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

#: A stream that waits for records so long after a failure has come over it.
_SETTLED_S = 30.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run is.

    Attributes:
        is_alive: False asks for a new process.
        is_ready: whether the stream runs, and nothing has failed since its last success.
        reason: in one line.
    """

    is_alive: bool
    is_ready: bool
    reason: str


@dataclass(frozen=True, slots=True, order=True)
class _FailingCompaction:
    """Since when one has failed, in seconds of the clock, and the class of its last failure."""

    since: float
    error_type: str


class Health:
    """A listener that judges; may be asked from any thread.

    A sign of life is an event of the loop's own, which others' are not, or the loop waiting for
    records, which it says several times a second whatever the trigger interval. So what is found
    stuck is a start, a batch or a service that takes too long, or a loop whose JVM no longer
    answers.

    Args:
        stuck_after_s: seconds without a sign of life, or with nothing but retries, until the run
            counts as stuck.
        clock: seconds that never go back.
    """

    def __init__(self, stuck_after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stuck_after_s, self._clock = stuck_after_s, clock
        self._lock = threading.Lock()
        self._waiting_at: Callable[[], float] = lambda: 0.0
        self._doing, self._told_at = "starting", clock()
        self._is_streaming = False
        self._failing_since: float | None = None
        self._failure = ""
        self._failing_compactions: dict[str, _FailingCompaction] = {}
        self._ended: str | None = None

    def watch(self, waiting_at: Callable[[], float]) -> None:
        """Ask the loop, too.

        Args:
            waiting_at: when the loop was last seen waiting for records, on the same clock.
        """
        with self._lock:
            self._waiting_at = waiting_at

    def __call__(self, event: Event, /) -> None:
        """Take note."""
        with self._lock:
            if isinstance(event, CompactionFailed):
                self._note_failed_compaction(event)
            elif not isinstance(event, Alive | WarningLogged):
                self._told_at = self._clock()
                self._note(event)

    def verdict(self) -> Verdict:
        """How the run is now."""
        with self._lock:
            return self._judge(self._clock())

    def _note(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._doing, self._is_streaming = "waiting for records", True
            case BatchPlanned():
                self._doing = f"batch {event.batch_id}"
            case BatchWritten():
                self._doing = f"what follows batch {event.batch_id}"
                self._failing_since = None
            case Retrying():
                self._is_streaming = False
                self._doing = f"attempt {event.attempt + 1} of {event.max_attempts}"
                self._failing_since = self._failing_since or self._told_at
                self._failure = event.error_type
            case CompactionCompleted() | CompactionResolved():
                self._failing_compactions.pop(event.instant, None)
            case RunFailed():
                self._ended = f"failed: {event.error_type}"
            case RunStopped():
                self._ended = f"stopped: {event.reason}"
            case _:
                pass  # a sign of life, and nothing else

    def _note_failed_compaction(self, event: CompactionFailed) -> None:
        """Batches go on beside it, or are stuck, whatever becomes of it."""
        since = self._clock() - event.failing_s
        before = self._failing_compactions.get(event.instant)
        if before is not None:  # a plan that was left to others begins to count anew
            since = min(since, before.since)
        self._failing_compactions[event.instant] = _FailingCompaction(since, event.error_type)

    def _judge(self, now: float) -> Verdict:
        if self._ended is not None:
            return Verdict(False, False, self._ended)
        waited_at = self._waiting_at()
        silent_s = now - max(self._told_at, waited_at)
        if silent_s > self._stuck_after_s:
            return Verdict(False, False, f"stuck for {silent_s:.0f} s: {self._doing}")
        if self._is_streaming and waited_at - self._told_at > _SETTLED_S:
            self._failing_since = None
        if self._failing_since is not None:
            failing_s = now - self._failing_since
            text = f"failing for {failing_s:.0f} s ({self._failure}): {self._doing}"
            return Verdict(failing_s <= self._stuck_after_s, False, text)
        doing = "waiting for records" if waited_at > self._told_at else self._doing
        return Verdict(True, self._is_streaming, doing + self._trouble_beside(now))

    def _trouble_beside(self, now: float) -> str:
        if not self._failing_compactions:
            return ""
        longest = min(self._failing_compactions.values())
        return f"; compaction failing for {now - longest.since:.0f} s ({longest.error_type})"
