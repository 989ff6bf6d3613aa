"""Compaction beside the batches: neither waits for the other, and what both do is in the table."""

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
from streamer.async_compaction import AsyncCompactor, BesidePolicy, CompactionGivenUp
from streamer.events import (
    CompactionBegun,
    CompactionDone,
    CompactionFailed,
    CompactionSettled,
    Event,
    ServiceDone,
)
from streamer.services import ServicePolicies, TableServices
from tests.clocks import SharedClock, on_clock
from tests.depth import examples
from tests.storages import FaultyStorage, SimulatedCrash
from tests.storages.faulty_storage import When
from tests.tables import SCHEMA, Row, commit, contents, data_files, make, write_files, writer
from tests.upkeep import copy_of, new_storage
from tests.waiting import until
from tests.writers import SHARING, plan_clustering

POLICY = BesidePolicy(CompactionPolicy(2), wait_budget_s=0.2, backlog_commits=6, backoff_s=0.01)
OTHERS = ServicePolicies(
    POLICY.compaction, CleaningPolicy(commits=2), ArchivalPolicy(3, 4, delta_commits_to_compact=2)
)
CLOCK = SharedClock()

#: What happens by itself happens within so long, on a busy machine too.
LONG_S = 120.0


class HeldRunner(LocalRunner):
    """Begins only when it is let; fails as often as it is told to."""

    def __init__(self) -> None:
        super().__init__(1)
        self.may_go = threading.Event()
        self.failures: list[Exception] = []

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        assert self.may_go.wait(LONG_S)
        if self.failures:
            raise self.failures.pop()
        return super().map(function, tasks)


