"""Looks at topic and table from time to time, beside the stream, which does not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lakemark.operations.open_table import OpenTable
from streamer.background_thread import background_thread
from streamer.metrics.run_metrics import RunMetrics
from streamer.metrics.table_shape import shape_of
from streamer.sources.kafka import KafkaSource
from streamer.sources.kafka_peek import KafkaPeek


@contextmanager
def looking(
    source: KafkaSource, tables: Mapping[str, OpenTable], metrics: RunMetrics, every_s: float
) -> Iterator[None]:
    """A block during which a thread keeps the metrics of topic and tables true.

    Args:
        source: is asked for the lag.
        tables: by name; their loaded views are measured, nothing is listed.
        metrics: is told.
        every_s: seconds between two looks.
    """
    watch = _LagWatch(source, tables, metrics)
    with background_thread("lakemark-lag", lambda ending: watch.run(ending, every_s)):
        yield


class _LagWatch:
    def __init__(
        self, source: KafkaSource, tables: Mapping[str, OpenTable], metrics: RunMetrics
    ) -> None:
        self._source, self._tables, self._metrics = source, tables, metrics
        self._records: KafkaPeek | None = None

    def run(self, ending: threading.Event, every_s: float) -> None:
        """Until ``ending``; a look that fails is counted, and the next one follows."""
        while not ending.is_set():
            try:
                self._look()
            except Exception:  # whatever it is, it must not end the watch: others tell of it
                self._metrics.note_failed_look()
            ending.wait(every_s)
        if self._records is not None:
            self._records.close()

    def _look(self) -> None:
        for name, table in self._tables.items():
            view = table.snapshot.loaded_view
            if view is not None:
                self._metrics.note_table(name, shape_of(view))
        position = self._metrics.position
        if position is None:
            return
        lag = self._source.lag(position)
        unread = {p: position.offsets[p] for p, n in lag.items() if n and p in position.offsets}
        if unread and self._records is None:
            self._records = self._source.peek()
        oldest = self._records.timestamps(unread) if unread and self._records else {}
        if self._metrics.position == position:  # else a batch was written meanwhile
            self._metrics.note_lag(lag, oldest)
