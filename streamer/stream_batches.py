"""The micro-batches of one stream: while one is published, the next one is read.

Spark plans the next micro-batch when the call for the previous one returns. So each call reads its
batch, passes the batch to a thread, and returns. While the thread decodes, writes and publishes the
batch, Spark makes the call for the next batch.

- Batches are published one at a time, in the order of their offsets. At most one batch is read
  ahead, because each call waits until the previous batch is published.
- No batch is read while a large batch is published, because both would be in memory.
- No batch is read while the first one is published. The JVM still compiles most of its code then,
  so reading took processor time from the first batch: on two cores, it was published 0.3 to 0.8 s
  later, and the run did not end earlier.
- If a batch fails, the batch that was read ahead is dropped. Only the table records the progress,
  so the next start reads both batches again.
- If the run should stop, a batch that is being read ahead or was read ahead is dropped, too. It is
  not the batch in progress.
- If several pipelines share the process, a batch waits for its slot, and no batch is read ahead:
  batches of other pipelines use the time, and a batch that waits would be in memory.
- A batch that does not fit in this process is not read ahead. It is read while it is written, in
  its own call, after the previous batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from sinks.batch import Batch, BatchResult
from sinks.hudi.collect_budget import COLLECT_BUDGET_BYTES
from sinks.hudi.exchange import Exchange, ReadBatch
from streamer.batch_events import batch_written
from streamer.events import BatchWritten
from streamer.schedule import UNSHARED, GivesUp
from streamer.stream_failure import translate

#: The next batch is read only while a batch of at most this size is published. This is half of the
#: largest size of a batch (``sinks.hudi.collect``). So two batches together take at most one and a
#: half times the memory of the largest one.
_MAX_BYTES_TO_READ_AHEAD = COLLECT_BUDGET_BYTES // 2

#: A shorter wait for a slot is not reported.
_MIN_WAIT_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A planned micro-batch, whose records may already have been read.

    Attributes:
        id: the number that Spark gave to the batch.
        batch: the records and offsets.
        exchange: moves the records to the sink.
        announced_at: when the batch was announced, in seconds of ``time.monotonic``.
        read_s: how many seconds reading took; None if the batch is read while it is written.
        waited_s: how many seconds the batch waited for its slot; None if it did not wait.
    """

    id: int
    batch: Batch
    exchange: Exchange[Any]
    announced_at: float
    read_s: float | None
    waited_s: float | None = None

    @property
    def is_large(self) -> bool:
        """Whether this batch is too large for another batch in memory."""
        read = self.exchange
        return isinstance(read, ReadBatch) and read.size_bytes > _MAX_BYTES_TO_READ_AHEAD

    def written(self, result: BatchResult, seconds: float, lag: Mapping[int, int]) -> BatchWritten:
        """Return the event of this batch after its commit; see ``BatchWritten``."""
        stages = {"wait": self.waited_s, "read": self.read_s}
        known_s = {name: taken_s for name, taken_s in stages.items() if taken_s is not None}
        return batch_written(self.id, result, seconds, {**known_s, **result.seconds}, lag)


