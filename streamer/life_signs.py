"""A sign of life from time to time, also while there is nothing to read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.events import Alive, Listener
from streamer.loop import StreamLoop
from streamer.sources.kafka import KafkaSource

#: A question to the topic that takes longer than this is left to itself when the run ends.
_END_WITHIN_S = 1.0


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
    ending = threading.Event()

    def tell() -> None:
        while not ending.wait(every_s):
            position = loop.position
            lag = {} if position is None else _lag(source, position)
            if position is not None and loop.position is not None and not ending.is_set():
                idle_s = time.monotonic() - loop.committed_at
                listener(Alive(dict(position.offsets), lag, idle_s))

    thread = threading.Thread(target=tell, name="lakemark-alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(_END_WITHIN_S)


def _lag(source: KafkaSource, position: KafkaCheckpoint) -> Mapping[int, int]:
    try:
        return source.lag(position)
    except Exception:  # whatever it is: the run is alive all the same, and it will fail by itself
        return {}
