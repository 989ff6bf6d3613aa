"""A pipeline prepares buckets in the background, and publishes them between two batches."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakemark.errors import CorruptData
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.model.changes import ChangeKind
from lakemark.operations.prepared_resize import PreparedResize, ResizePreparation
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage.scratch import scratch_folder
from streamer.bucket_resizing import BucketResizing
from streamer.events import (
    CompactionCompleted,
    Event,
    PreparationOutdated,
    ServiceCompleted,
    ServiceFailed,
)
from streamer.pipeline import _policies
from streamer.services import ServicePolicies, TableServices
from tests.rings import SPLIT_ALL, assert_in_buckets, ring_writer
from tests.table_services import new_storage
from tests.tables import Row, commit, contents, make
from tests.unit.streamer.test_resized_buckets import SMALL, config
from tests.waiting import until

RUNNER = LocalRunner(1)


class Pipeline:
    """The services of a table with consistent hashing, one of whose buckets is due."""

    def __init__(self) -> None:
        self.storage, self.events = new_storage(), list[Event]()
        make(self.storage)
        self.writer = ring_writer(self.storage)
        self.batch(1)
        self.batch(2)
        self.now_s = 0.0
        self.resizing = self.reopened()

    def reopened(self) -> BucketResizing:
        return BucketResizing(
            SPLIT_ALL,
            RUNNER,
            self.events.append,
            in_background=True,
            monotonic_s=lambda: self.now_s,
        )

    def batch(self, ts: int, numbers: Iterable[int] = range(20)) -> None:
        commit(self.writer, [Row(f"k{n}", ts, ts * 100 + n) for n in numbers])

    def run(self) -> None:
        self.resizing.run(self.writer)

    def let_prepare(self) -> None:
        """Begin a preparation and wait until its thread has ended."""
        self.run()
        job = self.resizing._preparation._job
        assert job is not None
        until(lambda: not job.is_running)

    @property
    def resizes(self) -> int:
        return len(self.writer.table.store.load().completed(Action.REPLACE_COMMIT))

    @property
    def services(self) -> list[str]:
        return [one.service for one in self.events if isinstance(one, ServiceCompleted)]


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    made = Pipeline()
    yield made
    made.resizing.end(60.0)


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold each preparation until the event is set."""
    released, run = threading.Event(), ResizePreparation.run

    def hold(self: ResizePreparation, *arguments: Any) -> PreparedResize:
        assert released.wait(60)
        return run(self, *arguments)

    monkeypatch.setattr(ResizePreparation, "run", hold)
    yield released
    released.set()


