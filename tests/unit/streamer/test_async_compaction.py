"""Batches continue during an asynchronous compaction, wait only within a limit, and lose no row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemark.errors import StorageUnavailable, WriteConflict
from lakemark.execution.runner import LocalRunner, Result, Task
from lakemark.model.action import Action
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import FILE_NAME
from lakemark.operations.compact import Compaction
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.rollback import roll_back_named
from streamer import async_compaction
from streamer.async_compaction import AsyncCompactionPolicy, AsyncCompactor, CompactionGivenUp
from streamer.events import (
    CompactionCompleted,
    CompactionFailed,
    CompactionResolved,
    CompactionStarted,
    Event,
    ServiceCompleted,
)
from streamer.services import ServicePolicies, TableServices
from tests.clocks import SharedClock, on_clock
from tests.depth import examples, sample
from tests.storages import FaultyStorage, SimulatedCrash
from tests.storages.faulty_storage import When
from tests.table_services import copy_of, new_storage
from tests.tables import SCHEMA, Row, commit, contents, data_files, make, write_files, writer
from tests.waiting import until
from tests.writers import SHARING, plan_clustering

POLICY = AsyncCompactionPolicy(
    CompactionPolicy(2), max_wait_s=0.2, backlog_commits=6, backoff_s=0.01
)
OTHERS = ServicePolicies(
    POLICY.compaction, CleaningPolicy(commits=2), ArchivalPolicy(3, 4, delta_commits_to_compact=2)
)
CLOCK = SharedClock()

#: What happens by itself happens within so long, on a busy machine too.
LONG_S = 120.0


class HeldRunner(LocalRunner):
    """A runner that waits for permission to start, and fails a given number of times."""

    def __init__(self) -> None:
        super().__init__(1)
        self.may_go = threading.Event()
        self.failures: list[Exception] = []

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        assert self.may_go.wait(LONG_S)
        if self.failures:
            raise self.failures.pop()
        return super().map(function, tasks)


class Scenario:
    """A table, its services with asynchronous compaction, and their events."""

    def __init__(
        self,
        storage: Storage,
        policy: AsyncCompactionPolicy = POLICY,
        multi_writer: MultiWriter | None = None,
    ) -> None:
        self.storage, self.to = storage, writer(storage, multi_writer=multi_writer)
        self.runner, self.events = HeldRunner(), list[Event]()
        self.stopping = threading.Event()
        self.compaction = AsyncCompactor(policy, self.runner, self.events.append)
        self.services = TableServices(
            [self.to], OTHERS, LocalRunner(1), self.events.append, self.compaction
        )

    def batch(self, *rows: Row) -> None:
        """Write a batch and run the services after it, with the mutex."""
        with self.services.mutex:
            commit(self.to, rows)
            self.services.run()
            self.services.wait(self.stopping)

    def reported(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    def finish(self) -> None:
        self.runner.may_go.set()
        until(lambda: not self.services.in_progress)


@contextmanager
def started(
    policy: AsyncCompactionPolicy = POLICY, multi_writer: MultiWriter | None = None
) -> Iterator[Scenario]:
    storage = new_storage()
    make(storage)
    scenario = Scenario(storage, policy, multi_writer)
    try:
        yield scenario
    finally:
        scenario.runner.may_go.set()
        assert not scenario.services.end(LONG_S)


def rows_of(storage: Storage, path: str) -> list[dict[str, object]]:
    """Read the rows of a base file, without the meta column of the file name."""
    with storage.open(path) as file:
        rows: list[dict[str, object]] = pq.read_table(file).drop_columns([FILE_NAME]).to_pylist()
    return rows


def assert_whole(scenario: Scenario, expected: dict[str, tuple[int, int]]) -> None:
    """Check that the rows are complete, the view is current, and the metadata table is right."""
    assert contents(scenario.storage) == expected
    carried, fresh = scenario.to.table.snapshot.loaded_view, writer(scenario.storage).table
    assert carried is not None
    assert carried.latest_slices() == fresh.view().latest_slices()
    assert metadata_differences(fresh) == []


def deferred_for_a_clustering(scenario: Scenario) -> tuple[Instant, Instant]:
    """Write three batches, and let a compaction fail, because a clustering of its group is planned.

    Returns:
        The plans of the compaction and of the clustering.
    """
    for number in range(1, 4):
        scenario.batch(Row("a", number, number))
    until(lambda: scenario.reported(CompactionStarted) == 1)
    (plan,) = scenario.to.table.timeline.pending(Action.COMPACTION)
    group = scenario.to.table.view().latest_slices()[0].group
    clustering = plan_clustering(scenario.storage, group)
    scenario.finish()
    until(lambda: scenario.compaction._job is None)
    return plan, clustering


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A function that moves the compactor's clock ahead by some seconds."""
    ahead_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0])
    monkeypatch.setattr(async_compaction, "time", clock)

    def pass_by(seconds: float) -> None:
        ahead_s[0] += seconds

    return pass_by


