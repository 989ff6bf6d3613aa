"""A stream of a source that is asked for its next batch again and again, in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from sinks.batch import Batch
from streamer.sources.source import StreamSettings

#: Seconds until the next call, if no batch may be planned now.
_PAUSE_S = 0.1


class PolledStream:
    """A ``SourceStream`` that reads its batches itself, and is its own ``RunningStream``.

    Args:
        plan_next: returns the next batch, or None if there is nothing to read now.
        close: called at the end of the thread.
        settings: how the stream runs.
        poll_interval_s: seconds between two calls of ``plan_next`` if there is nothing to read.
    """

    def __init__(
        self,
        plan_next: Callable[[], Batch | None],
        close: Callable[[], None],
        settings: StreamSettings,
        poll_interval_s: float,
    ) -> None:
        self._plan_next, self._close = plan_next, close
        self._settings, self._poll_interval_s = settings, poll_interval_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_found: bool | None = None

    def plan(self, given: Any, batch_id: int) -> Batch | None:
        """Return the next batch; None if there is nothing to read now."""
        batch = self._plan_next()
        self._has_found = batch is not None
        return batch

    def start(self, on_batch: Callable[[Any, int], None]) -> PolledStream:
        """Start the thread, which calls ``on_batch`` for each batch."""
        self._thread = threading.Thread(
            target=self._run, args=(on_batch,), name="lakemark-source", daemon=True
        )
        self._thread.start()
        return self

    @property
    def isActive(self) -> bool:
        """Whether the thread has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def exception(self) -> BaseException | None:
        """Return None, because ``on_batch`` keeps all errors."""
        return None

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, on_batch: Callable[[Any, int], None]) -> None:
        batch_id = 0
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                has_found = self._call(on_batch, batch_id)
                if has_found:
                    batch_id += 1
                elif has_found is False and self._settings.mode == "once":
                    return
                self._stopping.wait(self._pause_s(has_found, time.monotonic() - began))
        finally:
            self._close()

    def _call(self, on_batch: Callable[[Any, int], None], batch_id: int) -> bool | None:
        """Call ``on_batch``; return whether it has found a batch, or None if it did not ask."""
        self._has_found = None
        on_batch(None, batch_id)
        return self._has_found

    def _pause_s(self, has_found: bool | None, taken_s: float) -> float:
        """Return the seconds until the next call, if the last one took ``taken_s`` seconds."""
        if has_found is None:
            return _PAUSE_S
        is_once = self._settings.mode == "once"
        interval_s = 0.0 if is_once else self._settings.trigger_interval_s
        if not has_found:
            interval_s = max(interval_s, self._poll_interval_s)
        return max(interval_s - taken_s, 0.0)
