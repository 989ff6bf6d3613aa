from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.events import (
    ActionRequested,
    Alive,
    BackgroundServiceFailed,
    BackgroundServiceResolved,
    BatchPlanned,
    BatchWritten,
    ClusteringAwaited,
    CompactionCompleted,
    Event,
    Retrying,
    RunFailed,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopped,
    ServiceCompleted,
    ServiceFailed,
    WarningLogged,
)
from streamer.health import Health, SharedHealth
from tests.depth import examples
from tests.unit.streamer.event_samples import CLASSES, of_class

STARTED = RunStarted("p", "orders", "/t", {0: 0}, False)
FAILED = Retrying("no broker", 1, 50, 2.0, "StreamInterrupted")


class Run:
    """The health of a run, on a clock that the test moves.

    ``wait`` lets a waiting loop pass time.
    """

    def __init__(self) -> None:
        self.now, self.waiting_at = 100.0, 0.0
        self.health = Health(60.0, lambda: self.now)
        self.health.watch(lambda: self.waiting_at)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waiting_at = self.now


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_start_that_takes_too_long_is_stuck(run: Run) -> None:
    assert run.health.verdict().is_alive
    run.now += 61
    assert run.health.verdict().reason == "stuck for 61 s: starting"


def test_a_stream_without_records_is_well_for_ever(run: Run) -> None:
    run.health(STARTED)
    run.wait(1_000_000)
    verdict = run.health.verdict()
    assert (verdict.is_alive, verdict.is_ready, verdict.reason) == (
        True,
        True,
        "waiting for records",
    )


def test_service_after_a_batch_may_be_stuck(run: Run) -> None:
    run.health(STARTED)
    run.wait(5)
    run.health(BatchPlanned(3, {0: 5}))
    run.now += 50
    run.health(BatchWritten(3, "20260501120000500", 5))
    run.now += 50
    assert run.health.verdict().is_ready
    run.now += 50
    assert run.health.verdict().reason == "stuck for 100 s: table services after batch 3"


@pytest.mark.parametrize(
    "end",
    [
        CompactionCompleted("20260501120000500", 2, 70, 800, 1.5, "/lake/orders"),
        BackgroundServiceResolved("compaction", "20260501120000500", "/lake/orders"),
    ],
)
def test_failed_compaction_is_reported_and_hides_no_stuck_batch(
    run: Run, end: CompactionCompleted | BackgroundServiceResolved
) -> None:
    run.health(STARTED)
    run.wait(5)
    run.health(BatchPlanned(0, {0: 5}))
    run.now += 40
    run.health(
        BackgroundServiceFailed(
            "compaction",
            "20260501120000500",
            "busy",
            3,
            30.0,
            1.0,
            "StorageUnavailable",
            "/lake/orders",
        )
    )
    assert run.health.verdict().is_ready
    reported = "batch 0; compaction failing for 30 s (StorageUnavailable)"
    assert run.health.verdict().reason == reported
    run.now += 30
    assert run.health.verdict().reason == "stuck for 70 s: batch 0"
    run.health(end)
    assert run.health.verdict().reason == "batch 0"


def test_failing_compaction_is_not_reset_by_another(run: Run) -> None:
    run.health(STARTED)
    run.wait(5)
    run.health(
        BackgroundServiceFailed(
            "compaction", "1", "busy", 3, 30.0, 1.0, "StorageUnavailable", "/lake/orders"
        )
    )
    run.health(
        BackgroundServiceFailed(
            "compaction", "2", "taken", 1, 0.0, 60.0, "WriteConflict", "/lake/orders"
        )
    )
    run.health(
        BackgroundServiceFailed(
            "compaction", "1", "busy", 1, 0.0, 1.0, "StorageUnavailable", "/lake/orders"
        )
    )  # a new attempt
    failing = "waiting for records; compaction failing for 30 s (StorageUnavailable)"
    assert run.health.verdict().reason == failing
    for other in (
        BackgroundServiceResolved("compaction", "2", "/lake/orders"),
        CompactionCompleted("3", 2, 70, 800, 1.5, "/lake/orders"),
    ):
        run.health(other)
        assert run.health.verdict().reason.endswith(
            "compaction failing for 30 s (StorageUnavailable)"
        )
    run.health(BackgroundServiceResolved("compaction", "1", "/lake/orders"))
    assert "compaction" not in run.health.verdict().reason


@pytest.mark.parametrize(
    "end",
    [
        ServiceCompleted("bucket_resizing", "1 bucket", 1.0, "/lake/orders", "4"),
        ServiceFailed("bucket_resizing", "odd", 1, 60.0, "ValueError", "/lake/orders"),
    ],
)
def test_failing_resize_is_reported_until_it_ends(run: Run, end: Event) -> None:
    run.health(STARTED)
    run.wait(5)
    table = "/lake/orders"
    failed = BackgroundServiceFailed("bucket_resizing", "4", "busy", 1, 7.0, 1.0, "OSError", table)
    run.health(failed)
    run.health(ServiceCompleted("bucket_resizing_wait", "4: still running", 1.0, table, "4"))
    assert run.health.verdict().reason.endswith("; bucket resizing failing for 7 s (OSError)")
    run.health(end)
    assert "failing" not in run.health.verdict().reason