def test_batches_continue_while_a_compaction_runs() -> None:
    with started() as scenario:
        for number in range(1, 5):
            scenario.batch(Row("a", number, number), Row(f"n{number}", 1, 1, region="south"))
        until(lambda: scenario.reported(CompactionStarted) == 1)
        (pending,) = scenario.to.table.timeline.pending(Action.COMPACTION)
        assert pending.state.value == "inflight"
        expected = {"a": (4, 4)} | {f"n{number}": (1, 1) for number in range(1, 5)}
        assert_whole(scenario, expected)
        scenario.finish()
        assert scenario.reported(CompactionCompleted) == 1
        assert scenario.reported(CompactionFailed) == 0
        assert_whole(scenario, expected)
        scenario.batch(Row("a", 9, 9))
        scenario.finish()
        assert scenario.reported(CompactionCompleted) == 2, (
            "logs of the batches meanwhile are the next plan's"
        )
        assert_whole(scenario, {**expected, "a": (9, 9)})


def test_a_batch_waits_no_longer_than_the_budget_and_only_when_far_behind() -> None:
    with started() as scenario:
        for number in range(6):
            scenario.batch(Row("a", number, number))
        assert scenario.reported(ServiceCompleted) == 0, (
            "nothing was cleaned, archived or waited for"
        )
        for number in range(6, 9):
            began = time.monotonic()
            scenario.batch(Row("a", number, number))
            assert time.monotonic() - began >= POLICY.max_wait_s
        waits = [event for event in scenario.events if isinstance(event, ServiceCompleted)]
        assert [wait.service for wait in waits] == ["compaction_wait"] * 3
        scenario.compaction._policy = replace(POLICY, max_wait_s=LONG_S)
        with scenario.services.mutex:  # nothing is published before the batch waits
            scenario.runner.may_go.set()
            scenario.batch(Row("a", 9, 9))
        assert scenario.reported(CompactionCompleted) == 1, "it was waited for"
        assert_whole(scenario, {"a": (9, 9)})


def test_no_batch_waits_once_the_run_is_to_end() -> None:
    with started(replace(POLICY, max_wait_s=LONG_S)) as scenario:
        for number in range(6):
            scenario.batch(Row("a", number, number))

        def stop() -> None:
            with scenario.services.mutex:  # which a batch only gives while it waits
                scenario.stopping.set()

        stopper = threading.Thread(target=stop)
        began = time.monotonic()
        with scenario.services.mutex:
            stopper.start()
            scenario.batch(Row("a", 6, 6))
            assert scenario.stopping.is_set(), "it did not wait"
        scenario.batch(Row("a", 7, 7))
        assert time.monotonic() - began < LONG_S
        stopper.join()
        assert scenario.reported(CompactionFailed) == 0
        scenario.finish()
        assert_whole(scenario, {"a": (7, 7)})


