"""A sign of life from time to time, also while there is nothing to read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.background_thread import background_thread
from streamer.events import Alive, Listener
from streamer.loop import StreamLoop
from streamer.sources.kafka import KafkaSource


@contextmanager
def telling_of_life(
    loop: StreamLoop, source: KafkaSource, listener: Listener, every_s: float
) -> Iterator[None]:
    """A block during which a thread tells ``Alive`` while the stream runs, which does not wait.

    Args:
        loop: the run.
        source: is asked for the lag.
        listener: is told.
        every_s: seconds between two signs.
    """

    def tell(ending: threading.Event) -> None:
        while not ending.wait(every_s):
            position = loop.position
            lag = {} if position is None else _lag(source, position)
            if position is not None and loop.position is not None and not ending.is_set():
                committed_at = loop.committed_at
                idle_s = time.monotonic() - (loop.made_at if committed_at is None else committed_at)
                has_committed = committed_at is not None
                listener(Alive(dict(position.offsets), lag, idle_s, has_committed))

    with background_thread("lakemark-alive", tell):
        yield


def _lag(source: KafkaSource, position: KafkaCheckpoint) -> Mapping[int, int]:
    try:
        return source.lag(position)
    except Exception:  # whatever it is: the run is alive all the same, and it will fail by itself
        return {}