class Beside:
    """A table, its services with compaction beside, and what they told."""

    def __init__(
        self,
        storage: Storage,
        policy: BesidePolicy = POLICY,
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
        """A whole batch, in turn, with what follows it."""
        with self.services.turn:
            commit(self.to, rows)
            self.services.run()
            self.services.wait(self.stopping)

    def told(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    def finish(self) -> None:
        self.runner.may_go.set()
        until(lambda: not self.services.is_progressing)


@contextmanager
def started(
    policy: BesidePolicy = POLICY, multi_writer: MultiWriter | None = None
) -> Iterator[Beside]:
    storage = new_storage()
    make(storage)
    beside = Beside(storage, policy, multi_writer)
    try:
        yield beside
    finally:
        beside.runner.may_go.set()
        assert not beside.services.end(LONG_S)


def rows_of(storage: Storage, path: str) -> list[dict[str, object]]:
    """The rows of a base file, without the name of the file that each of them holds."""
    with storage.open(path) as file:
        rows: list[dict[str, object]] = pq.read_table(file).drop_columns([FILE_NAME]).to_pylist()
    return rows


def assert_whole(beside: Beside, expected: dict[str, tuple[int, int]]) -> None:
    """The rows are there, nothing has to be listed anew, and the metadata table tells the truth."""
    assert contents(beside.storage) == expected
    carried, fresh = beside.to.table.snapshot.loaded_view, writer(beside.storage).table
    assert carried is not None
    assert carried.latest_slices() == fresh.view().latest_slices()
    assert metadata_differences(fresh) == []


def given_way_to_a_clustering(beside: Beside) -> tuple[Instant, Instant]:
    """Three batches, and a compaction that failed since another writer plans to replace its group.

    Returns:
        The compaction's plan, and the clustering's.
    """
    for number in range(1, 4):
        beside.batch(Row("a", number, number))
    until(lambda: beside.told(CompactionBegun) == 1)
    (plan,) = beside.to.table.timeline.pending(Action.COMPACTION)
    group = beside.to.table.view().latest_slices()[0].group
    clustering = plan_clustering(beside.storage, group)
    beside.finish()
    until(lambda: beside.compaction._job is None)
    return plan, clustering


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Makes it so many seconds later for the compaction beside, and for nobody else."""
    ahead_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0])
    monkeypatch.setattr(async_compaction, "time", clock)

    def pass_by(seconds: float) -> None:
        ahead_s[0] += seconds

    return pass_by


def test_batches_go_on_while_a_compaction_is_at_work() -> None:
    with started() as beside:
        for number in range(1, 5):
            beside.batch(Row("a", number, number), Row(f"n{number}", 1, 1, region="south"))
        until(lambda: beside.told(CompactionBegun) == 1)
        (pending,) = beside.to.table.timeline.pending(Action.COMPACTION)
        assert pending.state.value == "inflight"
        expected = {"a": (4, 4)} | {f"n{number}": (1, 1) for number in range(1, 5)}
        assert_whole(beside, expected)
        beside.finish()
        assert beside.told(CompactionDone) == 1
        assert beside.told(CompactionFailed) == 0
        assert_whole(beside, expected)
        beside.batch(Row("a", 9, 9))
        beside.finish()
        assert beside.told(CompactionDone) == 2, "logs of the batches meanwhile are the next plan's"
        assert_whole(beside, {**expected, "a": (9, 9)})


def test_a_batch_waits_no_longer_than_the_budget_and_only_when_far_behind() -> None:
    with started() as beside:
        for number in range(6):
            beside.batch(Row("a", number, number))
        assert beside.told(ServiceDone) == 0, "nothing was cleaned, archived or waited for"
        for number in range(6, 9):
            began = time.monotonic()
            beside.batch(Row("a", number, number))
            assert time.monotonic() - began >= POLICY.wait_budget_s
        waits = [event for event in beside.events if isinstance(event, ServiceDone)]
        assert [wait.service for wait in waits] == ["compaction_wait"] * 3
        beside.compaction._policy = replace(POLICY, wait_budget_s=LONG_S)
        with beside.services.turn:  # nothing is published before the batch waits
            beside.runner.may_go.set()
            beside.batch(Row("a", 9, 9))
        assert beside.told(CompactionDone) == 1, "it was waited for"
        assert_whole(beside, {"a": (9, 9)})


def test_no_batch_waits_once_the_run_is_to_end() -> None:
    with started(replace(POLICY, wait_budget_s=LONG_S)) as beside:
        for number in range(6):
            beside.batch(Row("a", number, number))

        def stop() -> None:
            with beside.services.turn:  # which a batch only gives while it waits
                beside.stopping.set()

        stopper = threading.Thread(target=stop)
        began = time.monotonic()
        with beside.services.turn:
            stopper.start()
            beside.batch(Row("a", 6, 6))
            assert beside.stopping.is_set(), "it did not wait"
        beside.batch(Row("a", 7, 7))
        assert time.monotonic() - began < LONG_S
        stopper.join()
        assert beside.told(CompactionFailed) == 0
        beside.finish()
        assert_whole(beside, {"a": (7, 7)})


def test_a_conflict_with_other_writers_may_pass_and_the_plan_is_tried_again(
    later: Callable[[float], None],
) -> None:
    with started(multi_writer=SHARING) as beside:
        plan, clustering = given_way_to_a_clustering(beside)
        failed = [event for event in beside.events if isinstance(event, CompactionFailed)]
        assert [(f.instant, f.error_type) for f in failed] == [(plan.requested_at, "WriteConflict")]
        writer(beside.storage).table.store.forget(clustering)  # its writer gives it up
        beside.batch(Row("a", 4, 4))
        assert beside.told(CompactionDone) == 0, "it is passed over"
        later(60.0)
        beside.batch(Row("a", 5, 5))
        beside.finish()
        done = [event for event in beside.events if isinstance(event, CompactionDone)]
        assert [one.instant for one in done] == [plan.requested_at]
        beside.batch(Row("a", 6, 6))
        assert beside.told(CompactionSettled) == 0, "it was done here"
        beside.finish()
        assert_whole(beside, {"a": (6, 6)})


def test_a_plan_that_another_writer_did_is_told_of_once_and_fails_no_more() -> None:
    with started(multi_writer=SHARING) as beside:
        plan, clustering = given_way_to_a_clustering(beside)
        beside.batch(Row("b", 1, 1, region="south"))
        assert beside.told(CompactionFailed) == 1
        assert beside.told(CompactionSettled) == 0, "it is pending"
        other = writer(beside.storage)
        other.table.store.forget(clustering)
        done = other.compact_if_due(CompactionPolicy(100), LocalRunner(1))
        assert [instant.requested_at for instant, _ in done] == [plan.requested_at]
        for number in range(4, 6):
            beside.batch(Row("a", number, number))
        assert [e for e in beside.events if isinstance(e, CompactionSettled)] == [
            CompactionSettled(plan.requested_at)
        ]
        beside.finish()
        assert_whole(beside, {"a": (5, 5), "b": (1, 1)})


def test_of_a_plan_at_work_only_its_attempt_tells(later: Callable[[float], None]) -> None:
    with started(multi_writer=SHARING) as beside:
        _, clustering = given_way_to_a_clustering(beside)
        other = writer(beside.storage)
        other.table.store.forget(clustering)
        beside.runner.may_go.clear()
        later(60.0)
        beside.batch(Row("a", 4, 4))
        until(lambda: beside.told(CompactionBegun) == 2)
        other.table.refresh()
        (planned,) = other.table.timeline.pending(Action.COMPACTION)
        # As Apache Hudi, which does not ask whether somebody is executing a plan.
        other.table.storage.delete([f"{HEARTBEAT_FOLDER}/{planned.requested_at}"])
        assert len(other.compact_if_due(CompactionPolicy(100), LocalRunner(1))) == 1
        beside.batch(Row("a", 5, 5))
        assert beside.told(CompactionSettled) == 0, "it is at work"
        beside.finish()
        until(lambda: beside.compaction._job is None)
        beside.batch(Row("a", 6, 6))
        assert beside.told(CompactionSettled) == 1
        beside.finish()
        assert_whole(beside, {"a": (6, 6)})


def test_a_failure_is_told_and_tried_again_while_batches_go_on() -> None:
    with started() as beside:
        beside.runner.failures = [StorageUnavailable("busy"), ValueError("odd")]
        beside.runner.may_go.set()
        for number in range(1, 4):
            beside.batch(Row("a", number, number))
        until(lambda: beside.told(CompactionDone) == 1)
        failed = [event for event in beside.events if isinstance(event, CompactionFailed)]
        assert [(f.failures, f.error_type) for f in failed] == [
            (1, "ValueError"),
            (2, "StorageUnavailable"),
        ]
        assert_whole(beside, {"a": (3, 3)})


def test_a_lock_that_others_keep_is_not_waited_for_in_turn_and_costs_no_second_rewrite() -> None:
    with started(multi_writer=SHARING) as beside:
        others_lock = writer(beside.storage).table.context.lock
        with beside.services.turn:
            for number in range(1, 4):
                commit(beside.to, [Row("a", number, number)])
            beside.services.run()
            lease = others_lock.acquire(1)
        until(lambda: beside.told(CompactionFailed) >= 1)
        assert beside.told(CompactionBegun) == 0
        lease.release()
        until(lambda: beside.told(CompactionBegun) == 1)
        until(lambda: beside.compaction.is_progressing)  # what was in its way has passed
        before = beside.told(CompactionFailed)
        with others_lock.hold(1):
            beside.runner.may_go.set()
            until(lambda: beside.told(CompactionFailed) >= before + 2)
        until(lambda: beside.told(CompactionDone) == 1)
        assert beside.told(CompactionBegun) == 1, "what was written stood"
        failed = [event for event in beside.events if isinstance(event, CompactionFailed)]
        assert {event.error_type for event in failed} == {"LockTimeout"}
        assert [event.failures for event in failed[before : before + 2]] == [1, 2]
        assert_whole(beside, {"a": (3, 3)})


def test_a_listener_that_fails_leaves_no_sign_of_life_behind() -> None:
    with started(multi_writer=SHARING) as beside:
        troubles = [OSError("no space left")]

        def tell(event: Event) -> None:
            beside.events.append(event)
            if isinstance(event, CompactionBegun) and troubles:
                raise troubles.pop()

        beside.compaction._listener = tell
        beside.runner.may_go.set()
        for number in range(1, 4):
            beside.batch(Row("a", number, number))
        until(lambda: beside.told(CompactionDone) == 1)
        assert beside.told(CompactionFailed) == 1
        assert beside.storage.list_folder(HEARTBEAT_FOLDER)[1] == []
        assert_whole(beside, {"a": (3, 3)})


def test_a_table_whose_compactions_follow_each_other_leaves_others_their_turn() -> None:
    with started() as beside:
        storage = new_storage()
        make(storage)
        letters = writer(storage)
        beside.services = TableServices(
            [beside.to, letters], OTHERS, LocalRunner(1), beside.events.append, beside.compaction
        )
        for number in range(1, 4):
            commit(letters, [Row("x", number, number)])
            beside.batch(Row("a", number, number))
        for _ in range(2):  # each of the two is due again whenever the place is free
            beside.finish()
            beside.runner.may_go.clear()
            for number in (4, 5):
                beside.batch(Row("a", number, number))
        assert letters.table.timeline.completed(Action.COMMIT)


def test_what_fails_for_too_long_ends_the_run_and_the_plan_stands() -> None:
    policy = replace(POLICY, give_up_after_s=0.05, backoff_s=0.02, max_backoff_s=0.02)
    with started(policy) as beside:
        beside.runner.failures = [StorageUnavailable("gone")] * 10_000
        for number in range(1, 4):
            beside.batch(Row("a", number, number))
        beside.runner.may_go.set()
        with pytest.raises(CompactionGivenUp, match="gone"):
            for _ in range(12_000):
                beside.services.check()
                time.sleep(0.01)
        with pytest.raises(CompactionGivenUp):
            beside.batch(Row("a", 4, 4))
        assert contents(beside.storage) == {"a": (4, 4)}, "the batch is committed all the same"
    again = writer(beside.storage)
    again.recover()
    assert len(again.compact_if_due(CompactionPolicy(100), LocalRunner(1))) == 1
    assert contents(beside.storage) == {"a": (4, 4)}


def test_what_the_run_did_not_wait_for_is_done_by_the_next() -> None:
    with started() as beside:
        for number in range(1, 4):
            beside.batch(Row("a", number, number))
        until(lambda: beside.told(CompactionBegun) == 1)
        assert beside.services.end(0.01), "it is still at work"
    assert beside.told(CompactionDone) == 0
    following = Beside(beside.storage)
    following.to.recover()
    following.runner.may_go.set()
    following.batch(Row("b", 1, 1))
    following.finish()
    assert following.told(CompactionDone) == 1
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
    with pytest.raises(WriteConflict, match="completed already"):
        first.publish([written], dict)
    assert contents(storage) == {"a": (3, 3)}


class OtherSoftware(HeldRunner):
    """The first time it runs each task again, after other software has run it."""

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
    with started() as beside:
        beside.runner = beside.compaction._runner = OtherSoftware(beside.storage)
        for number in range(1, 4):
            commit(beside.to, [Row("a", number, number)])
        ((planned, _),) = beside.to.compactions_to_do(POLICY.compaction)
        if is_beside:
            beside.batch(Row("a", 4, 4))
            until(lambda: beside.told(CompactionDone) == 1)
            assert beside.told(CompactionFailed) == 1
        else:
            commit(beside.to, [Row("a", 4, 4)])
            with pytest.raises(WriteConflict, match="other software"):
                beside.to.compact_if_due(CompactionPolicy(100), beside.runner)
            ((done, _),) = beside.to.compact_if_due(CompactionPolicy(100), beside.runner)
            assert done.requested_at == planned.requested_at
        assert contents(beside.storage) == {"a": (4, 4)}


def test_a_plan_that_an_operator_rolls_back_under_way_is_done_anew() -> None:
    with started() as beside:
        for number in range(1, 4):
            beside.batch(Row("a", number, number))
        until(lambda: beside.told(CompactionBegun) == 1)
        (pending,) = beside.to.table.timeline.pending(Action.COMPACTION)
        roll_back_named(writer(beside.storage).table.context, pending.requested_at)
        beside.runner.may_go.set()
        until(lambda: beside.told(CompactionDone) == 1)
        assert beside.told(CompactionFailed) == 1
        assert contents(beside.storage) == {"a": (3, 3)}
        assert metadata_differences(writer(beside.storage).table) == []


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
    """A batch is in flight while the new base files are written; then both are published."""
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
    for nth in range(when == "after", counted, 3):
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
    """A restart forgets what was in flight, as a crash does."""
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