def test_a_conflict_with_other_writers_may_pass_and_the_plan_is_tried_again(
    later: Callable[[float], None],
) -> None:
    with started(multi_writer=SHARING) as scenario:
        plan, clustering = deferred_for_a_clustering(scenario)
        failed = [event for event in scenario.events if isinstance(event, CompactionFailed)]
        assert [(f.instant, f.error_type) for f in failed] == [(plan.requested_at, "WriteConflict")]
        writer(scenario.storage).table.store.forget(clustering)  # its writer gives it up
        scenario.batch(Row("a", 4, 4))
        assert scenario.reported(CompactionCompleted) == 0, "it is deferred"
        later(60.0)
        scenario.batch(Row("a", 5, 5))
        scenario.finish()
        done = [event for event in scenario.events if isinstance(event, CompactionCompleted)]
        assert [one.instant for one in done] == [plan.requested_at]
        scenario.batch(Row("a", 6, 6))
        assert scenario.reported(CompactionResolved) == 0, "it was done here"
        scenario.finish()
        assert_whole(scenario, {"a": (6, 6)})


def test_plan_of_another_writer_is_reported_once_and_no_longer_fails() -> None:
    with started(multi_writer=SHARING) as scenario:
        plan, clustering = deferred_for_a_clustering(scenario)
        scenario.batch(Row("b", 1, 1, region="south"))
        assert scenario.reported(CompactionFailed) == 1
        assert scenario.reported(CompactionResolved) == 0, "it is pending"
        other = writer(scenario.storage)
        other.table.store.forget(clustering)
        done = other.compact_if_due(CompactionPolicy(100), LocalRunner(1))
        assert [instant.requested_at for instant, _ in done] == [plan.requested_at]
        for number in range(4, 6):
            scenario.batch(Row("a", number, number))
        assert [e for e in scenario.events if isinstance(e, CompactionResolved)] == [
            CompactionResolved(plan.requested_at, other.table.location.url)
        ]
        scenario.finish()
        assert_whole(scenario, {"a": (5, 5), "b": (1, 1)})


def test_running_plan_is_reported_only_by_its_attempt(later: Callable[[float], None]) -> None:
    with started(multi_writer=SHARING) as scenario:
        _, clustering = deferred_for_a_clustering(scenario)
        other = writer(scenario.storage)
        other.table.store.forget(clustering)
        scenario.runner.may_go.clear()
        later(60.0)
        scenario.batch(Row("a", 4, 4))
        until(lambda: scenario.reported(CompactionStarted) == 2)
        other.table.refresh()
        (planned,) = other.table.timeline.pending(Action.COMPACTION)
        # As Apache Hudi, which does not ask whether somebody is executing a plan.
        other.table.storage.delete([f"{HEARTBEAT_FOLDER}/{planned.requested_at}"])
        assert len(other.compact_if_due(CompactionPolicy(100), LocalRunner(1))) == 1
        scenario.batch(Row("a", 5, 5))
        assert scenario.reported(CompactionResolved) == 0, "it is at work"
        scenario.finish()
        until(lambda: scenario.compaction._job is None)
        scenario.batch(Row("a", 6, 6))
        assert scenario.reported(CompactionResolved) == 1
        scenario.finish()
        assert_whole(scenario, {"a": (6, 6)})


def test_failed_compaction_is_reported_and_retried_while_batches_continue() -> None:
    with started() as scenario:
        scenario.runner.failures = [StorageUnavailable("busy"), ValueError("odd")]
        scenario.runner.may_go.set()
        for number in range(1, 4):
            scenario.batch(Row("a", number, number))
        until(lambda: scenario.reported(CompactionCompleted) == 1)
        failed = [event for event in scenario.events if isinstance(event, CompactionFailed)]
        assert [(f.failures, f.error_type) for f in failed] == [
            (1, "ValueError"),
            (2, "StorageUnavailable"),
        ]
        assert_whole(scenario, {"a": (3, 3)})


