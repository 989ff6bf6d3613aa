"""Buckets are split, and files are clustered, while batches continue; no row is lost or doubled."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import lakemark
from lakemark.errors import StorageUnavailable
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import REPLACING, Action
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.operations.resize_buckets import request_resize
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.resize_plan import ResizePolicy
from lakemark.storage import Storage, StorageLocation
from lakemark.transaction.multi_writer import MultiWriter
from streamer import pipeline
from streamer.background_compaction import BackgroundCompaction
from streamer.background_resizing import BackgroundResizing
from streamer.background_services import (
    BackgroundPolicy,
    BackgroundService,
    BackgroundServices,
    ServiceGivenUp,
)
from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.events import (
    BackgroundServiceFailed,
    BackgroundServiceResolved,
    BackgroundServiceStarted,
    BatchWritten,
    ClusteringAwaited,
    CompactionCompleted,
    Event,
    Retrying,
    ServiceCompleted,
    ServiceFailed,
)
from streamer.loop import StreamLoop
from streamer.services import ServicePolicies, TableServices
from tests.rings import SPLIT_ALL, assert_in_buckets, ring_writer
from tests.table_services import new_storage
from tests.tables import Row, commit, contents, make
from tests.unit.streamer.test_async_compaction import LONG_S, HeldRunner
from tests.waiting import until
from tests.writers import SHARING

POLICY = BackgroundPolicy(max_wait_s=0.2, backoff_s=0.01)

#: Splits one bucket at a time.
ONE_BUCKET = replace(SPLIT_ALL, max_bytes=1)
REGIONS = ("north", "south")


def rows_of(region: str, version: int, numbers: range = range(20)) -> list[Row]:
    return [Row(f"{region}-{n}", version, version * 100 + n, region) for n in numbers]


class Scenario:
    """A table with consistent hashing, whose buckets are split in the background.

    Attributes:
        rows: the rows that were written, by key.
    """

    def __init__(
        self,
        storage: Storage,
        policy: BackgroundPolicy = POLICY,
        resizing: ResizePolicy = ONE_BUCKET,
        multi_writer: MultiWriter | None = None,
    ) -> None:
        self.storage, self.to = storage, ring_writer(storage, multi_writer=multi_writer)
        self.runner, self.events = HeldRunner(), list[Event]()
        self.rows: dict[str, tuple[int, int]] = {}
        self.use([BackgroundResizing(self.to, resizing)], policy)

    def use(self, services: Sequence[BackgroundService], policy: BackgroundPolicy = POLICY) -> None:
        self.background = BackgroundServices(
            services, policy, lambda: self.runner, self.events.append
        )
        self.services = TableServices(
            [self.to],
            ServicePolicies(CompactionPolicy(1000)),
            LocalRunner(1),
            self.events.append,
            self.background,
        )

    def batch(self, rows: Sequence[Row]) -> None:
        """Write a batch and run the services after it, with the mutex."""
        with self.services.mutex:
            commit(self.to, rows)
            self.rows |= {row.id: (row.ts, row.v) for row in rows}
            self.services.run()
            self.services.wait(threading.Event())

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def splits(self) -> list[str]:
        """The instants of the completed splits."""
        done = self.of(ServiceCompleted)
        return [one.instant for one in done if one.service == "bucket_resizing"]

    def pending(self) -> Instant:
        (planned,) = self.to.table.timeline.pending(*REPLACING)
        return planned

    def partition(self) -> str:
        """Return the partition of the bucket that is being split."""
        self.to.table.view()
        return next(iter(self.to.table.view().clusterings)).partition_path

    def finish(self) -> None:
        """Let the running plan end."""
        self.runner.may_go.set()
        until(lambda: self.background.instant == "")

    def check(self) -> None:
        """Check that each row is stored once, in its bucket, and that the view is current."""
        assert contents(self.storage) == self.rows
        fresh = ring_writer(self.storage).table
        assert_in_buckets(fresh)
        assert metadata_differences(fresh) == []
        carried = self.to.table.snapshot.loaded_view
        assert carried is not None
        assert carried.latest_slices() == fresh.view().latest_slices()


@contextmanager
def started(
    policy: BackgroundPolicy = POLICY, multi_writer: MultiWriter | None = None, **others: Any
) -> Iterator[Scenario]:
    storage = new_storage()
    make(storage, **others)
    scenario = Scenario(storage, policy, multi_writer=multi_writer)
    try:
        yield scenario
    finally:
        scenario.runner.may_go.set()
        assert not scenario.services.end(LONG_S)


def write_both(scenario: Scenario) -> None:
    """Write rows of both partitions, after which a bucket is split."""
    scenario.batch([row for region in REGIONS for row in rows_of(region, 1)])
    until(lambda: bool(scenario.of(BackgroundServiceStarted)))


def test_batches_continue_while_a_bucket_is_split() -> None:
    with started() as scenario:
        write_both(scenario)
        (other,) = {*REGIONS} - {scenario.partition()}
        for version in (2, 3, 4):
            scenario.batch(rows_of(other, version))
        assert scenario.services.in_progress == "bucket resizing"
        assert scenario.splits == []
        planned = scenario.pending()
        assert contents(scenario.storage) == scenario.rows
        scenario.finish()
        assert scenario.splits == [planned.requested_at]
        (event,) = scenario.of(BackgroundServiceStarted)
        assert (event.service, event.file_groups) == ("bucket_resizing", 1)
        assert event.num_bytes > 0
        scenario.check()
        scenario.batch([row for region in REGIONS for row in rows_of(region, 5)])
        scenario.finish()
        assert len(scenario.splits) == 2
        assert not scenario.of(BackgroundServiceFailed)
        scenario.check()


def test_batches_write_to_the_bucket_that_is_split() -> None:
    with started() as scenario:
        write_both(scenario)
        region = scenario.partition()
        for version in (2, 3, 4):
            scenario.batch(rows_of(region, version, range(version, 30)))
            with scenario.services.mutex:
                scenario.to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
        assert scenario.splits == []
        assert contents(scenario.storage) == scenario.rows
        scenario.finish()
        assert len(scenario.splits) == 1
        assert not scenario.of(BackgroundServiceFailed)
        scenario.batch(rows_of(region, 5))
        scenario.finish()
        scenario.check()


def test_failed_split_is_reported_and_retried() -> None:
    with started() as scenario:
        scenario.runner.failures = [StorageUnavailable("busy"), ValueError("odd")]
        write_both(scenario)
        planned = scenario.pending()
        scenario.finish()
        failed = [(one.failures, one.error_type) for one in scenario.of(BackgroundServiceFailed)]
        assert failed == [(1, "ValueError"), (2, "StorageUnavailable")]
        assert scenario.splits == [planned.requested_at], "the same plan"
        scenario.check()


def test_split_that_fails_too_long_ends_the_run_and_keeps_its_plan() -> None:
    policy = replace(POLICY, give_up_after_s=0.05, backoff_s=0.02, max_backoff_s=0.02)
    with started(policy) as scenario:
        scenario.runner.failures = [StorageUnavailable("gone")] * 10_000
        write_both(scenario)
        planned = scenario.pending()
        scenario.finish()
        with pytest.raises(ServiceGivenUp, match=rf"bucket_resizing {planned.requested_at}.*gone"):
            scenario.services.check()
    again = ring_writer(scenario.storage)
    again.recover()
    ((done, _),) = again.resize_if_due(None, LocalRunner(1))
    assert done.requested_at == planned.requested_at
    assert contents(scenario.storage) == scenario.rows


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_stopped_split_is_executed_by_the_next_run(is_rewritten: bool) -> None:
    with started() as scenario:
        write_both(scenario)
        planned = scenario.pending()
        if is_rewritten:
            with scenario.services.mutex:  # the thread cannot publish
                scenario.runner.may_go.set()
                until(lambda: str(scenario.background._job).find("PUBLISH") >= 0)
                assert scenario.services.end(0.0)
        else:
            assert scenario.services.end(0.01), "it is still at work"
    assert scenario.splits == []
    following = Scenario(scenario.storage)
    following.rows = scenario.rows
    following.to.recover()
    following.runner.may_go.set()
    with following.services.mutex:
        following.services.run()
    until(lambda: following.splits == [planned.requested_at])
    assert not following.services.end(LONG_S)
    following.check()


def test_split_of_another_writer_is_left_to_it() -> None:
    with started(multi_writer=SHARING) as scenario:
        scenario.runner.may_go.set()
        scenario.use([BackgroundResizing(scenario.to, None)])
        scenario.batch([row for region in REGIONS for row in rows_of(region, 1)])
        other = ring_writer(scenario.storage, multi_writer=SHARING)
        split = request_resize(other.table, ONE_BUCKET)
        assert split is not None
        scenario.to.table.refresh()
        (region,) = {*REGIONS} - {scenario.partition()}
        scenario.batch(rows_of(region, 2))
        until(lambda: scenario.background.instant == "")
        assert scenario.splits == []
        assert not scenario.of(BackgroundServiceStarted)
        split.publish(split.rewrite(LocalRunner(1)))
        scenario.batch(rows_of(region, 3))
        (resolved,) = scenario.of(BackgroundServiceResolved)
        assert resolved.instant == split.execution.instant.requested_at
        scenario.check()


def test_services_take_turns() -> None:
    with started() as scenario:
        scenario.runner.may_go.set()
        compaction = BackgroundCompaction(scenario.to, CompactionPolicy(1))
        scenario.use([compaction, BackgroundResizing(scenario.to, ONE_BUCKET)])
        kinds = []
        for version in range(1, 5):
            scenario.batch([row for region in REGIONS for row in rows_of(region, version)])
            until(lambda: scenario.background.instant == "")
            kinds = [one.service for one in scenario.of(BackgroundServiceStarted)]
        assert kinds == ["bucket_resizing", "compaction"] * 2, "at first there are no logs"
        assert len(scenario.of(CompactionCompleted)) == len(scenario.splits) == 2
        scenario.check()


COLUMNS = {"id": "string", "n": "bigint", "region": "string"}


def settings_of(folder: Path, table: dict[str, Any], **sections: Any) -> PipelineConfig:
    files = {"kind": "files", "path": str(folder / "in"), "format": "json"}
    retry = {"backoff_s": 0.001, "max_backoff_s": 0.002, "max_attempts": 2}
    return validated(
        {
            "source": {**files, "poll_interval_s": 0.01, "max_files_per_batch": 1},
            "decode": {"schema": COLUMNS},
            "table": {
                "path": str(folder / "rows"),
                "record_key": "id",
                "ordering": "n",
                "partition_by": "region",
                **table,
            },
            "run": {"trigger_interval_s": 0, "retry": retry},
            "base_files": {"small_file_bytes": 0},
            **sections,
        }
    )


@dataclass
class Run:
    """A continuous run of a pipeline that reads files, in a thread of its own.

    Attributes:
        settings: the pipeline.
        folder: the folder of the files and of the table.
        events: the events of the run.
        rows: the rows that were put into files, by key.
    """

    settings: PipelineConfig
    folder: Path
    events: list[Event] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    num_files: int = 0
    loops: list[StreamLoop] = field(default_factory=list)

    def put(self, **values: int) -> None:
        """Write a file of records, which becomes a batch."""
        self.num_files += 1
        self.rows |= values
        lines = [json.dumps({"id": key, "n": n, "region": "x"}) for key, n in values.items()]
        (self.folder / "in").mkdir(exist_ok=True)
        part = self.folder / f"{self.num_files:04}.part"
        part.write_text("\n".join(lines) + "\n")
        part.rename(self.folder / "in" / f"{self.num_files:04}.json")

    def write(self, **values: int) -> None:
        """Write a file, and wait until its batch is committed."""
        self.put(**values)
        until(lambda: len(self.of(BatchWritten)) == self.num_files)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in tuple(self.events) if isinstance(event, kind)]

    def done(self, service: str) -> list[ServiceCompleted]:
        return [one for one in self.of(ServiceCompleted) if one.service == service]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the pipeline until the block ends.

        Raises:
            BaseException: the run failed.
        """
        failures: list[BaseException] = []

        def run() -> None:
            try:
                with pipeline.build(self.settings, self.events.append) as built:
                    self.loops.append(built.loop)
                    built.loop.run()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            until(lambda: bool(self.loops or failures))
            for loop in self.loops:
                loop.stop()
            thread.join(LONG_S)
        assert failures == []

    def check(self) -> None:
        found = lakemark.open(self.folder / "rows").scan(columns=["id", "n"]).to_table()
        pairs = sorted((one["id"], one["n"]) for one in found.to_pylist())
        assert pairs == sorted(self.rows.items())
        assert metadata_differences(open_table(StorageLocation(str(self.folder / "rows")))) == []