def test_retries_without_a_commit_are_borne_for_a_while(run: Run) -> None:
    for _ in range(6):
        run.health(STARTED)
        run.wait(1)
        run.health(BatchPlanned(0, {0: 5}))
        run.now += 5
        run.health(FAILED)
        run.now += 4
        verdict = run.health.verdict()
        assert (verdict.is_alive, verdict.is_ready) == (True, False)
    run.now += 10
    assert run.health.verdict().reason == ("failing for 64 s (StreamInterrupted): attempt 2 of 50")
    assert not run.health.verdict().is_alive
    run.health(STARTED)
    run.health(BatchWritten(0, "20260501120000500", 5))
    assert run.health.verdict().is_ready


def test_a_run_that_waits_for_a_clustering_lives_but_is_not_ready(run: Run) -> None:
    run.health(STARTED)
    run.health(FAILED)
    for number in range(1, 100):
        run.now += 30
        run.health(ClusteringAwaited("a plan is pending", number, 30.0))
        verdict = run.health.verdict()
        assert (verdict.is_alive, verdict.is_ready) == (True, False)
    assert "a plan is pending" in verdict.reason
    run.health(STARTED)
    assert run.health.verdict().is_ready


def test_run_is_as_ready_after_a_pause_as_before(run: Run) -> None:
    run.health(RunPaused())
    assert run.health.verdict().reason == "paused"
    run.health(RunResumed(1.0))
    assert not run.health.verdict().is_ready, "its stream has not started yet"
    run.health(STARTED)
    run.health(RunPaused())
    assert not run.health.verdict().is_ready
    run.health(RunResumed(1.0))
    assert run.health.verdict().is_ready


def test_a_failure_is_over_when_the_stream_waits_in_peace(run: Run) -> None:
    run.health(STARTED)
    run.health(FAILED)
    run.health(STARTED)
    run.wait(20)
    assert not run.health.verdict().is_ready
    run.wait(20)
    assert run.health.verdict().is_ready


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (RunFailed("DataLoss", "gone, and the password is geheim"), "failed: DataLoss"),
        (RunStopped("caught up", {}, 1, 1, 1.0), "stopped: caught up"),
    ],
)
def test_a_run_that_has_ended_is_neither(
    run: Run, event: RunFailed | RunStopped, reason: str
) -> None:
    run.health(STARTED)
    run.health(event)
    verdict = run.health.verdict()
    assert (verdict.is_alive, verdict.is_ready, verdict.reason) == (False, False, reason)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_every_event_counts_as_progress_or_the_end(kind: type[Any], data: st.DataObject) -> None:
    run = Run()
    run.now += 50
    run.health(data.draw(of_class(kind)))
    run.now += 50
    from_threads = (BackgroundServiceFailed, Alive, WarningLogged, ActionRequested)
    is_no_sign = kind in (RunFailed, RunStopped, *from_threads)
    assert run.health.verdict().is_alive is not is_no_sign


def test_process_of_several_pipelines_is_replaced_only_if_that_helps() -> None:
    runs = {name: Run() for name in ("a", "b", "c")}
    shared = SharedHealth()
    assert shared.verdict().is_alive, "Spark starts"
    for name, one in runs.items():
        shared.add(name, one.health)
        one.health(STARTED)
    verdict = shared.verdict()
    assert (verdict.is_alive, verdict.is_ready) == (True, True)
    assert verdict.reason == "3 of 3 pipelines are ready"

    runs["a"].health(RunFailed("TopicNotFound", "no topic"))
    runs["b"].health(FAILED)
    runs["b"].now += 61
    runs["b"].health(FAILED)
    verdict = shared.verdict()
    assert (verdict.is_alive, verdict.is_ready) == (True, False), "c runs well"
    assert verdict.reason == (
        "1 of 3 pipelines are ready\n"
        "a: failed: TopicNotFound\n"
        "b: failing for 61 s (StreamInterrupted): attempt 2 of 50"
    )

    runs["b"].health(RunStopped("caught up", {}, 0, 0, 0.0))
    assert shared.verdict().is_ready, "c is the only one that has not ended"
    runs["c"].now += 61
    verdict = shared.verdict()
    assert not verdict.is_alive, "c is stuck"
    assert "c: stuck for 61 s" in verdict.reason
    runs["c"].wait(0)
    assert shared.verdict().is_alive
    runs["c"].health(RunStopped("caught up", {}, 0, 0, 0.0))
    assert not shared.verdict().is_alive, "nothing runs"