def test_batches_continue_while_a_bucket_is_prepared(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(monkeypatch) as released:
        pipeline.run()
        for ts in (3, 4):
            pipeline.batch(ts, range(10, 30))
            pipeline.run()
        assert pipeline.resizing.is_preparing(pipeline.writer)
        assert pipeline.resizes == 0
        job = pipeline.resizing._preparation._job
        released.set()
        until(lambda: job is not None and not job.is_running)
    before = contents(pipeline.storage)
    pipeline.run()
    assert pipeline.resizes == 1
    assert pipeline.services == ["bucket_preparation", "bucket_resizing"]
    assert contents(pipeline.storage) == before
    assert_in_buckets(pipeline.writer.table)


def test_changes_are_prepared_in_rounds_while_they_become_fewer(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.bucket_resizing._FEW_BYTES", 0)
    pipeline.let_prepare()
    for ts in (3, 4):
        pipeline.batch(ts, range(20_000 if ts == 3 else 2000))
        pipeline.let_prepare()
        assert pipeline.resizes == 0
    pipeline.batch(5, range(4000))  # more than in the round before, so there is no other round
    before = contents(pipeline.storage)
    pipeline.run()
    assert pipeline.resizes == 1
    assert contents(pipeline.storage) == before
    assert_in_buckets(pipeline.writer.table)


def test_compaction_waits_for_a_preparation(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline()
    policies = ServicePolicies(CompactionPolicy(3), resizing=SPLIT_ALL, prepares_resizes=True)
    services = TableServices([pipeline.writer], policies, RUNNER, pipeline.events.append)

    def compactions() -> int:
        return sum(isinstance(one, CompactionCompleted) for one in pipeline.events)

    with held(monkeypatch) as released:
        services.run()
        for ts in (3, 4, 5):
            pipeline.batch(ts)
            services.run()
        assert compactions() == 0
        released.set()
        job = services._resizing._preparation._job
        until(lambda: job is not None and not job.is_running)
    services.run()
    assert pipeline.resizes == 1
    assert not services.end(60.0)
    pipeline.batch(6)
    services.run()
    assert compactions() == 1, "the logs of the new buckets, too"


def test_useless_preparations_end_in_an_inline_resize(pipeline: Pipeline) -> None:
    for _ in range(3):
        pipeline.let_prepare()
        assert ring_writer(pipeline.storage).compact_if_due(CompactionPolicy(1), RUNNER)
        pipeline.writer.table.refresh()
        pipeline.run()
        pipeline.batch(3)
        assert pipeline.resizes == 0
    pipeline.run()
    assert pipeline.resizes == 1
    assert pipeline.services == ["bucket_resizing"]
    outdated = [one for one in pipeline.events if isinstance(one, PreparationOutdated)]
    assert [one.is_inline_next for one in outdated] == [False, False, True]
    assert all("was changed since it was prepared" in one.reason for one in outdated)
    assert_in_buckets(pipeline.writer.table)


def test_a_failed_preparation_is_reported_and_paused(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = CorruptData("a", None, "b", "c")

    def fail(*_: object) -> PreparedResize:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(ResizePreparation, "run", fail)
        pipeline.let_prepare()
    pipeline.run()
    (failed,) = pipeline.events
    assert isinstance(failed, ServiceFailed)
    assert (failed.service, failed.error_type) == ("bucket_preparation", "CorruptData")
    pipeline.run()
    assert not pipeline.resizing.is_preparing(pipeline.writer)
    pipeline.now_s += failed.pause_s
    pipeline.let_prepare()
    pipeline.run()
    assert pipeline.resizes == 1


def test_the_end_of_a_run_discards_a_preparation(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    pipeline.let_prepare()
    assert list(tmp_path.iterdir())
    assert not pipeline.resizing.end(60.0)
    assert not list(tmp_path.iterdir())
    assert pipeline.resizes == 0
    with scratch_folder("other"):
        pipeline.resizing = pipeline.reopened()
        pipeline.let_prepare()
    pipeline.run()
    assert pipeline.resizes == 1


@pytest.mark.parametrize(
    ("sections", "prepares"),
    [
        ({}, True),
        ({"bucket_resizing": {**SMALL, "mode": "inline"}}, False),
        ({"run": {"mode": "once"}}, False),
    ],
)
def test_only_continuous_runs_prepare(
    tmp_path: Path, sections: dict[str, Any], prepares: bool
) -> None:
    pipeline = config(tmp_path, {"index": "consistent_hashing"}, **sections)
    assert _policies(pipeline).prepares_resizes is prepares


def test_a_round_that_finds_a_row_of_a_deleted_key_makes_the_preparation_useless(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.bucket_resizing._FEW_BYTES", 0)
    pipeline.let_prepare()
    commit(pipeline.writer, [Row("k1", kind=ChangeKind.COMMIT_TIME_DELETE)])
    pipeline.batch(3)
    pipeline.let_prepare()
    before = contents(pipeline.storage)
    pipeline.run()
    assert not pipeline.resizing.is_preparing(pipeline.writer)
    assert [type(one) for one in pipeline.events] == [PreparationOutdated]
    assert contents(pipeline.storage) == before
    assert pipeline.resizes == 0