def run_of(folder: Path, table: dict[str, Any], **sections: Any) -> Run:
    (folder / "in").mkdir()
    return Run(settings_of(folder, table, **sections), folder)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldRunner]:
    """The runner of all plans in the background, which begins only when a test permits it."""
    runner = HeldRunner()
    monkeypatch.setattr(pipeline, "_background_runner", lambda *_: runner)
    yield runner
    runner.may_go.set()


def test_pipeline_splits_buckets_while_batches_are_written(tmp_path: Path) -> None:
    # The logs of some batches make a bucket large enough.
    resizing = {"split_above_bytes": 40_000, "merge_below_bytes": 0}
    table = {"index": "consistent_hashing", "buckets": 1}
    run = run_of(tmp_path, table, bucket_resizing=resizing, compaction={"enabled": False})
    with run.running():
        number = 0
        while len(run.done("bucket_resizing")) < 2:
            run.write(**{f"k{n}": number for n in range(number, number + 30)})
            number += 1
    assert not run.of(Retrying)
    run.check()
    table_now = open_table(StorageLocation(str(tmp_path / "rows")))
    assert len(table_now.timeline.completed(Action.REPLACE_COMMIT)) > 1


CLUSTERING = {"enabled": True, "mode": "async", "after_commits": 2}

