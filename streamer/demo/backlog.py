"""Counts the orders in a topic, and stops a run when it has read a given number of orders."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lakemark.errors import Permanent
from streamer.events import BatchPlanned, BatchWritten, Event, Listener, RunStarted, RunStopped

_ANSWER_WITHIN_S = 10.0
_PAUSE_S = 0.1


class TopicSilent(Permanent):
    """The broker does not return the offsets of the topic."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the broker does not return the offsets of the demo's topic: {reason}")


def sent_so_far(bootstrap: str, topic: str) -> int:
    """Count the messages that earlier calls have sent; return 0 if the topic does not exist.

    The count is the sum of the end offsets. Offsets have no gaps, because the demo uses no
    transactions.

    Raises:
        TopicSilent: the broker does not answer.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "lakemark-demo"})

    def ask() -> int:
        known = consumer.list_topics(timeout=_ANSWER_WITHIN_S).topics.get(topic)
        partitions = [] if known is None else [TopicPartition(topic, p) for p in known.partitions]
        ranges = [consumer.get_watermark_offsets(p, _ANSWER_WITHIN_S) for p in partitions]
        return sum(end for _, end in ranges)

    try:
        return answered(ask, KafkaException)
    finally:
        consumer.close()


def answered(
    ask: Callable[[], int], refusal: type[Exception], within_s: float = _ANSWER_WITHIN_S
) -> int:
    """Repeat a request until the broker answers, for at most about ``within_s`` seconds.

    The broker may refuse the first requests, because a new topic has no leaders at first.

    Raises:
        TopicSilent: the broker refused every request.
    """
    until = time.monotonic() + within_s
    while True:
        try:
            return ask()
        except refusal as error:
            if time.monotonic() > until:
                raise TopicSilent(str(error)) from error
        time.sleep(_PAUSE_S)


class StopWhenCaughtUp:
    """A listener that passes events on, and stops the run when it has read enough offsets.

    Args:
        next_listener: receives every event.
        target: the sum of the offsets of all partitions at which the run stops.
    """

    def __init__(self, next_listener: Listener, target: int) -> None:
        self._next_listener, self._target = next_listener, target
        self._position = self._planned = 0
        #: Stops the run; set when the run exists.
        self.stop: Callable[[], object] = _do_nothing

    def __call__(self, event: Event, /) -> None:
        """Pass the event on, and stop the run if it has reached the target."""
        if isinstance(event, RunStopped) and self._position >= self._target:
            event = replace(event, reason="caught up")
        self._next_listener(event)
        if isinstance(event, RunStarted):
            self._position = sum(event.start.values())
        elif isinstance(event, BatchPlanned):
            self._planned = event.records
        elif isinstance(event, BatchWritten):
            self._position += self._planned
        if self._position >= self._target:
            self.stop()


def _do_nothing() -> None:
    """Do nothing, until this is replaced by the function that stops the run."""