def test_lock_of_another_writer_delays_no_batch_and_causes_no_second_rewrite() -> None:
    with started(multi_writer=SHARING) as scenario:
        others_lock = writer(scenario.storage).table.context.lock
        with scenario.services.mutex:
            for number in range(1, 4):
                commit(scenario.to, [Row("a", number, number)])
            scenario.services.run()
            lease = others_lock.acquire(1)
        until(lambda: scenario.reported(CompactionFailed) >= 1)
        assert scenario.reported(CompactionStarted) == 0
        lease.release()
        until(lambda: scenario.reported(CompactionStarted) == 1)
        until(lambda: scenario.compaction.is_progressing)  # what was in its way has passed
        before = scenario.reported(CompactionFailed)
        with others_lock.hold(1):
            scenario.runner.may_go.set()
            until(lambda: scenario.reported(CompactionFailed) >= before + 2)
        until(lambda: scenario.reported(CompactionCompleted) == 1)
        assert scenario.reported(CompactionStarted) == 1, "the written files were kept"
        failed = [event for event in scenario.events if isinstance(event, CompactionFailed)]
        assert {event.error_type for event in failed} == {"LockTimeout"}
        assert [event.failures for event in failed[before : before + 2]] == [1, 2]
        assert_whole(scenario, {"a": (3, 3)})


def test_failing_listener_stops_keepalives() -> None:
    with started(multi_writer=SHARING) as scenario:
        troubles = [OSError("no space left")]

        def emit(event: Event) -> None:
            scenario.events.append(event)
            if isinstance(event, CompactionStarted) and troubles:
                raise troubles.pop()

        scenario.compaction._listener = emit
        scenario.runner.may_go.set()
        for number in range(1, 4):
            scenario.batch(Row("a", number, number))
        until(lambda: scenario.reported(CompactionCompleted) == 1)
        assert scenario.reported(CompactionFailed) == 1
        assert scenario.storage.list_folder(HEARTBEAT_FOLDER)[1] == []
        assert_whole(scenario, {"a": (3, 3)})


def test_tables_take_turns_in_compaction() -> None:
    with started() as scenario:
        storage = new_storage()
        make(storage)
        letters = writer(storage)
        scenario.services = TableServices(
            [scenario.to, letters],
            OTHERS,
            LocalRunner(1),
            scenario.events.append,
            scenario.compaction,
        )
        for number in range(1, 4):
            commit(letters, [Row("x", number, number)])
            scenario.batch(Row("a", number, number))
        for _ in range(2):  # each of the two is due again whenever the place is free
            scenario.finish()
            scenario.runner.may_go.clear()
            for number in (4, 5):
                scenario.batch(Row("a", number, number))
        assert letters.table.timeline.completed(Action.COMMIT)


def test_compaction_that_fails_too_long_ends_the_run_and_keeps_its_plan() -> None:
    policy = replace(POLICY, give_up_after_s=0.05, backoff_s=0.02, max_backoff_s=0.02)
    with started(policy) as scenario:
        scenario.runner.failures = [StorageUnavailable("gone")] * 10_000
        for number in range(1, 4):
            scenario.batch(Row("a", number, number))
        scenario.runner.may_go.set()
        with pytest.raises(CompactionGivenUp, match="gone"):
            for _ in range(12_000):
                scenario.services.check()
                time.sleep(0.01)
        with pytest.raises(CompactionGivenUp):
            scenario.batch(Row("a", 4, 4))
        assert contents(scenario.storage) == {"a": (4, 4)}, "the batch is committed all the same"
    again = writer(scenario.storage)
    again.recover()
    assert len(again.compact_if_due(CompactionPolicy(100), LocalRunner(1))) == 1
    assert contents(scenario.storage) == {"a": (4, 4)}


