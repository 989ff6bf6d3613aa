"""Retries and stops of a run, with fakes in place of its source and its stream."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, cast
from uuid import uuid4

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from lakemark.errors import HudiError, OutcomeUnknown, Permanent, StorageUnavailable
from lakemark.execution.runner import LocalRunner, Result, Runner, Task
from lakemark.operations.open_table import OpenTable
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation
from lakemark.timeline.clock import ClockBehind
from lakemark.transaction.conflicts import ClusteringPlanned
from lakemark.transaction.rollback import roll_back_named
from sinks.hudi.exchange import DriverExchange
from sinks.hudi.sink import HudiSink
from sinks.reject_limit import NO_REJECTS
from streamer import loop as loop_module
from streamer.async_compaction import AsyncCompactionPolicy, AsyncCompactor
from streamer.backoff import pause_after
from streamer.config.run import RetryConfig, RunConfig
from streamer.events import (
    BatchWritten,
    ClusteringAwaited,
    CompactionCompleted,
    Event,
    OffsetsLost,
    RecordsRejected,
    Retrying,
    RunPaused,
    RunResumed,
    RunStopped,
    SchemaEvolved,
    ServiceCompleted,
)
from streamer.loop import StreamLoop
from streamer.schedule import UNSHARED, Schedule, SharedSchedule
from streamer.services import ServicePolicies, TableServices
from streamer.slots import Slots
from streamer.sources.errors import BrokerUnreachable
from streamer.sources.kafka import KafkaSource
from streamer.sources.kafka_offsets import LostRange, OffsetRange, Start
from streamer.stopping import stop_on_signals
from streamer.stream_batches import PlannedBatch, StreamBatches
from tests.json_stream import JsonStream, kafka_batch
from tests.table_services import new_storage
from tests.tables import Row, commit, lookup_writer, make, write_files, writer
from tests.waiting import until
from tests.writers import plan_clustering
from transforms.decode.schema_policy import SchemaPolicy

#: Longer than any run here takes, also on a machine that stops for a while.
LONG_S = 120.0

BROKER = "nowhere:9092"


class AwayBroker:
    """A source whose broker does not answer."""

    has_new_secrets = False

    def check_reachable(self) -> None:
        self.start()

    def start(self, *_: object) -> None:
        raise BrokerUnreachable(BROKER, "no answer")

    def flush_positions(self, within_s: float) -> None:
        pass


class LosingSource:
    """A source whose first start has to skip offsets 3 to 6, and whose stream fails."""

    topic_id = "its id"
    has_new_secrets = False

    def start(self, checkpoint: KafkaCheckpoint | None, topic_id: str) -> Start:
        if checkpoint is not None:
            return Start(checkpoint, topic_id=self.topic_id)
        lost = LostRange(0, 3, OffsetRange(7, 9), 7)
        return Start(KafkaCheckpoint("orders", {0: 7}), (lost,), self.topic_id, needs_commit=True)

    def forget_first_start(self) -> None:
        pass

    def flush_positions(self, within_s: float) -> None:
        pass

    def open_stream(self, *_: object) -> object:
        message = "the stream fails"
        raise Permanent(message)


class UnstartableSource(LosingSource):
    """A source whose stream Spark does not start."""

    def open_stream(self, *_: object) -> object:
        return UnstartableStream()


class UnstartableStream:
    """The part of a stream that a run uses to start it."""

    def plan(self, *_: object) -> None:
        """Return no batch."""

    def start(self, on_batch: object) -> object:
        message = "Spark does not start the stream"
        raise Permanent(message)


class SilentSource(KafkaSource):
    """A source whose broker does not answer after a batch was read."""

    def __init__(self) -> None:
        pass

    def forget_first_start(self) -> None:
        pass

    def report_position(self, checkpoint: KafkaCheckpoint) -> None:
        pass

    def lag(self, checkpoint: KafkaCheckpoint) -> dict[int, int]:
        raise BrokerUnreachable(BROKER, "no answer")


class NeverWaitedFor(threading.Event):
    """An event for which the main thread must not wait."""

    def wait(self, timeout: float | None = None) -> bool:
        assert threading.current_thread() is not threading.main_thread()
        return super().wait(timeout)


class HeldRunner(LocalRunner):
    """A runner whose tasks wait for permission to end."""

    def __init__(self) -> None:
        super().__init__(2)
        self.begun, self.may_end = threading.Event(), threading.Event()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        def held(task: Task) -> Result:
            self.begun.set()
            assert self.may_end.wait(LONG_S)
            return function(task)

        return super().map(held, tasks)


def loop_of(
    runner: Runner,
    limits: RetryConfig,
    reported: list[Event],
    *,
    is_behind_a_crash: bool = False,
    has_buckets: bool = True,
    schedule: Schedule = UNSHARED,
    paused: threading.Event | None = None,
    compactor: AsyncCompactor | None = None,
) -> StreamLoop:
    """Create a run on a table with two slices to compact, whose source does not answer."""
    storage = new_storage()
    make(storage)
    rows = writer(storage) if has_buckets else lookup_writer(storage)
    for number in (1, 2):
        commit(rows, [Row("a", number), Row("b", number, region="south")])
    if is_behind_a_crash:
        write_files(writer(storage), [Row("c"), Row("d", region="south")])
    services = TableServices(
        [rows], ServicePolicies(CompactionPolicy(1)), runner, reported.append, compactor
    )
    sink, source = HudiSink(rows, None, cast(Any, None), NO_REJECTS), cast(Any, AwayBroker())
    config = RunConfig(retry=limits)
    exchange = DriverExchange(LocalRunner(1))
    return StreamLoop(
        "orders", source, sink, exchange, services, config, reported.append, schedule, paused
    )


def test_a_failure_that_may_pass_is_met_with_growing_pauses_and_then_given_up() -> None:
    reported: list[Event] = []
    limits = RetryConfig(max_attempts=6, backoff_s=0.005, max_backoff_s=0.03)
    loop, started = loop_of(LocalRunner(1), limits, reported), time.monotonic()
    with pytest.raises(BrokerUnreachable):
        loop.run()
    retrying = [event for event in reported if isinstance(event, Retrying)]
    assert [event.attempt for event in retrying] == [1, 2, 3, 4, 5]
    assert [event.pause_s for event in retrying] == [0.005, 0.01, 0.02, 0.03, 0.03]
    assert time.monotonic() - started > 0.095
    assert not loop.has_unfinished_work


def test_run_that_is_asked_to_pause_makes_no_further_attempt_until_it_resumes() -> None:
    reported: list[Event] = []
    paused = threading.Event()
    limits = RetryConfig(max_attempts=3, backoff_s=0.005, max_backoff_s=0.03)
    loop = loop_of(LocalRunner(1), limits, reported, paused=paused)
    paused.set()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            loop.run()
        except BrokerUnreachable as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: reported == [RunPaused()])
    seen_at = loop.waiting_at
    until(lambda: loop.waiting_at > seen_at)
    assert reported == [RunPaused()], "a paused run counts as alive, and attempts nothing"
    paused.clear()
    thread.join(LONG_S)
    assert isinstance(reported[1], RunResumed)
    assert sum(isinstance(event, Retrying) for event in reported) == 2
    assert len(failures) == 1


def test_run_is_paused_only_when_its_compaction_has_ended() -> None:
    """Other programs may change the table of a paused run."""
    reported: list[Event] = []
    paused, runner = threading.Event(), HeldRunner()
    policy = AsyncCompactionPolicy(CompactionPolicy(1))
    compactor = AsyncCompactor(policy, runner, reported.append)
    loop = loop_of(LocalRunner(1), RetryConfig(), reported, paused=paused, compactor=compactor)
    with loop._services.mutex:
        loop._services.run()
    assert runner.begun.wait(LONG_S)
    paused.set()
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    until(lambda: loop.waiting_at > 0.0)
    seen_at = loop.waiting_at
    until(lambda: loop.waiting_at > seen_at)
    assert not any(isinstance(event, RunPaused) for event in reported)
    runner.may_end.set()
    until(lambda: any(isinstance(event, RunPaused) for event in reported))
    ended = [type(one) for one in reported if isinstance(one, CompactionCompleted | RunPaused)]
    assert ended == [CompactionCompleted, RunPaused]
    loop.stop()
    thread.join(LONG_S)
    assert not loop.has_unfinished_work


def test_stop_ends_a_paused_run_by_itself() -> None:
    reported: list[Event] = []
    paused = threading.Event()
    paused.set()
    loop = loop_of(LocalRunner(1), RetryConfig(), reported, paused=paused)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    until(lambda: reported == [RunPaused()])
    assert loop.stop(), "a signal handler need not interrupt the run"
    thread.join(LONG_S)
    assert [type(event) for event in reported] == [RunPaused, RunStopped]
    assert not loop.has_unfinished_work


@pytest.mark.parametrize(("ahead_s", "pauses_s"), [(0.3, [0.3]), (7200.0, [])])
def test_a_run_waits_for_its_clock_within_the_hour_that_the_autumn_repeats(
    monkeypatch: pytest.MonkeyPatch, ahead_s: float, pauses_s: list[float]
) -> None:
    reported: list[Event] = []
    limits = RetryConfig(max_attempts=2, backoff_s=0.005, max_backoff_s=0.03)
    loop = loop_of(LocalRunner(1), limits, reported)

    def recover() -> list[str]:
        newest = "20260101000000000"
        raise ClockBehind(newest, ahead_s, datetime(2026, 1, 1, tzinfo=UTC), UTC)

    monkeypatch.setattr(loop._sink, "recover", recover)
    with pytest.raises(ClockBehind, match="wait until 2026-01-01 00:00:00 UTC"):
        loop.run()
    assert [event.pause_s for event in reported if isinstance(event, Retrying)] == pauses_s


@pytest.mark.parametrize("failure", [None, StorageUnavailable("away"), OutcomeUnknown("unknown")])
def test_lost_offsets_are_reported_once_however_often_their_commit_is_tried(
    monkeypatch: pytest.MonkeyPatch, failure: HudiError | None
) -> None:
    reported: list[Event] = []
    loop = loop_of(LocalRunner(1), RetryConfig(max_attempts=2, backoff_s=0.005), reported)
    loop._source = cast(Any, LosingSource())
    failures, committed = [failure] if failure else [], list[Progress]()

    def commit_start(start: KafkaCheckpoint, topic_id: str, lost: object) -> None:
        if not failures or isinstance(failures[0], OutcomeUnknown):
            committed.append(
                Progress(checkpoint=start, commit="20260101000000000", topic_id=topic_id)
            )
        if failures:
            raise failures.pop()

    monkeypatch.setattr(loop._sink, "commit_start", commit_start)
    monkeypatch.setattr(loop._sink, "progress", lambda: committed[-1] if committed else None)
    with pytest.raises(Permanent, match="the stream fails"):
        loop.run()
    skipped = [event for event in reported if isinstance(event, OffsetsLost)]
    assert [lost["count"] for event in skipped for lost in event.lost] == [4]
    assert len(committed) == 1


@pytest.mark.parametrize("source", [LosingSource(), UnstartableSource()])
def test_start_that_fails_leaves_neither_a_thread_nor_a_running_stream(
    monkeypatch: pytest.MonkeyPatch, source: LosingSource
) -> None:
    loop = loop_of(LocalRunner(1), RetryConfig(max_attempts=1), [])
    loop._source = cast(Any, source)
    monkeypatch.setattr(loop._sink, "commit_start", lambda *_: None)
    others = set(threading.enumerate())
    with pytest.raises(Permanent, match="stream"):
        loop.run()
    for thread in set(threading.enumerate()) - others:
        thread.join(LONG_S / 4)
    assert not {one.name for one in set(threading.enumerate()) - others}
    assert loop.position is None


def test_committed_batch_is_reported_and_maintained_although_the_broker_does_not_answer() -> None:
    location = StorageLocation(f"memory://{uuid4().hex}/orders")
    stream = JsonStream(location, SchemaPolicy(unknown_fields="evolve"))
    stream.write([{"id": "a", "ts": 0}])
    reported = list[Event]()
    services = TableServices(
        [stream.rows], ServicePolicies(CompactionPolicy(1)), LocalRunner(1), reported.append
    )
    loop = StreamLoop(
        "orders",
        SilentSource(),
        stream.sink,
        DriverExchange(LocalRunner(1)),
        services,
        RunConfig(),
        reported.append,
    )
    batch = kafka_batch("orders", 1, [{"id": "a", "ts": 1, "new": True}, b"no JSON"])
    announced_at = time.monotonic()
    loop._publish(
        PlannedBatch(
            id=0, batch=batch, exchange=stream.exchange, announced_at=announced_at, read_s=1_000.0
        )
    )
    kinds = [type(event) for event in reported]
    assert kinds == [BatchWritten, SchemaEvolved, RecordsRejected, CompactionCompleted]
    assert isinstance(reported[0], BatchWritten)
    assert (reported[0].rows_written, reported[0].lag) == (1, {})
    assert reported[0].stage_s["read"] == 1_000.0
    assert 0 < reported[0].seconds < time.monotonic() - announced_at, "reading has overlapped"


def test_rollback_at_the_start_is_reported_with_its_own_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[Event] = []
    loop = loop_of(LocalRunner(1), RetryConfig(max_attempts=1), reported, is_behind_a_crash=True)
    recover = loop._sink.recover

    def slow_recover() -> list[str]:
        time.sleep(0.05)
        return recover()

    monkeypatch.setattr(loop._sink, "recover", slow_recover)
    with pytest.raises(BrokerUnreachable):
        loop.run()
    (rollback,) = [
        e for e in reported if isinstance(e, ServiceCompleted) and e.service == "rollback"
    ]
    assert rollback.seconds >= 0.05


class QuietSource(LosingSource):
    """A source that has lost nothing."""

    def start(self, checkpoint: KafkaCheckpoint | None, topic_id: str) -> Start:
        return Start(checkpoint or KafkaCheckpoint("orders", {0: 7}), topic_id=self.topic_id)


def table_of(loop: StreamLoop) -> OpenTable:
    """Return the table to which a loop writes."""
    assert isinstance(loop._sink, HudiSink)
    return loop._sink.table


class RefusedStream:
    """A stream whose batch a planned clustering prevents, until another writer removes the plan.

    Attributes:
        times: how often the stream was started.
    """

    def __init__(self, loop: StreamLoop) -> None:
        table = table_of(loop)
        self.planned = plan_clustering(table.storage, table.view().latest_slices()[0].group)
        self.times = 0

    def run(self, *_: object) -> None:
        self.times += 1
        if self.times == 1:
            raise ClusteringPlanned(self.planned, "its file group")
        if self.times == 2:
            message = "the store is busy"
            raise StorageUnavailable(message)
        message = "the batch is written"
        raise Permanent(message)


@pytest.mark.parametrize(
    ("mode", "has_buckets"), [("continuous", False), ("continuous", True), ("once", False)]
)
def test_planned_clustering_of_another_writer_does_not_end_a_continuous_run(
    monkeypatch: pytest.MonkeyPatch, mode: Literal["continuous", "once"], has_buckets: bool
) -> None:
    """No run waits for the clustering of a table with buckets, which no writer can execute."""
    reported: list[Event] = []
    limits = RetryConfig(max_attempts=3, backoff_s=0.001, max_backoff_s=0.002)
    loop = loop_of(LocalRunner(1), limits, reported, has_buckets=has_buckets)
    loop._source, loop._config = cast(Any, QuietSource()), RunConfig(retry=limits, mode=mode)
    stream, waits = RefusedStream(loop), 3 * limits.max_attempts

    def listen(event: Event) -> None:
        reported.append(event)
        is_last = sum(isinstance(one, ClusteringAwaited) for one in reported) == waits
        if isinstance(event, ClusteringAwaited) and is_last:
            roll_back_named(table_of(loop).context, stream.planned.requested_at)

    monkeypatch.setattr(loop, "_listener", listen)
    monkeypatch.setattr(loop, "_stream", stream.run)
    if mode == "once" or has_buckets:
        with pytest.raises(ClusteringPlanned):
            loop.run()
        assert stream.times == 1
        return
    with pytest.raises(Permanent, match="the batch is written"):
        loop.run()
    assert stream.times == 3, "the batch is not written while the plan is pending"
    (failed,) = [event for event in reported if isinstance(event, Retrying)]
    waited = [event.waits for event in reported if isinstance(event, ClusteringAwaited)]
    assert waited == [*range(1, waits + 1)]
    assert (failed.attempt, failed.max_attempts) == (1, 3), "a wait is no failure"


class FreeSlots:
    """The slots of a process with one stream and one batch; ``count`` notes the free ones."""

    def __init__(self) -> None:
        self._streams, self._batches = Slots(1), Slots(1)
        self.counted = list[tuple[int, int]]()
        unused = cast(Any, None)
        self.schedule = SharedSchedule("orders", unused, self._streams, self._batches, unused)

    def count(self, *_: object) -> None:
        self.counted.append((self._streams._free, self._batches._free))


def test_services_of_a_start_hold_the_slot_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = FreeSlots()
    loop = loop_of(LocalRunner(1), RetryConfig(max_attempts=1), [], schedule=slots.schedule)
    monkeypatch.setattr(loop._source, "check_reachable", slots.count)
    monkeypatch.setattr(loop._services, "run", slots.count)
    with pytest.raises(BrokerUnreachable):
        loop.run()
    assert slots.counted == [(1, 1), (0, 0)], "the broker is asked before a slot is held"


def test_pipeline_whose_broker_is_away_holds_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = FreeSlots()
    loop = loop_of(LocalRunner(1), RetryConfig(max_attempts=2), [], schedule=slots.schedule)
    monkeypatch.setattr(loop._sink, "recover", slots.count)
    with pytest.raises(BrokerUnreachable):
        loop.run()
    assert not slots.counted


def test_wait_for_a_compaction_holds_no_slot_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = FreeSlots()
    loop = loop_of(LocalRunner(1), RetryConfig(), [], schedule=slots.schedule)
    monkeypatch.setattr(loop._services, "wait", slots.count)
    with loop._batch_slot(lambda: False) as has_slot:
        assert has_slot
        loop._serve_tables()
    assert slots.counted == [(1, 1)]


class EndlessQuery:
    """A query of Spark that waits for a broker that is down, so that it does not end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()

    def stop(self) -> None:
        self.may_end.wait(LONG_S)


