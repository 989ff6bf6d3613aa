"""Sends the order stream while a run reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from streamer.demo.producer import produce

_RATE_PER_S = 2_000

#: Seconds to wait for messages that are already sent.
_END_WITHIN_S = 5.0


class Sender(threading.Thread):
    """Sends orders until all are sent, or until ``end`` is called.

    Args:
        bootstrap: of the broker.
        topic: the topic.
        first: number of the first order.
        count: number of orders.
        stop: stops the run after a failure; it would wait for ever for the other orders.
    """

    def __init__(
        self, bootstrap: str, topic: str, first: int, count: int, stop: Callable[[], object]
    ) -> None:
        super().__init__(name="orders", daemon=True)
        # Not ``_bootstrap``: a thread has a method of that name.
        self._brokers, self._topic, self._first, self._count = bootstrap, topic, first, count
        self._stop_run = stop
        self._failure: Exception | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        """Send the orders; a failure stops the run."""
        try:
            produce(
                self._brokers,
                self._topic,
                self._count,
                rate_per_s=_RATE_PER_S,
                first=self._first,
                is_ended=self._ended.is_set,
            )
        except Exception as error:
            self._failure = error
            self._stop_run()

    def end(self) -> None:
        """Send no more orders, and close the connection before the broker is stopped."""
        self._ended.set()
        self.join(_END_WITHIN_S)

    def raise_failure(self) -> None:
        """Raise the failure of the sender, if there was one."""
        if self._failure is not None:
            raise self._failure