def test_abandoned_compaction_is_executed_by_the_next_run() -> None:
    with started() as scenario:
        for number in range(1, 4):
            scenario.batch(Row("a", number, number))
        until(lambda: scenario.reported(CompactionStarted) == 1)
        assert scenario.services.end(0.01), "it is still at work"
    assert scenario.reported(CompactionCompleted) == 0
    following = Scenario(scenario.storage)
    following.to.recover()
    following.runner.may_go.set()
    following.batch(Row("b", 1, 1))
    following.finish()
    assert following.reported(CompactionCompleted) == 1
    assert_whole(following, {"a": (3, 3), "b": (1, 1)})


def test_an_attempt_after_the_columns_changed_writes_the_same_rows_to_another_file() -> None:
    storage = new_storage()
    make(storage)
    to = writer(storage)
    for number in range(1, 4):
        commit(to, [Row("a", number, number)])
    ((planned, plan),) = to.compactions_to_do(POLICY.compaction)
    first = Compaction.begin(to.table, (planned, plan))
    (written,) = first.rewrite(LocalRunner(1))
    before = rows_of(storage, written.path or "")
    wider = SCHEMA.append(pa.field("note", pa.string()))
    to.evolve(wider)
    to.begin()
    to.commit([], {})
    late = writer(storage)
    late.recover()
    late.evolve(wider)
    ((instant, metadata),) = late.compact_if_due(CompactionPolicy(100), LocalRunner(1))
    assert instant.requested_at == planned.requested_at
    (stat,) = metadata.write_stats
    assert rows_of(storage, stat.path or "") == before
    assert storage.head(written.path or "") is None
    assert "note" in (late.table.schema or SCHEMA).names
    assert contents(storage) == {"a": (3, 3)}
    with pytest.raises(WriteConflict, match="has already completed"):
        first.publish([written], dict)
    assert contents(storage) == {"a": (3, 3)}


