"""The stream: micro-batch after micro-batch, each of them one commit.

A run knows nothing but what the table tells it. Spark's own checkpoint folder is scratch, made
anew for every start; a failure that may pass leads back to ``_start_from_table``.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from lakemark.storage.scratch import scratch_folder
from sinks.audit import OffsetGap
from sinks.batch import BatchResult, KafkaBatch
from sinks.hudi.exchange import Exchange
from sinks.hudi.sink import HudiSink
from streamer.backoff import pause_after
from streamer.config.run import RunConfig
from streamer.events import (
    BatchPlanned,
    BatchWritten,
    Listener,
    OffsetsLost,
    PartitionsChanged,
    RecordsRejected,
    Retrying,
    RunStarted,
    RunStopped,
    RunStopping,
    SchemaEvolved,
    ServiceCompleted,
)
from streamer.services import TableServices
from streamer.sources.errors import TopicReplaced
from streamer.sources.kafka import KafkaSource
from streamer.sources.kafka_admin import ANSWER_WITHIN_S
from streamer.sources.kafka_offsets import LostRange, Start
from streamer.sources.offset_log import planned_end
from streamer.stopping import StopRequested
from streamer.stream_failure import is_transient, least_pause_s, translated

_POLL_S = 0.2
_SHORT_POLL_S = 0.02

#: How long a batch in progress may still take once the run was asked to stop, in seconds.
STOP_GRACE_S = 20.0

#: How long Spark has to cancel it after that.
_CANCEL_S = 2.0


@dataclass(frozen=True, slots=True)
class _Loss:
    """Lost ranges that a commit skips.

    Attributes:
        ranges: what is lost; empty for most commits.
        checkpoint: that the commit records.
        topic_id: that it records.
    """

    ranges: Sequence[LostRange]
    checkpoint: KafkaCheckpoint
    topic_id: str


class StreamLoop:
    """One pipeline, running.

    Attributes:
        left_work: whether a thread may still be busy with something that the run did not wait
            for: a batch, a compaction, the end of the stream.
        waiting_at: when the stream was last seen running with no batch in progress, in seconds of
            ``time.monotonic``.
        committed_at: when it last committed a batch; None before its first; on the same clock.
        made_at: when the run was made; on the same clock.

    Args:
        name: of the pipeline, for events.
        source: where records come from.
        sink: where they go, and where the offsets are kept.
        exchange: how they get there.
        services: what the table needs after a batch, or beside it.
        config: how long, how often.
        listener: is told of everything.
    """

    def __init__(
        self,
        name: str,
        source: KafkaSource,
        sink: HudiSink,
        exchange: Exchange,
        services: TableServices,
        config: RunConfig,
        listener: Listener,
    ) -> None:
        self._name, self._source, self._sink = name, source, sink
        self._exchange, self._services = exchange, services
        self._config, self._listener = config, listener
        self._stopping = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._is_streaming = False
        self.left_work = False
        self._stop_by = math.inf
        self.waiting_at = 0.0
        self.committed_at: float | None = None
        self.made_at = time.monotonic()
        self._is_ending = False
        self._failure: BaseException | None = None
        self._position: KafkaCheckpoint | None = None
        self._topic_id = ""
        self._loss: _Loss | None = None
        self._totals: Counter[str] = Counter()

    @property
    def position(self) -> KafkaCheckpoint | None:
        """What is committed; None unless the stream runs."""
        return self._position if self._is_streaming else None

    def stop(self) -> bool:
        """Ask the run to end after the batch in progress; safe from a signal handler.

        Returns whether the run ends by itself now: a stream runs, or the end has begun. Otherwise
        it may be interrupted where it is by ``StopRequested``.
        """
        if not self._stopping.is_set():
            self._stop_by = time.monotonic() + STOP_GRACE_S
        self._stopping.set()
        return self._is_streaming or self._is_ending

    def run(self) -> RunStopped:
        """Stream until the topic is read (``once``), ``stop`` is called, or a failure stays.

        Raises:
            HudiError: what ended the run; the table holds whole batches only.
        """
        started = time.monotonic()
        try:
            self._run_with_retries()
            self._let_services_finish()
        except StopRequested:
            self.left_work = True  # threads of what was interrupted
        except KeyboardInterrupt:  # asked again: nothing is waited for any more
            self.left_work, self._stop_by = True, -math.inf
            raise
        finally:
            self._is_ending = True
            left, self.left_work = self.left_work, True  # if this is interrupted
            self.left_work = self._services.end(self._at_most_s(_CANCEL_S)) or left
            self._source.finish_group(self._at_most_s(ANSWER_WITHIN_S))
        reason = "interrupted" if self._stopping.is_set() else "caught up"
        position = dict(self._position.offsets) if self._position else {}
        stopped = RunStopped(
            reason,
            position,
            self._totals["batches"],
            self._totals["rows"],
            time.monotonic() - started,
        )
        self._listener(stopped)
        return stopped

    def _run_with_retries(self) -> None:
        """Start from the table again after failures that may pass, with growing pauses."""
        limits = self._config.retry
        failures, batches_before = 0, 0
        while not self._stopping.is_set():
            try:
                return self._start_from_table()
            except Exception as error:
                failures = 1 if self._totals["batches"] > batches_before else failures + 1
                batches_before = self._totals["batches"]
                if not is_transient(error) or failures >= limits.max_attempts:
                    raise
                pause_s = pause_after(failures, limits.backoff_s, limits.max_backoff_s)
                pause_s = max(pause_s, least_pause_s(error))
                self._listener(
                    Retrying(
                        str(error), failures, limits.max_attempts, pause_s, type(error).__name__
                    )
                )
                self._pause(pause_s)

    def _pause(self, seconds: float) -> None:
        """Wait, or until asked to stop.

        Not for the event: waiting holds its lock for moments, in which the handler of a signal, on
        this same thread, would wait for it for ever.
        """
        ends_at = time.monotonic() + seconds
        while not self._stopping.is_set() and (left_s := ends_at - time.monotonic()) > 0:
            time.sleep(min(left_s, _POLL_S))

    def _let_services_finish(self) -> None:
        """A compaction beside the batches may end; once asked to stop, within the grace."""
        self._is_streaming = True  # a signal is to end this wait, not to break it off
        is_awaited = False
        while self._services.is_progressing and time.monotonic() < self._stop_by:
            if self._stopping.is_set() and not is_awaited:
                self._listener(RunStopping("compaction"))
                is_awaited = True
            self.waiting_at = time.monotonic()
            time.sleep(_SHORT_POLL_S)
        self._is_streaming = False

    def _start_from_table(self) -> None:
        """Recover what dead writers left, go on from the newest checkpoint, stream."""
        self._failure = None
        with self._services.turn:
            progress = self._recovered()
        checkpoint = None if progress is None else progress.checkpoint
        if progress and checkpoint:  # it may be that of a commit whose outcome was unknown
            self._report_loss(checkpoint, progress.topic_id)
        begun = self._source.start(checkpoint, progress.topic_id if progress else "")
        if begun.needs_commit:
            self._commit_start(begun)
        start, self._topic_id = begun.checkpoint, begun.topic_id
        self._position = start
        self._listener(
            RunStarted(
                self._name,
                start.topic,
                self._sink.table.location.url,
                dict(start.offsets),
                checkpoint is not None,
            )
        )
        with scratch_folder("stream") as scratch:
            self._stream(start, scratch)

    def _commit_start(self, begun: Start) -> None:
        """Record a start that a later one might not find, before anything is read."""
        self._loss = _Loss(begun.lost, begun.checkpoint, begun.topic_id)
        lost = [one.facts(begun.checkpoint.topic) for one in begun.lost]
        with self._services.turn:
            self._sink.commit_start(begun.checkpoint, begun.topic_id, lost)
        self._report_loss(begun.checkpoint, begun.topic_id)
        self._source.forget_first_start()

    def _check_read(
        self, end: KafkaCheckpoint, gaps: Sequence[OffsetGap]
    ) -> Sequence[Mapping[str, object]]:
        """``KafkaSource.check_read`` of a batch up to ``end``; facts on what is lost."""
        lost = self._source.check_read(self._topic_id, gaps)
        self._loss = _Loss(lost, end, self._topic_id)
        return [one.facts(end.topic) for one in lost]

    def _report_loss(self, checkpoint: KafkaCheckpoint, topic_id: str) -> None:
        """Report what the commit with this checkpoint skips, once.

        Not when it is found: a commit may fail, and the next attempt finds the same ranges, or
        wider ones.
        """
        loss, self._loss = self._loss, None
        if loss and loss.ranges and (loss.checkpoint, loss.topic_id) == (checkpoint, topic_id):
            topic = checkpoint.topic
            facts = tuple(one.facts(topic) for one in loss.ranges)
            self._listener(OffsetsLost(topic, tuple(map(str, loss.ranges)), facts))

    def _recovered(self) -> Progress | None:
        """How far the table has read, once it is in order."""
        began = time.monotonic()
        rolled_back = self._sink.recover()
        if rolled_back:
            seconds = time.monotonic() - began
            self._listener(ServiceCompleted("rollback", ", ".join(rolled_back), seconds))
        self._serve_tables()
        return self._sink.progress()

    def _stream(self, start: KafkaCheckpoint, scratch: Path) -> None:
        def on_batch(records: DataFrame, batch_id: int) -> None:
            self._on_batch(records, batch_id, scratch)

        writer = self._source.stream(start).writeStream.foreachBatch(on_batch)
        writer = writer.option("checkpointLocation", scratch.as_uri())
        if self._config.mode == "once":
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._config.trigger_interval_s} seconds")
        self._is_streaming = True
        query = writer.start()
        try:
            self._await(query)
        finally:
            in_time = self._end(query)
            self._is_streaming = False
        if in_time and self._failure is not None:
            raise self._failure

    def _await(self, query: StreamingQuery) -> None:
        """Until the stream ends by itself, fails, or is asked to stop."""
        while query.isActive and self._failure is None:
            self._services.check()
            if self._idle.is_set():
                self.waiting_at = time.monotonic()
            self._pause(_POLL_S)
            if self._stopping.is_set():
                self._listener(RunStopping("" if self._idle.is_set() else "batch"))
                return
        error = query.exception()
        if error is not None:
            raise translated(error) from error

    def _end(self, query: StreamingQuery) -> bool:
        """Stop the stream; False when the batch was not done in time.

        Spark then cancels its jobs, but would wait for as long as Python writes or is kept waiting:
        such a batch is left to itself. So is a stream without a batch once the run is to end: Spark
        may be asking a broker that is away, which nothing interrupts.
        """
        in_time = self._idle.wait(STOP_GRACE_S)
        stop = threading.Thread(target=_stop, args=(query,), daemon=True)
        stop.start()
        while in_time and stop.is_alive() and not self._stopping.is_set():
            stop.join(_POLL_S)
        stop.join(_CANCEL_S)
        self.left_work |= stop.is_alive() or not self._idle.is_set()
        return in_time

    def _at_most_s(self, seconds: float) -> float:
        """So long, or less when the run was asked to stop."""
        return max(0.0, min(seconds, self._stop_by + _CANCEL_S - time.monotonic()))

    def _on_batch(self, records: DataFrame, batch_id: int, scratch: Path) -> None:
        """One micro-batch. Failures are kept for the thread that waits: Spark would print them."""
        self._idle.clear()  # before the look at ``_stopping``: ``_end`` then waits, or nothing runs
        try:
            with self._services.turn:
                if not self._stopping.is_set() and self._failure is None:
                    self._write_new_records(records, batch_id, planned_end(scratch, batch_id))
        except BaseException as error:
            self._failure = translated(error)
        finally:
            self._idle.set()

    def _write_new_records(self, records: DataFrame, batch_id: int, end: KafkaCheckpoint) -> None:
        assert self._position is not None
        if not self._position <= end:
            reason = f"{self._position} was read, and Kafka now ends a batch at {end}"
            raise TopicReplaced(reason)
        # A stream's first batch runs even without any data.
        if end != self._position:
            check = partial(self._check_read, end)
            batch = KafkaBatch(records, self._position, end, self._topic_id, check)
            self._write(batch, batch_id)

    def _write(self, batch: KafkaBatch, batch_id: int) -> None:
        self._listener(BatchPlanned(batch_id, batch.end.distance_from(batch.start)))
        result = self._sink.write(batch, self._exchange)
        self._position, self.committed_at = batch.end, time.monotonic()
        self._report_loss(batch.end, batch.topic_id)
        self._source.forget_first_start()
        self._source.show_group(batch.end)
        self._totals.update(batches=1, rows=result.rows)
        self._listener(_written(batch_id, result, self._source.lag(batch.end)))
        if result.schema_changes:
            self._listener(SchemaEvolved(batch_id, result.schema_changes))
        if result.partition_changes:
            first = result.first_partition_change or "unknown"
            self._listener(PartitionsChanged(batch_id, result.partition_changes, first))
        if result.rejected:
            first = result.first_reject or "unknown"
            self._listener(
                RecordsRejected(batch_id, result.rejected, first, self._sink.dead_letters)
            )
        self._serve_tables()

    def _serve_tables(self) -> None:
        self._services.run()
        self._services.wait(self._stopping)


def _stop(query: StreamingQuery) -> None:
    with suppress(Py4JError, OSError):  # it has ended with Spark's JVM
        query.stop()


def _written(batch_id: int, result: BatchResult, lag: Mapping[int, int]) -> BatchWritten:
    return BatchWritten(
        batch_id,
        result.instant,
        result.records,
        result.rows,
        result.deletes,
        result.rejected,
        result.written_bytes,
        result.seconds,
        lag,
        result.files,
        result.ignored,
        result.skipped,
    )
