"""The stream loop: it reads micro-batches, and each batch becomes one commit.

Only the table records the progress of a run. Spark's own checkpoint folder is temporary, and each
start gets a new one. After a transient failure, the loop starts again in ``_start_from_table``.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from lakemark.storage.scratch import scratch_folder
from sinks.audit import OffsetGap
from sinks.batch import BatchResult, KafkaBatch
from sinks.hudi.exchange import StreamExchange
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
from streamer.stream_batches import PlannedBatch, StreamBatches
from streamer.stream_failure import is_transient, min_pause_s, translate

_POLL_S = 0.2
_SHORT_POLL_S = 0.02

#: Seconds for which a batch in progress may continue after the run was asked to stop.
STOP_GRACE_S = 20.0

#: Seconds that Spark then gets to cancel the batch.
_CANCEL_S = 2.0


@dataclass(frozen=True, slots=True)
class _Loss:
    """Lost ranges of offsets that a commit skips.

    Attributes:
        ranges: the lost ranges; empty for most commits.
        checkpoint: the checkpoint that the commit records.
        topic_id: the topic id that the commit records.
    """

    ranges: Sequence[LostRange]
    checkpoint: KafkaCheckpoint
    topic_id: str


class StreamLoop:
    """Runs the stream of one pipeline.

    Attributes:
        has_unfinished_work: whether a thread that the run did not wait for may still be at work: a
            thread of a batch, of a compaction, or of the end of the stream.
        waiting_at: when the stream was last seen without a batch in progress, in seconds of
            ``time.monotonic``.
        committed_at: when the run last committed a batch, on the same clock; None before the first
            commit.
        created_at: when this object was created, on the same clock.

    Args:
        name: the name of the pipeline, for events.
        source: reads the records.
        sink: commits the records together with their offsets.
        exchange: moves the records of a batch to the sink.
        services: the table services, inline and asynchronous.
        config: how long the loop runs, and how often it writes a batch.
        listener: receives all events.
    """

    def __init__(
        self,
        name: str,
        source: KafkaSource,
        sink: HudiSink,
        exchange: StreamExchange,
        services: TableServices,
        config: RunConfig,
        listener: Listener,
    ) -> None:
        self._name, self._source, self._sink = name, source, sink
        self._exchange, self._services = exchange, services
        self._config, self._listener = config, listener
        self._stopping = threading.Event()
        self._is_streaming = False
        self.has_unfinished_work = False
        self._stop_by = math.inf
        self.waiting_at = 0.0
        self.committed_at: float | None = None
        self.created_at = time.monotonic()
        self._is_ending = False
        self._position: KafkaCheckpoint | None = None
        self._topic_id = ""
        self._loss: _Loss | None = None
        self._totals: Counter[str] = Counter()

    @property
    def position(self) -> KafkaCheckpoint | None:
        """The committed offsets; None if the stream is not running."""
        return self._position if self._is_streaming else None

    def stop(self) -> bool:
        """Ask the run to stop after the batch in progress; may be called from a signal handler.

        Returns:
            True if the stream is running or ending, so that the run will see the request. If
            False, the caller may interrupt the run with ``StopRequested``.
        """
        if not self._stopping.is_set():
            self._stop_by = time.monotonic() + STOP_GRACE_S
        self._stopping.set()
        return self._is_streaming or self._is_ending

    def run(self) -> RunStopped:
        """Stream until the topic is read (mode ``once``), or ``stop`` is called.

        Raises:
            HudiError: the run failed permanently; the table contains only complete batches.
        """
        started = time.monotonic()
        try:
            self._run_with_retries()
            self._let_services_finish()
        except StopRequested:
            self.has_unfinished_work = True  # the threads of the interrupted call may still run
        except KeyboardInterrupt:  # a second signal: the run waits for nothing
            self.has_unfinished_work, self._stop_by = True, -math.inf
            raise
        finally:
            self._is_ending = True
            unfinished, self.has_unfinished_work = (
                self.has_unfinished_work,
                True,
            )  # if the next lines are interrupted, threads may still run
            self.has_unfinished_work = self._services.end(self._at_most_s(_CANCEL_S)) or unfinished
            self._source.flush_group_offsets(self._at_most_s(ANSWER_WITHIN_S))
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
        """Stream from the table's checkpoint; after transient failures, retry after a pause."""
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
                pause_s = max(pause_s, min_pause_s(error))
                self._listener(
                    Retrying(
                        str(error), failures, limits.max_attempts, pause_s, type(error).__name__
                    )
                )
                self._pause(pause_s)

    def _pause(self, seconds: float) -> None:
        """Sleep until the time has passed or the run is asked to stop.

        This polls instead of waiting for the event, because ``Event.wait`` briefly holds a lock. A
        signal handler on this thread would wait for this lock forever.
        """
        ends_at = time.monotonic() + seconds
        while not self._stopping.is_set() and (remaining_s := ends_at - time.monotonic()) > 0:
            time.sleep(min(remaining_s, _POLL_S))

    def _let_services_finish(self) -> None:
        """Wait for an asynchronous compaction; after a stop, only within the grace period."""
        self._is_streaming = True  # so that a signal ends this wait without an exception
        is_reported = False
        while self._services.is_progressing and time.monotonic() < self._stop_by:
            if self._stopping.is_set() and not is_reported:
                self._listener(RunStopping("compaction"))
                is_reported = True
            self.waiting_at = time.monotonic()
            time.sleep(_SHORT_POLL_S)
        self._is_streaming = False

    def _start_from_table(self) -> None:
        """Recover the table, find the newest checkpoint, and stream from it."""
        with self._services.mutex:
            progress = self._recover()
        checkpoint = None if progress is None else progress.checkpoint
        if progress and checkpoint:  # its commit may be one whose outcome was unknown
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
        """Commit the start offsets before any record is read.

        Otherwise a later start might choose other offsets.
        """
        self._loss = _Loss(begun.lost, begun.checkpoint, begun.topic_id)
        lost = [one.facts(begun.checkpoint.topic) for one in begun.lost]
        with self._services.mutex:
            self._sink.commit_start(begun.checkpoint, begun.topic_id, lost)
        self._report_loss(begun.checkpoint, begun.topic_id)
        self._source.forget_first_start()

    def _check_read(
        self, end: KafkaCheckpoint, gaps: Sequence[OffsetGap]
    ) -> Sequence[Mapping[str, object]]:
        """Run ``KafkaSource.check_read`` for a batch up to ``end``; return the lost ranges."""
        lost = self._source.check_read(self._topic_id, gaps)
        self._loss = _Loss(lost, end, self._topic_id)
        return [one.facts(end.topic) for one in lost]

    def _report_loss(self, checkpoint: KafkaCheckpoint, topic_id: str) -> None:
        """Report the ranges that the commit with this checkpoint skips, and report them only once.

        They are reported after the commit. If the commit fails, they are not reported, because the
        next attempt finds the same ranges, or wider ones.
        """
        loss, self._loss = self._loss, None
        if loss and loss.ranges and (loss.checkpoint, loss.topic_id) == (checkpoint, topic_id):
            topic = checkpoint.topic
            facts = tuple(one.facts(topic) for one in loss.ranges)
            self._listener(OffsetsLost(topic, tuple(map(str, loss.ranges)), facts))

    def _recover(self) -> Progress | None:
        """Roll back dead writers, run the due services, and return the table's progress."""
        began = time.monotonic()
        rolled_back = self._sink.recover()
        if rolled_back:
            seconds = time.monotonic() - began
            self._listener(ServiceCompleted("rollback", ", ".join(rolled_back), seconds))
        self._serve_tables()
        return self._sink.progress()

    def _stream(self, start: KafkaCheckpoint, scratch: Path) -> None:
        planned = _BatchPlanner(start, self._topic_id, scratch, self._check_read)
        batches = StreamBatches(
            planned.next,
            self._announce,
            self._exchange.read,
            self._publish,
            self._stopping,
            reads_ahead=self._config.read_ahead,
        )
        try:
            failure = self._run_query(self._query_writer(start, scratch, batches), batches)
        finally:  # also if the stream does not start
            batches.end()
            self._is_streaming = False
        if failure is not None:
            raise failure

    def _query_writer(
        self, start: KafkaCheckpoint, scratch: Path, batches: StreamBatches
    ) -> DataStreamWriter:
        writer = self._source.stream(start).writeStream.foreachBatch(batches.on_batch)
        writer = writer.option("checkpointLocation", scratch.as_uri())
        if self._config.mode == "once":
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{self._config.trigger_interval_s} seconds")

    def _run_query(self, writer: DataStreamWriter, batches: StreamBatches) -> BaseException | None:
        """Run the stream until it ends; return the failure of a batch, or None."""
        self._is_streaming = True
        query = writer.start()
        try:
            self._await(query, batches)
        finally:
            failure = self._end(query, batches)
        return failure

    def _await(self, query: StreamingQuery, batches: StreamBatches) -> None:
        """Wait until the stream ends by itself, fails, or is asked to stop.

        When a stream has read its topic, it ends before its last batch is published.
        """
        while batches.failure is None and (query.isActive or not batches.is_idle):
            self._services.check()
            if batches.is_idle:
                self.waiting_at = time.monotonic()
            self._pause(_POLL_S)
            if self._stopping.is_set():
                self._listener(RunStopping("batch" if batches.has_batch_in_progress else ""))
                return
        error = query.exception()
        if error is not None:
            raise translate(error) from error

    def _end(self, query: StreamingQuery, batches: StreamBatches) -> BaseException | None:
        """Stop the stream and return its failure, or None.

        If a batch does not finish in time, it is abandoned: Spark cancels its jobs, and this method
        does not wait for its Python code to end. When the run should stop, a stream without a batch
        is also abandoned. The reason is that Spark may be waiting for a broker that is down, and
        this wait cannot be interrupted. After a failure, nothing is published. So a batch that is
        being read gets no time to finish before its jobs are cancelled.
        """
        in_time = batches.failure is not None or batches.finish_batch(STOP_GRACE_S)
        failure = batches.failure  # read now, because cancelled jobs cause further failures
        batches.end()
        stop = threading.Thread(target=_stop, args=(query,), daemon=True)
        stop.start()
        while in_time and stop.is_alive() and not self._stopping.is_set():
            stop.join(_POLL_S)
        stop.join(_CANCEL_S)
        has_ended = batches.wait(self._at_most_s(STOP_GRACE_S) if failure else 0.0)
        self.has_unfinished_work |= stop.is_alive() or not has_ended
        return failure

    def _at_most_s(self, seconds: float) -> float:
        """Return the given seconds, but no more than are left once the run was asked to stop."""
        return max(0.0, min(seconds, self._stop_by + _CANCEL_S - time.monotonic()))

    def _announce(self, batch: KafkaBatch, batch_id: int) -> None:
        self._listener(BatchPlanned(batch_id, batch.end.distance_from(batch.start)))

    def _publish(self, planned: PlannedBatch) -> None:
        with self._services.mutex:
            self._write(planned)

    def _write(self, planned: PlannedBatch) -> None:
        batch, batch_id = planned.batch, planned.id
        result = self._sink.write(batch, planned.exchange)
        self._position, self.committed_at = batch.end, time.monotonic()
        self._report_loss(batch.end, batch.topic_id)
        self._source.forget_first_start()
        self._source.commit_group_offsets(batch.end)
        self._totals.update(batches=1, rows=result.rows)
        seconds = self.committed_at - planned.announced_at
        lag = self._source.lag_if_known(batch.end)
        self._listener(_batch_written(planned, result, seconds, lag))
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
    with suppress(Py4JError, OSError):  # the stream has already ended, with Spark's JVM
        query.stop()


