"""Polls the topic and the tables in a background thread, so that the stream does not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.operations.open_table import OpenTable
from streamer.background_thread import background_thread
from streamer.metrics.run_metrics import RunMetrics
from streamer.metrics.table_shape import shape_of
from streamer.sources.kafka import KafkaSource
from streamer.sources.kafka_peek import KafkaPeek
from streamer.sources.source import Source


@contextmanager
def poll_in_background(
    source: Source,
    tables: Mapping[str, OpenTable],
    metrics: RunMetrics,
    interval_s: float,
    is_idle: Callable[[], bool],
    after_poll: Callable[[], None],
) -> Iterator[None]:
    """Update the metrics of the topic and the tables until the block ends.

    Args:
        source: reports the lag.
        tables: tables by name. Their views are in memory, so no storage is listed.
        metrics: the metrics to update.
        interval_s: seconds between two polls.
        is_idle: returns whether nothing is unread, so that the broker need not be asked.
        after_poll: called after each poll that has not failed.
    """
    poller = _Poller(source, tables, metrics, is_idle, after_poll)
    with background_thread("lakemark-lag", lambda ending: poller.run(ending, interval_s)):
        yield


class _Poller:
    def __init__(
        self,
        source: Source,
        tables: Mapping[str, OpenTable],
        metrics: RunMetrics,
        is_idle: Callable[[], bool],
        after_poll: Callable[[], None],
    ) -> None:
        self._source, self._tables, self._metrics = source, tables, metrics
        self._is_idle, self._after_poll = is_idle, after_poll
        self._peek: KafkaPeek | None = None

    def run(self, ending: threading.Event, interval_s: float) -> None:
        """Poll until ``ending`` is set. Failed polls are counted."""
        while not ending.is_set():
            try:
                self._poll()
                self._after_poll()
            except Exception:  # no error may end the thread; the run reports its own failures
                self._metrics.record_failed_poll()
                self._close_peek()  # its secrets may have been replaced
            ending.wait(interval_s)
        self._close_peek()

    def _close_peek(self) -> None:
        peek, self._peek = self._peek, None
        if peek is not None:
            peek.close()

    def _poll(self) -> None:
        for name, table in self._tables.items():
            view = table.snapshot.loaded_view
            if view is not None:
                self._metrics.record_table(name, shape_of(view))
        position = self._metrics.position
        if position is not None and isinstance(self._source, KafkaSource):
            self._poll_topic(self._source, position)

    def _poll_topic(self, source: KafkaSource, position: KafkaCheckpoint) -> None:
        is_idle = self._is_idle()
        lag = dict.fromkeys(position.offsets, 0) if is_idle else source.lag(position)
        unread = {p: position.offsets[p] for p, n in lag.items() if n and p in position.offsets}
        if unread and self._peek is None:
            self._peek = source.peek()
        oldest = self._peek.timestamps(unread) if unread and self._peek else {}
        if self._metrics.position == position:  # otherwise a batch was written during the poll
            self._metrics.record_lag(lag, oldest)
