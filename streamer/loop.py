"""The stream loop: it reads micro-batches, and each batch becomes one commit.

Only the table records the progress of a run. Spark's own checkpoint folder is temporary, and each
start gets a new one. After a transient failure, the loop starts again in ``_start_from_table``. If
several pipelines share the process, the stream also ends while there is nothing to read
(``streamer.schedule``), and starts again in the same way.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from checkpoints.position import Position
from checkpoints.progress import Progress
from lakemark.storage.scratch import scratch_folder
from lakemark.transaction.conflicts import ClusteringExecuted, ReplacementPending
from sinks.audit import OffsetGap
from sinks.batch import Batch
from sinks.hudi.exchange import StreamExchange
from sinks.stream_sink import StreamSink
from streamer.backoff import pause_after
from streamer.batch_events import report_batch
from streamer.config.run import RunConfig
from streamer.events import (
    CAUGHT_UP,
    BatchPlanned,
    ChecksViolated,
    ClusteringAwaited,
    Listener,
    OffsetsLost,
    Retrying,
    RulesViolated,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopped,
    RunStopping,
    ServiceCompleted,
)
from streamer.schedule import UNSHARED, GivesUp, Schedule
from streamer.services import StreamServices
from streamer.sources.errors import SourceBeingWritten
from streamer.sources.kafka_admin import ANSWER_WITHIN_S
from streamer.sources.kafka_offsets import LostRange
from streamer.sources.source import RunningStream, Source, SourceStart, SourceStream, StreamSettings
from streamer.stopping import StopRequested
from streamer.stream_batches import PlannedBatch, StreamBatches
from streamer.stream_failure import is_transient, min_pause_s, translate
from streamer.stream_turn import Pause, StreamTurn
from transforms.batch_checks import BatchCheckFailed
from transforms.violations import ExpectationFailed

_POLL_S = 0.2
_SHORT_POLL_S = 0.02

#: Seconds for which a batch in progress may continue after the run was asked to stop.
STOP_GRACE_S = 20.0

#: Seconds that Spark then gets to cancel the batch.
_CANCEL_S = 2.0

#: Seconds for which a stream without a batch may take to end. A broker that is down delays the end
#: by minutes, but such a stream publishes nothing, so the run need not wait for it.
_STREAM_ENDS_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class _Loss:
    """Lost ranges of offsets that a commit skips.

    Attributes:
        ranges: the lost ranges; empty for most commits.
        checkpoint: the checkpoint that the commit records.
        topic_id: the topic id that the commit records.
    """

    ranges: Sequence[LostRange]
    checkpoint: Position
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
        is_idle: whether the run waits for records without a stream, so that nothing is unread.

    Args:
        name: the name of the pipeline, for events.
        source: reads the records.
        sink: commits the records together with their offsets.
        exchange: moves the records of a batch to the sink.
        services: the table services, inline and asynchronous.
        config: how long the loop runs, and how often it writes a batch.
        listener: receives all events.
        schedule: when the stream runs, if other pipelines share the process.
        paused: set while the run should pause. The stream ends after the batch in progress, and a
            batch that was read ahead, and later starts again from the table's checkpoint.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        sink: StreamSink,
        exchange: StreamExchange[Any],
        services: StreamServices,
        config: RunConfig,
        listener: Listener,
        schedule: Schedule = UNSHARED,
        paused: threading.Event | None = None,
    ) -> None:
        self._name, self._source, self._sink = name, source, sink
        self._exchange, self._services = exchange, services
        self._config, self._listener, self._schedule = config, listener, schedule
        self._stopping, self._paused = threading.Event(), paused or threading.Event()
        self._is_streaming = False
        self.has_unfinished_work = False
        self._stop_by = math.inf
        self.waiting_at = 0.0
        self.committed_at: float | None = None
        self.created_at = time.monotonic()
        self._is_ending = self._is_announced = self.is_idle = self._is_resting = False
        self._pausing: Pause | None = None
        self._planned_at = -math.inf
        self._position: Position | None = None
        self._topic_id = ""
        self._loss: _Loss | None = None
        self._refusal: ReplacementPending | None = None
        self._lag: Callable[[], Mapping[int, int]] = dict
        self._totals: Counter[str] = Counter()

    @property
    def is_stopping(self) -> bool:
        """Whether the run was asked to stop, also if this was after its end."""
        return self._stopping.is_set()

    @property
    def position(self) -> Position | None:
        """The committed position; None if the stream neither runs, waits for records nor pauses."""
        is_known = self._is_streaming or self.is_idle or self._is_resting
        return self._position if is_known else None

    def stop(self) -> bool:
        """Ask the run to stop after the batch in progress; may be called from a signal handler.

        Returns:
            True if the stream is running or ending, so that the run will see the request. If
            False, the caller may interrupt the run with ``StopRequested``.
        """
        if not self._stopping.is_set():
            self._stop_by = time.monotonic() + STOP_GRACE_S
        self._stopping.set()
        return self._is_streaming or self._is_ending or self._is_resting

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
            self._source.flush_positions(self._at_most_s(ANSWER_WITHIN_S))
        reason = "interrupted" if self._stopping.is_set() else CAUGHT_UP
        position = dict(self._position.offsets_by_partition) if self._position else {}
        stopped = RunStopped(
            reason,
            position,
            self._totals["batches"],
            self._totals["rows"],
            time.monotonic() - started,
            self._position.summary if self._position else "",
        )
        self._listener(stopped)
        return stopped

    def _run_with_retries(self) -> None:
        """Stream from the table's checkpoint; after transient failures, retry after a pause."""
        limits = self._config.retry
        failures, refusals, batches_before = 0, 0, 0
        while not self._stopping.is_set():
            try:
                return self._stream_in_turns()
            except Exception as error:
                self._refusal = error if isinstance(error, ReplacementPending) else self._refusal
                if self._totals["batches"] > batches_before:
                    failures, refusals, batches_before = 0, 0, self._totals["batches"]
                if self._waits_for_clustering(error):  # is no failure
                    refusals += 1
                    pause_s = pause_after(refusals, limits.backoff_s, limits.max_backoff_s)
                    self._listener(ClusteringAwaited(str(error), refusals, pause_s))
                else:
                    failures += 1
                    pause_s = self._report_failure(error, failures)
                self._pause(pause_s)

    def _report_failure(self, error: Exception, failures: int) -> float:
        """Report a failure, and return the pause in seconds; raise the error if it ends the run."""
        limits = self._config.retry
        most = 0 if self._waits_for_source(error) else limits.max_attempts
        is_lasting = not is_transient(error) and not self._source.has_new_secrets
        if is_lasting or 0 < most <= failures:
            raise error
        pause_s = pause_after(failures, limits.backoff_s, limits.max_backoff_s)
        pause_s = max(pause_s, min_pause_s(error))
        self._listener(Retrying(str(error), failures, most, pause_s, type(error).__name__))
        return pause_s

    def _waits_for_clustering(self, error: Exception) -> bool:
        """Return whether the run waits for a clustering of another writer, however long it takes.

        If no live writer executes the clustering, a run of mode ``once`` does not wait, because it
        should end. No run waits for a clustering that no writer can execute.
        """
        return isinstance(error, ClusteringExecuted) or (
            isinstance(error, ReplacementPending)
            and self._config.mode == "continuous"
            and self._sink.can_be_clustered(error)
        )

    def _waits_for_source(self, error: Exception) -> bool:
        """Return whether the run waits until another program has written its part of the source.

        A run of mode ``once`` does not wait long, because it should end.
        """
        return self._config.mode == "continuous" and isinstance(error, SourceBeingWritten)

    def _check_refusal(self) -> None:
        """Raise the last refusal again if its clustering is still pending.

        So the batch is not written in vain again, as it would be refused only when it is committed.
        """
        if self._refusal is not None and self._sink.still_refuses(self._refusal):
            raise self._refusal.with_traceback(None)
        self._refusal = None

    def _pause(self, seconds: float) -> None:
        """Sleep until the time has passed or the run is asked to stop.

        This polls instead of waiting for the event, because ``Event.wait`` briefly holds a lock. A
        signal handler on this thread would wait for this lock forever.
        """
        ends_at = time.monotonic() + seconds
        while not self._stopping.is_set() and (remaining_s := ends_at - time.monotonic()) > 0:
            time.sleep(min(remaining_s, _POLL_S))

    def _let_services_finish(self) -> None:
        """Wait for asynchronous services; after a stop, only within the grace period."""
        self._is_streaming = True  # so that a signal ends this wait without an exception
        is_reported = False
        while (work := self._services.in_progress) and time.monotonic() < self._stop_by:
            if self._stopping.is_set() and not is_reported:
                self._listener(RunStopping(work))
                is_reported = True
            self.waiting_at = time.monotonic()
            time.sleep(_SHORT_POLL_S)
        self._is_streaming = False

    def _stream_in_turns(self) -> None:
        """Stream until the run ends; if other pipelines share the process, with pauses."""
        self._is_announced = False
        while self._await_resume():
            if self._schedule.is_shared:
                self._source.check_reachable()  # waits before it has a slot that others need
            with self._schedule.stream(self._waits_no_longer) as has_slot:
                if has_slot:
                    self._start_from_table()
            if self._pausing is None and not self._await_restart():
                return
            if self._pausing is Pause.IDLE:
                self._await_records()
            self._await_trigger()

    def _await_restart(self) -> bool:
        """Wait until the stream should start again for a part of the sink; return False if not."""
        pause_s = self._sink.restart_due_in_s
        if pause_s is not None:
            self._pause(pause_s)
        return pause_s is not None and not self._stopping.is_set()

    def _await_resume(self) -> bool:
        """Wait while the run should pause, without a slot; return False if it should stop."""
        if self._paused.is_set() and not self._stopping.is_set():
            self._is_resting = True
            try:
                self._rest()
            finally:
                self._is_resting = False
        return not self._stopping.is_set()

    def _rest(self) -> None:
        """Wait until the run should resume or stop.

        It counts as paused only after the asynchronous services, because other programs may then
        change the table.
        """
        while self._services.in_progress and self._may_rest():
            self._pause(_POLL_S)
        if not self._may_rest():
            return
        began = time.monotonic()
        self._listener(RunPaused())
        while self._may_rest():
            self._pause(_POLL_S)
        if not self._stopping.is_set():
            self._listener(RunResumed(time.monotonic() - began))

    def _may_rest(self) -> bool:
        return not self._waits_no_longer() and self._paused.is_set()

    def _await_records(self) -> None:
        assert self._position is not None
        self.is_idle = True

        def gives_up() -> bool:
            return self._waits_no_longer() or self._is_called()

        try:
            self._schedule.await_records(self._position, self._topic_id, gives_up)
        finally:
            self.is_idle = False

    def _await_trigger(self) -> None:
        """Wait until the next batch may begin, because another start of a stream begins one.

        A run that should pause does not wait here: it would count as paused only after the wait.
        A service that was requested does not wait, either.
        """
        next_at = self._planned_at + self._config.trigger_interval_s
        while time.monotonic() < next_at and not (self._waits_no_longer() or self._is_called()):
            self._pause(min(_POLL_S, next_at - time.monotonic()))

    def _is_called(self) -> bool:
        """Return whether the run was asked to pause, or for a service."""
        return self._paused.is_set() or self._services.has_requests

    def _waits_no_longer(self) -> bool:
        """Note that the run waits; return whether it should stop."""
        self.waiting_at = time.monotonic()
        self._services.check()
        return self._stopping.is_set()

    def _start_from_table(self) -> None:
        """Recover the table, find the newest checkpoint, and stream from it."""
        self._pausing = None
        with self._schedule.batch(self._waits_no_longer) as has_slot:
            if not has_slot:
                return
            with self._services.mutex:
                progress = self._recover()
                self._check_refusal()
        checkpoint = None if progress is None else progress.checkpoint
        if progress and checkpoint:  # its commit may be one whose outcome was unknown
            self._report_loss(checkpoint, progress.topic_id)
        begun = self._source.start(checkpoint, progress.topic_id if progress else "")
        if begun.needs_commit:
            self._commit_start(begun)
        start, self._topic_id = begun.checkpoint, begun.topic_id
        if not self._is_announced or start != self._position:
            self._announce_start(start, is_resumed=checkpoint is not None)
        self._position = start
        if self._needs_no_stream():
            self._pausing = None if self._config.mode == "once" else Pause.IDLE
            return
        with scratch_folder("stream") as scratch:
            self._stream(begun, scratch)

    def _announce_start(self, start: Position, *, is_resumed: bool) -> None:
        """Emit ``RunStarted``, unless the stream only continues after a pause."""
        url = self._sink.url
        self._listener(
            RunStarted(
                self._name,
                start.origin,
                url,
                dict(start.offsets_by_partition),
                is_resumed,
                start.summary,
            )
        )
        self._is_announced = True

    def _needs_no_stream(self) -> bool:
        is_once = self._config.mode == "once"
        may_do_without = self._schedule.is_shared if is_once else self._schedule.can_await_records
        return may_do_without and self._is_caught_up()

    def _is_caught_up(self) -> bool:
        assert self._position is not None
        return not any(self._source.lag(self._position).values())

    def _commit_start(self, begun: SourceStart) -> None:
        """Commit the start offsets before any record is read.

        Otherwise a later start might choose other offsets.
        """
        self._loss = _Loss(begun.lost, begun.checkpoint, begun.topic_id)
        lost = [one.facts(begun.checkpoint.origin) for one in begun.lost]
        with self._services.mutex:
            self._sink.commit_start(begun.checkpoint, begun.topic_id, lost)
        self._report_loss(begun.checkpoint, begun.topic_id)
        self._source.forget_first_start()

    def _check_read(
        self, end: Position, gaps: Sequence[OffsetGap]
    ) -> Sequence[Mapping[str, object]]:
        """Run ``Source.check_read`` for a batch up to ``end``; return the lost ranges."""
        lost = self._source.check_read(self._topic_id, gaps)
        self._lag = self._source.ask_lag(end)  # the broker answers while the batch is committed
        self._loss = _Loss(lost, end, self._topic_id)
        return [one.facts(end.origin) for one in lost]

    def _report_loss(self, checkpoint: Position, topic_id: str) -> None:
        """Report the ranges that the commit with this checkpoint skips, and report them only once.

        They are reported after the commit. If the commit fails, they are not reported, because the
        next attempt finds the same ranges, or wider ones.
        """
        loss, self._loss = self._loss, None
        if loss and loss.ranges and (loss.checkpoint, loss.topic_id) == (checkpoint, topic_id):
            topic = checkpoint.origin
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

    def _stream(self, begun: SourceStart, scratch: Path) -> None:
        settings = StreamSettings(
            mode=self._config.mode,
            trigger_interval_s=self._config.trigger_interval_s,
            scratch=scratch,
        )
        stream = self._source.open_stream(begun, settings, self._check_read)
        batches = StreamBatches(
            stream.plan,
            self._announce,
            self._exchange.read,
            self._publish,
            self._stopping,
            reads_ahead=self._config.read_ahead and not self._schedule.is_shared,
            slot=self._batch_slot,
        )
        try:
            failure = self._run_query(stream, batches)
        finally:  # also if the stream does not start
            batches.end()
            self._is_streaming = False
        if failure is not None:
            raise failure

    @contextmanager
    def _batch_slot(self, gives_up: GivesUp) -> Iterator[bool]:
        """Hold the slot of a batch; then wait for the services without it."""
        with self._schedule.batch(gives_up) as has_slot:
            yield has_slot
        if self._schedule.is_shared:
            with self._services.mutex:
                self._services.wait(self._stopping)

    def _run_query(self, stream: SourceStream, batches: StreamBatches) -> BaseException | None:
        """Run the stream until it ends; return the failure of a batch, or None."""
        self._is_streaming = True
        query = stream.start(batches.on_batch)
        try:
            self._await(query, batches)
        finally:
            failure = self._end(query, batches)
        return failure

    def _await(self, query: RunningStream, batches: StreamBatches) -> None:
        """Wait until the stream ends by itself, fails, or is asked to stop.

        When a stream has read its topic, it ends before its last batch is published. A stream also
        ends if it should pause, because other pipelines share the process.
        """
        turn, batches_before = (
            StreamTurn(self._schedule, self._is_caught_up),
            self._totals["batches"],
        )
        look_again_s = _SHORT_POLL_S  # a run of few records ends soon
        while batches.failure is None and (query.isActive or not batches.is_idle):
            self._services.check()
            is_idle = batches.is_idle
            if is_idle or batches.awaits_slot:
                self.waiting_at = time.monotonic()
            if self._config.mode == "continuous":
                has_progressed = self._totals["batches"] > batches_before
                self._pausing = turn.find_pause(is_idle=is_idle, has_progressed=has_progressed)
            if self._sink.restart_due_in_s == 0:
                self._pausing = Pause.RESTART
            if self._paused.is_set():
                self._pausing = Pause.ASKED
            elif is_idle and self._services.has_requests:  # the next start runs them
                self._pausing = Pause.SERVICE
            if self._pausing is not None:
                return self._close(batches)
            self._pause(look_again_s)
            look_again_s = min(2 * look_again_s, _POLL_S)
            if self._stopping.is_set():
                self._listener(RunStopping("batch" if batches.has_batch_in_progress else ""))
                return
        error = query.exception()
        if error is not None:
            raise translate(error) from error

    def _close(self, batches: StreamBatches) -> None:
        """Let the batch in progress end before a pause; unlike a stop, this has no time limit."""
        batches.close()
        while not (batches.wait(_POLL_S) or self._stopping.is_set()):
            pass

    def _end(self, query: RunningStream, batches: StreamBatches) -> BaseException | None:
        """Stop the stream and return its failure, or None.

        If a batch does not finish in time, it is abandoned: Spark cancels its jobs, and this method
        does not wait for its Python code to end. When the run should stop, or after
        ``_STREAM_ENDS_WITHIN_S``, a stream without a batch is also abandoned. The reason is that
        Spark may be waiting for a broker that is down, and this wait cannot be interrupted. After a
        failure, nothing is published. So a batch that is being read gets no time to finish before
        its jobs are cancelled.
        """
        in_time = batches.failure is not None or batches.finish_batch(STOP_GRACE_S)
        failure = batches.failure  # read now, because cancelled jobs cause further failures
        batches.end()
        stop = threading.Thread(target=_stop, args=(query,), daemon=True)
        stop.start()
        end_at = time.monotonic() + _STREAM_ENDS_WITHIN_S
        while in_time and stop.is_alive() and not self._stopping.is_set():
            if (now := time.monotonic()) > end_at:
                break
            self.waiting_at = now
            stop.join(_POLL_S)
        stop.join(_CANCEL_S)
        has_ended = batches.wait(self._at_most_s(STOP_GRACE_S) if failure else 0.0)
        self.has_unfinished_work |= stop.is_alive() or not has_ended
        return failure

    def _at_most_s(self, seconds: float) -> float:
        """Return the given seconds, but no more than are left once the run was asked to stop."""
        return max(0.0, min(seconds, self._stop_by + _CANCEL_S - time.monotonic()))

    def _announce(self, batch: Batch, batch_id: int) -> None:
        self._planned_at = time.monotonic()
        offsets = batch.offsets_by_partition
        self._listener(BatchPlanned(batch_id, offsets, 0 if offsets else batch.planned_records))

    def _publish(self, planned: PlannedBatch) -> None:
        with self._services.mutex:
            self._write(planned)

    def _write(self, planned: PlannedBatch) -> None:
        batch, batch_id = planned.batch, planned.id
        try:
            result = self._sink.write(batch, planned.exchange)
        except ExpectationFailed as failed:
            self._listener(RulesViolated(batch_id, failed.violations))
            raise
        except BatchCheckFailed as failed:
            self._listener(ChecksViolated(batch_id, failed.violations))
            raise
        self._position, self.committed_at = batch.end, time.monotonic()
        self._report_loss(batch.end, batch.topic_id)
        self._source.forget_first_start()
        self._source.report_position(batch.end)
        self._totals.update(batches=1, rows=result.rows + result.rows_of_tables)
        seconds = self.committed_at - planned.announced_at
        lag = self._lag()
        written = planned.written(result, seconds, lag)
        report_batch(self._listener, written, result, self._sink.dead_letters)
        self._serve_tables()

    def _serve_tables(self) -> None:
        """Run the due services, and wait for them if no other pipeline needs the slot."""
        refusal = self._refusal
        self._services.run("" if refusal is None else refusal.planned.requested_at)
        if not self._schedule.is_shared:
            self._services.wait(self._stopping)


def _stop(query: RunningStream) -> None:
    with suppress(Py4JError, OSError):  # the stream has already ended, with Spark's JVM
        query.stop()