class _BatchPlanner:
    """Builds the batches of a stream from the plans in Spark's offset log."""

    def __init__(
        self,
        start: KafkaCheckpoint,
        topic_id: str,
        scratch: Path,
        check_read: Callable[
            [KafkaCheckpoint, Sequence[OffsetGap]], Sequence[Mapping[str, object]]
        ],
    ) -> None:
        self._read_to, self._topic_id = start, topic_id
        self._scratch, self._check_read = scratch, check_read

    def next(self, records: DataFrame, batch_id: int) -> KafkaBatch | None:
        """Return the next batch; None if there are no new offsets, as may happen at the start.

        Raises:
            TopicReplaced: the batch ends before the end of the previous batch.
        """
        start, end = self._read_to, planned_end(self._scratch, batch_id)
        if not start <= end:
            reason = f"the stream has read up to {start}, but Kafka ends a batch at {end}"
            raise TopicReplaced(reason)
        if end == start:
            return None
        self._read_to = end
        return KafkaBatch(
            records=records,
            start=start,
            end=end,
            topic_id=self._topic_id,
            check_source=partial(self._check_read, end),
        )


def _batch_written(
    planned: PlannedBatch, result: BatchResult, seconds: float, lag: Mapping[int, int]
) -> BatchWritten:
    read_s = {} if planned.read_s is None else {"read": planned.read_s}
    return BatchWritten(
        planned.id,
        result.instant,
        result.records,
        rows_written=result.rows,
        rows_deleted=result.deletes,
        rejects=result.rejected,
        bytes_written=result.written_bytes,
        seconds=seconds,
        stage_s={**read_s, **result.seconds},
        lag=lag,
        files_written=result.files,
        ignored=result.ignored,
        offsets_skipped=result.skipped,
        rows_moved=result.moved,
        duplicates=result.duplicates,
        filtered=result.filtered,
    )