#: The table has no buckets, but a batch may update rows.
MOVES = {"partition_change": "move"}


def clustered(folder: Path, max_wait_s: float) -> Run:
    return run_of(folder, MOVES, clustering=CLUSTERING, compaction={"max_wait_s": max_wait_s})


def test_batches_continue_while_files_are_clustered(tmp_path: Path, held: HeldRunner) -> None:
    run = clustered(tmp_path, LONG_S)
    with run.running():
        run.write(a=1, b=1)
        run.write(c=1)
        until(lambda: bool(run.of(BackgroundServiceStarted)))
        for number in range(4):
            run.write(**{f"new{number}": number})
        assert run.done("clustering") == []
        held.may_go.set()
        until(lambda: bool(run.done("clustering")))
        run.write(a=2, c=2)
    assert not run.of(ClusteringAwaited) and not run.of(Retrying)
    run.check()


def test_batch_waits_for_the_clustering_of_its_rows(tmp_path: Path, held: HeldRunner) -> None:
    run = clustered(tmp_path, LONG_S)
    with run.running():
        run.write(a=1, b=1)
        run.write(c=1)
        until(lambda: bool(run.of(BackgroundServiceStarted)))
        run.put(a=2, c=2)
        until(lambda: bool(run.of(ClusteringAwaited)))
        assert "which this run executes" in run.of(ClusteringAwaited)[0].reason
        assert len(run.of(BatchWritten)) == 2
        held.may_go.set()
        until(lambda: len(run.of(BatchWritten)) == 3)
    assert len(run.done("clustering")) == 1
    assert not run.of(Retrying) and not run.of(ServiceFailed)
    run.check()


