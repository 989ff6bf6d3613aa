"""Decides whether a run is alive and makes progress, from its events and the state of its loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from streamer.events import (
    ActionRequested,
    Alive,
    BackgroundServiceFailed,
    BackgroundServiceResolved,
    BatchPlanned,
    BatchWritten,
    ClusteringAwaited,
    CompactionCompleted,
    Event,
    Retrying,
    RunFailed,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopped,
    ServiceCompleted,
    ServiceFailed,
    SnapshotRead,
    TopicsFound,
    WarningLogged,
)

#: Seconds of waiting for records after which a stream that failed counts as recovered.
_RECOVERED_AFTER_S = 30.0


class Condition(Enum):
    """What a run does, as far as its health is concerned."""

    RUNNING = auto()
    PAUSED = auto()
    FAILING = auto()
    STUCK = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The health of a run, or of a process of several pipelines.

    Attributes:
        is_alive: False if the process should be replaced.
        is_ready: whether the stream runs, and nothing has failed since its last success.
        reason: the reason, in one line; for several pipelines, one line for each that is not ready.
        condition: what the run does.
    """

    is_alive: bool
    is_ready: bool
    reason: str
    condition: Condition = Condition.RUNNING


class Judge(Protocol):
    """Decides the answers of ``/health`` and ``/ready``. Any thread may call it."""

    def verdict(self) -> Verdict:
        """Return the health now."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class _FailingPlan:
    """The time of a plan's first failure, its service, and the error class of its last failure."""

    since: float
    service: str
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
        self._is_streaming = self._is_paused = False
        self._failing_since: float | None = None
        self._failure = ""
        self._failing_plans: dict[str, _FailingPlan] = {}
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
            if isinstance(event, BackgroundServiceFailed):
                self._note_failed_plan(event)
            elif not isinstance(event, Alive | WarningLogged | ActionRequested):
                self._progress_at = self._clock()
                self._note(event)

    def verdict(self) -> Verdict:
        """Return the health of the run now."""
        with self._lock:
            return self._judge(self._clock())

    def _note(self, event: Event) -> None:
        match event:
            case RunPaused():
                self._is_paused, self._failing_since = True, None
            case RunResumed():  # it is ready if it was before
                self._is_paused, self._doing = False, "starting the stream"
            case RunStarted():
                self._doing, self._is_streaming = "waiting for records", True
            case TopicsFound():
                self._doing, self._is_streaming = "waiting for the next search", True
                self._failing_since = None
            case BatchPlanned():
                self._doing = f"batch {event.batch_id}"
            case BatchWritten():
                self._doing = f"table services after batch {event.batch_id}"
                self._failing_since = None
            case Retrying():
                self._is_streaming, self._ended, self._is_paused = False, None, False
                limit = f" of {event.max_attempts}" if event.max_attempts else ""
                self._doing = f"attempt {event.attempt + 1}{limit}"
                self._failing_since = self._failing_since or self._progress_at
                self._failure = event.error_type
            case ClusteringAwaited():
                self._is_streaming, self._ended, self._failing_since = False, None, None
                self._doing = f"waiting for a clustering: {event.reason}"
            case CompactionCompleted() | BackgroundServiceResolved():
                self._failing_plans.pop(event.instant, None)
            case ServiceCompleted() if not event.service.endswith("_wait"):
                self._failing_plans.pop(event.instant, None)
            case ServiceFailed():  # its plan is removed, or tried again after a pause
                self._forget_plans_of(event.service)
            case SnapshotRead():
                self._doing, self._is_streaming = "opening the topic", False
            case RunFailed():
                self._ended = f"failed: {event.error_type}"
            case RunStopped():
                self._ended = f"stopped: {event.reason}"
            case _:
                pass  # counts as progress only

    def _note_failed_plan(self, event: BackgroundServiceFailed) -> None:
        """Note a failed plan. It does not count as progress of the loop."""
        since = self._clock() - event.failing_s
        before = self._failing_plans.get(event.instant)
        if before is not None:  # a deferred plan counts its failures from zero again
            since = min(since, before.since)
        service = event.service.replace("_", " ")
        self._failing_plans[event.instant] = _FailingPlan(since, service, event.error_type)

    def _forget_plans_of(self, service: str) -> None:
        name, known = service.replace("_", " "), self._failing_plans
        self._failing_plans = {i: one for i, one in known.items() if one.service != name}

    def _judge(self, now: float) -> Verdict:
        if self._ended is not None:
            return Verdict(False, False, self._ended, Condition.ENDED)
        waited_at = self._waiting_at()
        silent_s = now - max(self._progress_at, waited_at)
        if silent_s > self._stuck_after_s:
            text = f"stuck for {silent_s:.0f} s: {self._doing}"
            return Verdict(False, False, text, Condition.STUCK)
        if self._is_paused:
            text = "paused" + self._failing_plan(now)
            return Verdict(True, False, text, Condition.PAUSED)
        if self._is_streaming and waited_at - self._progress_at > _RECOVERED_AFTER_S:
            self._failing_since = None
        if self._failing_since is not None:
            failing_s = now - self._failing_since
            text = f"failing for {failing_s:.0f} s ({self._failure}): {self._doing}"
            return Verdict(failing_s <= self._stuck_after_s, False, text, Condition.FAILING)
        doing = "waiting for records" if waited_at > self._progress_at else self._doing
        return Verdict(True, self._is_streaming, doing + self._failing_plan(now))

    def _failing_plan(self, now: float) -> str:
        if not self._failing_plans:
            return ""
        longest = min(self._failing_plans.values())
        failing = f"{longest.service} failing for {now - longest.since:.0f} s"
        return f"; {failing} ({longest.error_type})"


class SharedHealth:
    """The health of a process of several pipelines, and of its searches for topics.

    Replacing the process stops all pipelines. So the process should be replaced only if a pipeline
    is stuck, which nothing else can end, or if no pipeline runs well. Searches decide this only
    while there is no pipeline.
    """

    def __init__(self) -> None:
        self._pipelines: dict[str, Judge] = {}
        self._searches: dict[str, Judge] = {}

    def add(self, pipeline: str, health: Judge) -> None:
        """Add a pipeline, with its name. Two threads must not add something at the same time."""
        self._pipelines = {**self._pipelines, pipeline: health}

    def add_search(self, name: str, health: Judge) -> None:
        """Add a search for topics, with its name; see ``add``."""
        self._searches = {**self._searches, name: health}

    def verdict(self) -> Verdict:
        """Return the health of the process now."""
        pipelines, searches = _verdicts(self._pipelines), _verdicts(self._searches)
        both = {**pipelines, **searches}
        is_stuck = any(one.condition is Condition.STUCK for one in both.values())
        is_well = not both or any(one.is_alive for one in (pipelines or searches).values())
        unready = [f"{name}: {one.reason}" for name, one in both.items() if not one.is_ready]
        running = [one for one in both.values() if one.condition is not Condition.ENDED]
        is_ready = bool(running) and all(one.is_ready for one in running)
        num_ready = sum(one.is_ready for one in pipelines.values())
        summary = f"{num_ready} of {len(pipelines)} pipelines are ready"
        return Verdict(is_well and not is_stuck, is_ready, "\n".join([summary, *unready]))


def _verdicts(judges: Mapping[str, Judge]) -> dict[str, Verdict]:
    return {name: one.verdict() for name, one in judges.items()}