def test_stream_that_does_not_end_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "_STREAM_ENDS_WITHIN_S", 0.1)
    monkeypatch.setattr(loop_module, "_CANCEL_S", 0.1)
    loop, unused = loop_of(LocalRunner(1), RetryConfig(), []), cast(Any, None)
    batches = StreamBatches(unused, unused, unused, unused, loop._stopping, reads_ahead=False)
    query, began = EndlessQuery(), time.monotonic()
    assert loop._end(cast(Any, query), batches) is None
    assert time.monotonic() - began < LONG_S / 2
    assert loop.has_unfinished_work
    assert loop.waiting_at > began, "a run that waits for a broker is not stuck"
    query.may_end.set()


def test_the_handler_of_a_signal_cannot_meet_its_own_thread_waiting_for_the_event_it_sets() -> None:
    """A signal cannot deadlock the run.

    The wait for an event briefly holds the event's lock, and ``set`` waits for this lock.
    """
    reported: list[Event] = []
    loop = loop_of(LocalRunner(1), RetryConfig(max_attempts=2, backoff_s=0.05), reported)
    loop._stopping = NeverWaitedFor()
    with pytest.raises(BrokerUnreachable):
        loop.run()


def test_a_pause_stays_the_longest_however_often_it_failed() -> None:
    assert pause_after(1, 90.0, 60.0) == 60.0
    assert pause_after(5_000, 1.0, 60.0) == 60.0


def _signal_process(one: signal.Signals) -> None:
    os.kill(os.getpid(), one)


def _signal_this_thread(one: signal.Signals) -> None:
    """Deliver a signal as the system may do: the main thread continues its wait."""
    time.sleep(0.5)  # it does wait by now
    signal.pthread_kill(threading.get_ident(), one)


@pytest.mark.parametrize("send", [_signal_process, _signal_this_thread])
@pytest.mark.parametrize("one", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_while_its_start_compacts_does_not_wait_for_it(
    one: signal.Signals, send: Callable[[signal.Signals], None]
) -> None:
    reported: list[Event] = []
    runner = HeldRunner()
    loop = loop_of(runner, RetryConfig(), reported)

    def ask() -> None:
        assert runner.begun.wait(LONG_S)
        send(one)

    asking, started = threading.Thread(target=ask), time.monotonic()
    asking.start()
    try:
        with stop_on_signals() as signals:
            signals.watch(loop.stop)
            loop.run()
        took_s = time.monotonic() - started
    finally:
        runner.may_end.set()
        asking.join()
    assert took_s < LONG_S / 2
    assert loop.has_unfinished_work, "the process must not wait for the slices"
    assert [event.reason for event in reported if isinstance(event, RunStopped)] == ["interrupted"]
