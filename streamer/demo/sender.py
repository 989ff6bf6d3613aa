"""Sends the order stream in a thread, while a run reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from streamer.demo.producer import produce

_RATE_PER_S = 2_000

#: How long to wait until the broker has acknowledged the messages that were already sent.
_END_WITHIN_S = 5.0


class Sender(threading.Thread):
    """Sends orders until all are sent, or until ``end`` is called.

    Args:
        bootstrap: the address of the broker.
        topic: the topic.
        first: the number of the first order message.
        count: the number of messages.
        stop: stops the run if sending fails. Otherwise the run would wait forever for the rest.
    """

    def __init__(
        self, bootstrap: str, topic: str, first: int, count: int, stop: Callable[[], object]
    ) -> None:
        super().__init__(name="orders", daemon=True)
        # The name is not ``_bootstrap``, because ``Thread`` has a method with that name.
        self._brokers, self._topic, self._first, self._count = bootstrap, topic, first, count
        self._stop_run = stop
        self._failure: Exception | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        """Send the orders. If this fails, stop the run."""
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
