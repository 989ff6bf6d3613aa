from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.events import Alive, Event
from streamer.keepalive import emit_keepalives
from streamer.loop import StreamLoop
from streamer.sources.errors import SourceError
from streamer.sources.kafka import KafkaSource
from tests.waiting import until

WITHIN_S = 120.0


@dataclass
class Loop:
    """The part of a stream that keepalive reads."""

    started_from: KafkaCheckpoint | None
    committed_at: float | None
    created_at: float
    looks: int = 0
    is_idle: bool = False

    @property
    def position(self) -> KafkaCheckpoint | None:
        self.looks += 1
        return self.started_from


class Topic(KafkaSource):
    """A topic with two unread records in each partition, until it stops answering."""

    is_gone = False

    def __init__(self) -> None:
        pass

    def lag(self, checkpoint: KafkaCheckpoint) -> dict[int, int]:
        if self.is_gone:
            message = "no broker"
            raise SourceError(message)
        return dict.fromkeys(checkpoint.offsets, 2)


def test_idle_run_emits_keepalives() -> None:
    loop, topic = Loop(None, None, time.monotonic() - 90), Topic()
    reported: queue.Queue[Event] = queue.Queue()
    with emit_keepalives(cast(StreamLoop, loop), topic, reported.put, 0.01):
        until(lambda: loop.looks >= 3)
        assert reported.empty(), "it has not started from the table"
        loop.started_from = KafkaCheckpoint("orders", {0: 5, 1: 7})
        first = reported.get(timeout=WITHIN_S)
        assert isinstance(first, Alive)
        assert (first.checkpoint, first.lag) == ({0: 5, 1: 7}, {0: 2, 1: 2})
        assert 90 <= first.idle_s < 90 + WITHIN_S
        assert not first.has_committed
        loop.committed_at = time.monotonic()
        _wait_for(reported, lambda sign: sign.has_committed)
        topic.is_gone = True
        _wait_for(reported, lambda sign: not sign.lag)
        loop.is_idle = True  # nothing is unread, so the broker is not asked
        _wait_for(reported, lambda sign: sign.lag == {0: 0, 1: 0})
    until(lambda: "lakemark-alive" not in [thread.name for thread in threading.enumerate()])


def _wait_for(reported: queue.Queue[Event], is_wanted: Callable[[Alive], bool]) -> None:
    """Wait for a sign; earlier ones may be in the queue."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        sign = reported.get(timeout=max(0.0, deadline - time.monotonic()))
        if isinstance(sign, Alive) and is_wanted(sign):
            return
