"""Emits ``Alive`` at a fixed interval, even if there is nothing to read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from checkpoints.position import Position
from streamer.background_thread import background_thread
from streamer.events import Alive, Listener
from streamer.loop import StreamLoop
from streamer.sources.source import Source


@contextmanager
def emit_keepalives(
    loop: StreamLoop, source: Source, listener: Listener, interval_s: float
) -> Iterator[None]:
    """Emit ``Alive`` from a background thread while the stream runs, until the block ends.

    Args:
        loop: the loop of the run.
        source: reports the lag.
        listener: receives the events.
        interval_s: seconds between two events.
    """

    def emit(ending: threading.Event) -> None:
        while not ending.wait(interval_s):
            position = loop.position
            lag = {} if position is None else _lag(loop, source, position)
            if position is not None and loop.position is not None and not ending.is_set():
                committed_at = loop.committed_at
                since = loop.created_at if committed_at is None else committed_at
                idle_s, has_committed = time.monotonic() - since, committed_at is not None
                listener(Alive(dict(position.offsets_by_partition), lag, idle_s, has_committed))

    with background_thread("lakemark-alive", emit):
        yield


def _lag(loop: StreamLoop, source: Source, position: Position) -> Mapping[int, int]:
    """Return the lag, without a question to the broker if nothing is unread."""
    if loop.is_idle:
        return dict.fromkeys(position.offsets_by_partition, 0)
    return source.lag_if_known(position)
