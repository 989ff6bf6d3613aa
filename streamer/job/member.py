"""A thread of a job, whose failures do not stop the others."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

from streamer.backoff import pause_after
from streamer.config.run import RunConfig
from streamer.events import Listener, Retrying, RunFailed, RunStopped
from streamer.job.outcome import Outcome
from streamer.stream_failure import is_transient, min_pause_s
from streamer.working_for import working_for

_POLL_S = 0.5


class Member(ABC):
    """A thread of a job.

    A supervisor such as systemd cannot start one of several pipelines again. So this class does, if
    the error is transient: in mode ``continuous`` without a limit, otherwise for
    ``run.retry.max_attempts``.

    Attributes:
        outcome: what became of the member.
        waiting_at: when the thread was last seen waiting, in seconds of ``time.monotonic``.

    Args:
        outcome: is updated by the events that ``listener`` receives.
        listener: receives all events.
        run: the mode and the retries.
    """

    def __init__(self, outcome: Outcome, listener: Listener, run: RunConfig) -> None:
        self.outcome, self._listener, self._run_config = outcome, listener, run
        self._stopping = threading.Event()
        self.waiting_at = 0.0
        name = f"pipeline {outcome.pipeline}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def has_unfinished_work(self) -> bool:
        """Whether threads of this member may still be at work."""
        return self.is_running

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the member to stop; may be called from a signal handler."""
        self._stopping.set()

    def _run(self) -> None:
        with working_for(self.outcome.pipeline):
            try:
                self._run_with_restarts()
            except Exception as error:
                self._listener(RunFailed(type(error).__name__, str(error)))

    def _run_with_restarts(self) -> None:
        """Run until the end; if the error is transient, start again after a pause."""
        limits, failures, batches_before = self._run_config.retry, 0, 0
        while not self._stopping.is_set():
            try:
                return self._run_once()
            except Exception as error:
                failures = 1 if self.outcome.batches > batches_before else failures + 1
                batches_before = self.outcome.batches
                if not self._may_pass(error) or self._gives_up(failures):
                    raise
                pause_s = pause_after(failures, limits.backoff_s, limits.max_backoff_s)
                pause_s = max(pause_s, min_pause_s(error))
                self._listener(
                    Retrying(str(error), failures, self._limit, pause_s, type(error).__name__)
                )
                self._pause(pause_s)
        self._listener(RunStopped("interrupted", {}, 0, 0, 0.0))

    @abstractmethod
    def _run_once(self) -> None:
        """Run until the end, and emit ``RunStopped``."""

    def _may_pass(self, error: Exception) -> bool:
        """Return whether another attempt may succeed."""
        return is_transient(error)

    @property
    def _limit(self) -> int:
        """The number of attempts; 0 if there is no limit."""
        return self._run_config.retry.max_attempts if self._run_config.mode == "once" else 0

    def _gives_up(self, failures: int) -> bool:
        return 0 < self._limit <= failures

    def _waits_no_longer(self) -> bool:
        """Note that the thread waits; return whether it should stop."""
        self.waiting_at = time.monotonic()
        return self._stopping.is_set()

    def _pause(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while not self._waits_no_longer() and (left_s := ends_at - time.monotonic()) > 0:
            time.sleep(min(left_s, _POLL_S))