class OtherSoftware(HeldRunner):
    """Runs its first tasks twice, and overwrites their files in between."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self.may_go.set()
        self.storage, self.has_run = storage, False

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        done = super().map(function, tasks)
        if self.has_run:
            return done
        self.has_run = True
        for stat in done:
            assert isinstance(stat, WriteStat)
            self.storage.put(stat.path or "", b"what other software made of it")
        return super().map(function, tasks)


@pytest.mark.parametrize("is_beside", [False, True])
def test_a_plan_is_executed_again_if_a_task_of_it_ran_twice_and_wrote_other_bytes(
    is_beside: bool,
) -> None:
    with started() as scenario:
        scenario.runner = scenario.compaction._runner = OtherSoftware(scenario.storage)
        for number in range(1, 4):
            commit(scenario.to, [Row("a", number, number)])
        ((planned, _),) = scenario.to.compactions_to_do(POLICY.compaction)
        if is_beside:
            scenario.batch(Row("a", 4, 4))
            until(lambda: scenario.reported(CompactionCompleted) == 1)
            assert scenario.reported(CompactionFailed) == 1
        else:
            commit(scenario.to, [Row("a", 4, 4)])
            with pytest.raises(WriteConflict, match="other software"):
                scenario.to.compact_if_due(CompactionPolicy(100), scenario.runner)
            ((done, _),) = scenario.to.compact_if_due(CompactionPolicy(100), scenario.runner)
            assert done.requested_at == planned.requested_at
        assert contents(scenario.storage) == {"a": (4, 4)}


def test_plan_that_is_rolled_back_during_execution_is_planned_again() -> None:
    with started() as scenario:
        for number in range(1, 4):
            scenario.batch(Row("a", number, number))
        until(lambda: scenario.reported(CompactionStarted) == 1)
        (pending,) = scenario.to.table.timeline.pending(Action.COMPACTION)
        roll_back_named(writer(scenario.storage).table.context, pending.requested_at)
        scenario.runner.may_go.set()
        until(lambda: scenario.reported(CompactionCompleted) == 1)
        assert scenario.reported(CompactionFailed) == 1
        assert contents(scenario.storage) == {"a": (3, 3)}
        assert metadata_differences(writer(scenario.storage).table) == []


FIRST = {"a": (3, 3), "b": (3, 3), "c": (1, 1)}
SECOND = {**FIRST, "a": (4, 4), "d": (4, 4)}


def with_a_plan() -> Storage:
    storage = new_storage()
    make(storage)
    to = writer(storage)
    commit(to, [Row("c", 1, 1, region="south")])
    for number in (1, 2, 3):
        commit(to, [Row("a", number, number), Row("b", number, number, region="south")])
    assert to.compactions_to_do(POLICY.compaction)
    return storage


def batch_and_compaction(to: TableWriter) -> None:
    """Write new base files while a batch is in flight, and then publish both."""
    to.recover()
    (planned,) = to.compactions_to_do(POLICY.compaction)
    compaction = to.begin_compaction(planned)
    assert compaction is not None
    batch = write_files(to, [Row("a", 4, 4), Row("d", 4, 4, region="west")])
    stats = compaction.rewrite(LocalRunner(1))
    to.commit(batch, {})
    to.publish_compaction(compaction, stats)


def crash_points() -> int:
    counting = FaultyStorage(with_a_plan())
    batch_and_compaction(writer(counting))
    assert contents(counting) == SECOND
    return counting.writes


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_amid_both_leaves_whole_batches_and_a_plan(when: When) -> None:
    origin, counted = with_a_plan(), crash_points()
    for nth in sample(range(when == "after", counted, 3), name=when):
        storage = copy_of(origin)
        with pytest.raises(SimulatedCrash):
            batch_and_compaction(on_clock(writer(FaultyStorage(storage, nth, when)), CLOCK))
        left = contents(storage)
        assert left in (FIRST, SECOND), nth
        restarted = on_clock(writer(storage), CLOCK)
        restarted.recover()
        restarted.compact_if_due(CompactionPolicy(100), LocalRunner(1))
        assert contents(storage) == left, nth
        timeline = writer(storage).table.timeline
        assert not timeline.pending(), nth
        completed = [instant.requested_at for instant in timeline.completed()]
        assert all(any(one in path for one in completed) for path in data_files(storage)), nth
        assert keep_metadata_table(restarted.table) is None
    assert metadata_differences(restarted.table) == []


STEPS = st.lists(
    st.sampled_from(["begin batch", "commit", "abandon", "plan", "rewrite", "publish", "restart"]),
    min_size=4,
    max_size=14,
)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_steps_of_batches_and_a_compaction_in_any_order_keep_every_row(steps: list[str]) -> None:
    """Every row stays after any sequence of steps and restarts, which lose all state in memory."""
    storage = new_storage()
    make(storage)
    to = on_clock(writer(storage), CLOCK)
    model: dict[str, tuple[int, int]] = {}
    batch, rows = None, list[Row]()
    compaction: Compaction | None = None
    stats: list[WriteStat] | None = None
    commit(to, [Row("a", 0, 0)])
    model["a"] = (0, 0)
    for number, step in enumerate(steps, 1):
        if step == "begin batch" and batch is None:
            rows = [Row("a", number, number), Row(f"k{number % 3}", number, number, "south")]
            batch = write_files(to, rows)
        elif step == "commit" and batch is not None:
            to.commit(batch, {})
            model.update({row.id: (row.ts, row.v) for row in rows})
            batch = None
        elif step == "abandon" and batch is not None:
            to.abandon()
            batch = None
        elif step == "plan" and compaction is None and batch is None:
            todo = to.compactions_to_do(CompactionPolicy(1))
            compaction, stats = (to.begin_compaction(todo[0]), None) if todo else (None, None)
        elif step == "rewrite" and compaction is not None:
            stats = compaction.rewrite(LocalRunner(1))
        elif step == "publish" and compaction is not None and stats is not None and batch is None:
            to.publish_compaction(compaction, stats)
            compaction = None
        elif step == "restart":
            to, batch, compaction = on_clock(writer(storage), CLOCK), None, None
            to.recover()
        assert contents(storage) == model, step
    assert metadata_differences(writer(storage).table) == []
