"""The micro-batches of one stream: one is published while the next one is read.

Spark plans a micro-batch when the call for the one before it returns. So the call reads its batch,
passes it to a thread, and returns. While the thread decodes, writes and publishes the batch, Spark
calls for the next one.

- Batches are published one at a time, in the order of their offsets. At most one is ahead: the call
  waits until the batch before it is published.
- No batch is read while a large one is published, because both would be in memory.
- If a batch fails, the one that was read meanwhile is dropped. The table is the only source of
  progress, so the next start reads it again.
- A batch that does not fit in this process is read while it is written. It is written in the call
  itself, after the batch before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from pyspark.sql import DataFrame

from sinks.batch import KafkaBatch
from sinks.hudi.collect import COLLECT_BUDGET_BYTES
from sinks.hudi.exchange import Exchange, ReadBatch
from streamer.stream_failure import translate

#: The next batch is read while one of at most so many bytes is published. It is half of what one
#: batch may have (``sinks.hudi.collect``), so that both have at most half as much again.
_MAX_PUBLISHED_BYTES = COLLECT_BUDGET_BYTES // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A micro-batch that was planned, and perhaps read.

    Attributes:
        id: Spark's number of it.
        batch: its records and offsets.
        exchange: writes it.
        read_s: seconds that reading took; None if it is read while it is written.
    """

    id: int
    batch: KafkaBatch
    exchange: Exchange
    read_s: float | None

    @property
    def is_large(self) -> bool:
        """Whether no other batch may be in memory."""
        read = self.exchange
        return isinstance(read, ReadBatch) and read.size_bytes > _MAX_PUBLISHED_BYTES


class StreamBatches:
    """Reads the micro-batches of one stream, and publishes them in their order.

    Attributes:
        failure: why no further batch is published; None while all is well.

    Args:
        make_batch: makes the batch of a DataFrame and its id; None if it has no new offsets.
        announce: called with a batch and its id when it is the next to be published: before it is
            read, or when the batch before it is published.
        read: reads a batch, as ``StreamExchange.read``.
        publish: publishes a batch; is never called by two threads at once.
        stopping: set when the run is to stop.
        reads_ahead: whether a batch is read while another one is published.
    """

    def __init__(
        self,
        make_batch: Callable[[DataFrame, int], KafkaBatch | None],
        announce: Callable[[KafkaBatch, int], None],
        read: Callable[[KafkaBatch], Exchange],
        publish: Callable[[PlannedBatch], None],
        stopping: threading.Event,
        *,
        reads_ahead: bool,
    ) -> None:
        self._make_batch, self._announce = make_batch, announce
        self._read, self._publish = read, publish
        self._stopping, self._reads_ahead = stopping, reads_ahead
        self.failure: BaseException | None = None
        self._has_ended = False
        self._change = threading.Condition()
        self._num_calls = 0
        self._published: PlannedBatch | None = None
        self._to_publish = SimpleQueue[PlannedBatch | None]()
        threading.Thread(target=self._publish_all, name="publisher", daemon=True).start()

    @property
    def is_idle(self) -> bool:
        """Whether no batch is being read or published."""
        return not self._num_calls and self._published is None

    def wait(self, seconds: float) -> bool:
        """Wait until no batch is in progress; returns whether that is so."""
        with self._change:
            return self._change.wait_for(lambda: self.is_idle, seconds)

    def end(self) -> None:
        """Publish no further batch; one that is being published is not interrupted."""
        self._has_ended = True
        self._to_publish.put(None)

    def on_batch(self, records: DataFrame, batch_id: int) -> None:
        """Read one micro-batch, and publish it or have it published; for ``foreachBatch``.

        A failure is kept for the thread that waits, because Spark would only print it.
        """
        with self._change:  # before ``_stopping`` is read: either ``wait`` waits, or nothing runs
            self._num_calls += 1
        try:
            if not (self._stopping.is_set() or self._is_over()):
                self._process(records, batch_id)
        except BaseException as error:
            self._wait_for_publication()  # a new start must not meet it, and its failure is first
            self._fail(error)
        finally:
            with self._change:
                self._num_calls -= 1
                self._change.notify_all()

    def _process(self, records: DataFrame, batch_id: int) -> None:
        batch = self._make_batch(records, batch_id)
        if batch is None or not self._may_read():
            return
        is_announced = self._published is None
        if is_announced:
            self._announce(batch, batch_id)
        began = time.monotonic()
        exchange = self._read(batch)
        is_read = isinstance(exchange, ReadBatch)
        read_s = time.monotonic() - began if is_read else None
        is_ahead = self._wait_for_publication()
        if self._is_over() or (is_ahead and self._stopping.is_set()):
            return
        if not is_announced:
            self._announce(batch, batch_id)
        planned = PlannedBatch(id=batch_id, batch=batch, exchange=exchange, read_s=read_s)
        if is_read and self._reads_ahead:
            self._published = planned
            self._to_publish.put(planned)
        else:
            self._publish(planned)

    def _may_read(self) -> bool:
        """Wait until a large batch is published; returns False if it failed."""
        published = self._published
        if published is not None and published.is_large:
            self._wait_for_publication()
        return not self._is_over()

    def _wait_for_publication(self) -> bool:
        """Wait until no batch is being published; returns whether one was."""
        with self._change:
            was_publishing = self._published is not None
            self._change.wait_for(lambda: self._published is None)
        return was_publishing

    def _publish_all(self) -> None:
        while (planned := self._to_publish.get()) is not None:
            try:
                self._publish(planned)
            except BaseException as error:
                self._fail(error)
            del planned  # its records, before the next batch comes
            with self._change:
                self._published = None
                self._change.notify_all()

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = translate(error)

    def _is_over(self) -> bool:
        return self._has_ended or self.failure is not None