class StreamBatches:
    """Reads the micro-batches of one stream, and publishes them in order.

    Attributes:
        failure: why no further batch is published; None if nothing has failed.
        awaits_slot: whether a batch waits for its slot, which batches of other pipelines have.

    Args:
        make_batch: builds the batch from what ``on_batch`` receives; returns None if there is
            nothing to read (``SourceStream.plan``).
        announce: called with a batch and its id when this batch will be published next: before it
            is read or, if it is read ahead, when the previous batch has been published.
        read: reads a batch, as ``StreamExchange.read`` does.
        publish: publishes a batch; never called by two threads at once.
        stopping: set when the run should stop.
        reads_ahead: whether a batch is read while the previous one is published.
        slot: waits for the slot of a batch and holds it, as ``Schedule.batch`` does.
    """

    def __init__(
        self,
        make_batch: Callable[[Any, int], Batch | None],
        announce: Callable[[Batch, int], None],
        read: Callable[[Any], Exchange[Any]],
        publish: Callable[[PlannedBatch], None],
        stopping: threading.Event,
        *,
        reads_ahead: bool,
        slot: Callable[[GivesUp], AbstractContextManager[bool]] = UNSHARED.batch,
    ) -> None:
        self._make_batch, self._announce = make_batch, announce
        self._read, self._publish, self._slot = read, publish, slot
        self._stopping, self._reads_ahead = stopping, reads_ahead
        self.failure: BaseException | None = None
        self.awaits_slot = False
        self._is_closed = self._has_ended = False
        self._change = threading.Condition()
        self._num_calls = 0
        self._is_reading_ahead = False
        self._published: PlannedBatch | None = None
        self._has_published_first = False
        self._to_publish = SimpleQueue[PlannedBatch | None]()
        threading.Thread(target=self._publish_all, name="publisher", daemon=True).start()

    @property
    def is_idle(self) -> bool:
        """Whether no batch is being read or published."""
        return not self._num_calls and self._published is None

    @property
    def has_batch_in_progress(self) -> bool:
        """Whether a batch is being read or published, and is not dropped if the run should stop."""
        with self._change:
            return self._is_in_progress()

    def finish_batch(self, seconds: float) -> bool:
        """Wait until no batch is in progress; return False if this takes more than ``seconds``.

        This waits for no batch that is read ahead if the run should stop, because that batch is
        dropped.
        """
        with self._change:
            return self._change.wait_for(lambda: not self._is_in_progress(), seconds)

    def _is_in_progress(self) -> bool:
        will_drop = self._is_reading_ahead and self._stopping.is_set() and self._published is None
        return not (self.is_idle or will_drop)

    def wait(self, seconds: float) -> bool:
        """Wait until ``is_idle``; return False if this takes more than ``seconds``."""
        with self._change:
            return self._change.wait_for(lambda: self.is_idle, seconds)

    def close(self) -> None:
        """Begin no further batches. The batch in progress is published."""
        self._is_closed = True

    def end(self) -> None:
        """Publish no further batches. A publication that is in progress is not interrupted."""
        self._has_ended = True
        self._to_publish.put(None)

    def on_batch(self, records: Any, batch_id: int) -> None:
        """Read one micro-batch, and publish it or pass it to the thread; for ``foreachBatch``.

        A failure is kept for the thread that waits, because Spark would only print the failure.
        """
        with self._change:  # counted before ``_stopping`` is read, so that ``wait`` sees this call
            self._num_calls += 1
        try:
            self._process_in_slot(records, batch_id)
        except BaseException as error:
            # The publication ends before a restart, and its failure is the one that is kept.
            self._wait_for_publication()
            self._fail(error)
        finally:
            self.awaits_slot = False
            with self._change:
                self._num_calls -= 1
                self._is_reading_ahead = False
                self._change.notify_all()

    def _process_in_slot(self, records: Any, batch_id: int) -> None:
        began, self.awaits_slot = time.monotonic(), True
        with self._slot(self._may_not_begin) as has_slot:
            self.awaits_slot = False
            waited_s = time.monotonic() - began
            if has_slot and not self._may_not_begin():
                self._process(records, batch_id, waited_s if waited_s > _MIN_WAIT_S else None)

    def _may_not_begin(self) -> bool:
        return self._is_closed or self._stopping.is_set() or self._is_over()

    def _process(self, records: Any, batch_id: int, waited_s: float | None) -> None:
        batch = self._make_batch(records, batch_id)
        if batch is None or not self._may_read():
            return
        is_read_ahead = self._begin_read()
        if not is_read_ahead:
            self._announce(batch, batch_id)
        began = announced_at = time.monotonic()
        exchange = self._read(batch)
        is_read = isinstance(exchange, ReadBatch)
        read_s = time.monotonic() - began if is_read else None
        self._wait_for_publication()
        if not self._may_publish(is_read_ahead=is_read_ahead):
            return
        if is_read_ahead:
            self._announce(batch, batch_id)
            announced_at = time.monotonic()
        planned = PlannedBatch(
            id=batch_id,
            batch=batch,
            exchange=exchange,
            announced_at=announced_at,
            read_s=read_s,
            waited_s=waited_s,
        )
        if is_read and self._reads_ahead and self._has_published_first:
            self._published = planned
            self._to_publish.put(planned)
        else:
            self._publish(planned)
            self._has_published_first = True

    def _may_read(self) -> bool:
        """Wait until a large batch is published; return False if no batch may be read any more."""
        published = self._published
        if published is not None and published.is_large:
            self._wait_for_publication()
            if self._stopping.is_set():
                return False
        return not self._is_over()

    def _begin_read(self) -> bool:
        """Return whether the next batch is read ahead: while the previous one is published."""
        with self._change:
            self._is_reading_ahead = self._published is not None
            return self._is_reading_ahead

    def _may_publish(self, *, is_read_ahead: bool) -> bool:
        """Return whether a batch that was read may be published; then it is in progress.

        This is decided under the lock, so that ``finish_batch`` waits for the batch if it is
        published.
        """
        with self._change:
            self._is_reading_ahead = False
            return not (self._is_over() or (is_read_ahead and self._stopping.is_set()))

    def _wait_for_publication(self) -> None:
        """Wait until no batch is being published."""
        with self._change:
            self._change.wait_for(lambda: self._published is None)

    def _publish_all(self) -> None:
        while (planned := self._to_publish.get()) is not None:
            try:
                self._publish(planned)
            except BaseException as error:
                self._fail(error)
            finally:  # otherwise a call or the end of the run would wait forever
                del planned  # frees the records before the next batch comes
                with self._change:
                    self._published = None
                    self._change.notify_all()

    def _fail(self, error: BaseException) -> None:
        """Keep the first failure, translated; if it cannot be translated, as it was raised.

        The failure is stored only once, because the thread that waits may read it at any time.
        """
        if self.failure is None:
            try:
                self.failure = translate(error)
            except BaseException:  # this calls Spark's JVM, and an error without a cause is no loss
                self.failure = error

    def _is_over(self) -> bool:
        return self._has_ended or self.failure is not None