def test_clustering_makes_way_for_a_batch_and_is_made_again_later(
    tmp_path: Path, held: HeldRunner
) -> None:
    run = clustered(tmp_path, 0.01)
    with run.running():
        run.write(a=1, b=1)
        run.write(c=1)
        until(lambda: bool(run.of(BackgroundServiceStarted)))
        run.write(a=2, c=2)  # nobody permits the clustering to end
        assert run.done("clustering") == []
        (failed,) = run.of(ServiceFailed)
        assert (failed.service, failed.error_type) == ("clustering", "YieldedToBatch")
        held.may_go.set()
        run.write(d=1)
    assert not run.of(Retrying)
    run.check()
    left = open_table(StorageLocation(str(tmp_path / "rows")))
    assert not left.timeline.pending()
    names = {str(path.name) for path in (tmp_path / "rows" / "region=x").glob("*.parquet")}
    planned = run.of(BackgroundServiceStarted)[0].instant
    assert not [name for name in names if planned in name], "its late files are deleted"


@pytest.mark.parametrize("version", WRITTEN)
@pytest.mark.parametrize("mode", ["continuous", "once"])
@pytest.mark.parametrize("given", [None, "inline", "async"])
def test_buckets_are_resized_in_the_background_by_default(
    tmp_path: Path, version: FormatVersion, mode: str, given: str | None
) -> None:
    resizing = {} if given is None else {"mode": given}
    table = {"index": "consistent_hashing"}
    config = settings_of(tmp_path, table, bucket_resizing=resizing, run={"mode": mode})
    resizing_of = config.bucket_resizing
    is_async = resizing_of.is_async(config.run, version, has_cdc=False)
    wanted = (given or ("async" if mode == "continuous" else "inline")) == "async"
    assert is_async is (wanted and version is not FormatVersion.V6)
    assert not resizing_of.is_async(config.run, version, has_cdc=True)


def test_modes_without_effect_are_refused(tmp_path: Path) -> None:
    index, resizing = {"index": "consistent_hashing"}, {"mode": "async"}
    for other in ({"version": 6}, {"cdc": "op_key_only"}):
        with pytest.raises(ConfigError, match=r"bucket_resizing\.mode: async has no effect"):
            settings_of(tmp_path, {**index, **other}, bucket_resizing=resizing)
    with pytest.raises(ConfigError, match=r"clustering\.mode: has no effect"):
        settings_of(tmp_path, MOVES, clustering={"mode": "async"})
