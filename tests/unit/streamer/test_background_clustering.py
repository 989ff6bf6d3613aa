"""A pipeline prepares clusterings in the background, and publishes them between two batches."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakemark
from lakemark.errors import DiskFull, StorageUnavailable
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.model.commit_metadata import WriteStat
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.prepared_clustering import ClusteringPreparation, PreparedClustering
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage.scratch import scratch_folder
from lakemark.write.prepared_base_file import PreparedBaseFile
from streamer.clustering import TableClustering
from streamer.config.pipeline import PipelineConfig
from streamer.events import (
    CompactionCompleted,
    PreparationOutdated,
    ServiceCompleted,
    ServiceFailed,
)
from streamer.pipeline import clustering_rules
from streamer.service_guard import FIRST_PAUSE_S
from streamer.services import ServicePolicies, TableServices
from tests.unit.streamer.test_clustering import Run, config, opened, pending
from tests.waiting import until

BACKGROUND: Mapping[str, Any] = {"enabled": True, "after_commits": 2, "sort_by": "region"}
UPSERTS: Mapping[str, Any] = {"partition_by": "region", "index": "lookup"}
BATCHES = (("a", "b", "c"), ("d", "e", "f"))


def background(folder: Path, **sections: Any) -> PipelineConfig:
    return config(folder, BACKGROUND, UPSERTS, **sections)


class Pipeline(Run):
    """A run that has written two batches to each of three partitions.

    Attributes:
        sent: the number of the batch that wrote each key last.
    """

    def __init__(self, pipeline: PipelineConfig) -> None:
        super().__init__(pipeline)
        for keys in BATCHES:
            self.write(*keys)

    def let_prepare(self) -> None:
        """Begin a preparation and wait until its thread has ended."""
        self.cluster()
        self.await_thread()

    def await_thread(self) -> None:
        job = self.clustering._preparation._job
        assert job is not None
        until(lambda: not job.is_running)

    @property
    def clusterings(self) -> int:
        return len(self.rows.table.store.load().completed(Action.REPLACE_COMMIT))

    @property
    def services(self) -> list[str]:
        return [one.service for one in self.events if isinstance(one, ServiceCompleted)]

    @property
    def outdated(self) -> list[bool]:
        """Whether each outdated preparation was followed by an inline clustering."""
        found = [one for one in self.events if isinstance(one, PreparationOutdated)]
        return [one.is_inline_next for one in found]


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    run = Pipeline(background(tmp_path))
    yield run
    run.clustering.end(60.0)


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold each preparation until the event is set."""
    released, run = threading.Event(), ClusteringPreparation.run

    def hold(self: ClusteringPreparation, *arguments: Any) -> PreparedClustering:
        assert released.wait(60)
        return run(self, *arguments)

    monkeypatch.setattr(ClusteringPreparation, "run", hold)
    yield released
    released.set()


def rows_of(folder: Path) -> list[tuple[str, str]]:
    read = lakemark.open(folder / "rows").scan(columns=["id", "region"]).to_table().to_pylist()
    return sorted((row["id"], row["region"]) for row in read)


def expected(keys: str) -> list[tuple[str, str]]:
    return [(key, f"r{ord(key) % 3}") for key in sorted(keys)]


def test_batches_are_committed_while_a_clustering_is_prepared(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(monkeypatch) as released:
        pipeline.cluster()
        for key in "ghijkl":
            pipeline.write(key)
            assert pipeline.cluster() == []
            assert not pipeline.table.timeline.pending()
        assert pipeline.clustering.is_preparing
        assert rows_of(tmp_path) == expected("abcdefghijkl")
        released.set()
        pipeline.await_thread()
    pipeline.cluster()
    assert pipeline.clusterings == 1
    assert pipeline.services == ["clustering_preparation", "clustering"]
    assert "6 file groups rewritten into 3 files" in pipeline.events[-1].summary  # type: ignore[union-attr]
    assert rows_of(tmp_path) == expected("abcdefghijkl")
    assert metadata_differences(opened(tmp_path)) == []
    assert not pipeline.outdated


def test_new_keys_do_not_fill_the_files_that_are_prepared(tmp_path: Path) -> None:
    """They would change each group, so that the preparation would be useless."""
    pipeline = Pipeline(background(tmp_path, base_files={}))
    files = len(pipeline.table.view().latest_slices())
    pipeline.let_prepare()
    pipeline.write("g", "h", "i")
    assert len(pipeline.table.view().latest_slices()) == files + 3
    pipeline.cluster()
    assert pipeline.clusterings == 1
    pipeline.write("j", "k", "l")
    assert len(pipeline.table.view().latest_slices()) == files + 3, "small files are filled again"
    assert rows_of(tmp_path) == expected("abcdefghijkl")


def test_a_group_with_an_update_is_left_out(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.let_prepare()
    pipeline.write("a", "g")
    changed = pipeline.table.view().latest_slices(partition_of("a"))
    pipeline.cluster()
    assert pipeline.clusterings == 1
    assert set(changed) <= set(pipeline.table.view().latest_slices(partition_of("a")))
    assert pipeline.outdated == [False]
    (event,) = (one for one in pipeline.events if isinstance(one, PreparationOutdated))
    assert event.reason.startswith("2 file groups left out")
    assert rows_of(tmp_path) == expected("abcdefg")


def partition_of(key: str) -> str:
    return f"r{ord(key) % 3}"


def test_the_next_clustering_is_inline_if_nothing_was_left(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.let_prepare()
    pipeline.write("a", "b", "c")
    assert pipeline.cluster() == []
    assert (pipeline.clusterings, pipeline.outdated) == (0, [True])
    assert len(pipeline.cluster()) == 1
    assert pipeline.services == ["clustering"]
    assert rows_of(tmp_path) == expected("abcdef")
    pipeline.write("g")
    pipeline.write("h")
    pipeline.let_prepare()
    assert pipeline.clusterings == 1, "the next one is prepared again"


def test_the_next_clustering_is_inline_if_groups_were_left_out_three_times(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    for number in range(3):
        pipeline.let_prepare()
        pipeline.write("a", f"x{number}")
        pipeline.cluster()
        pipeline.write(f"y{number}")
        pipeline.write(f"z{number}")
    assert pipeline.outdated == [False, False, True]
    assert pipeline.clusterings == 3
    before = pipeline.services.count("clustering_preparation")
    assert len(pipeline.cluster()) == 1, "inline, with all file groups"
    assert pipeline.services.count("clustering_preparation") == before
    slices = pipeline.table.view().latest_slices(partition_of("a"))
    assert len(slices) == 1
    assert len(rows_of(tmp_path)) == 15


def test_compaction_waits_for_a_preparation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(config(tmp_path, BACKGROUND, {**UPSERTS, "type": "merge_on_read"}))
    pipeline.write("a")
    policies = ServicePolicies(CompactionPolicy(3))
    services = TableServices(
        [pipeline.rows],
        policies,
        LocalRunner(1),
        pipeline.events.append,
        clusterings=[pipeline.clustering],
    )

    def compactions() -> int:
        return sum(isinstance(one, CompactionCompleted) for one in pipeline.events)

    with held(monkeypatch) as released:
        pipeline.clustering.run()
        services.run()
        assert compactions() == 0
        released.set()
        pipeline.await_thread()
    services.run()
    assert pipeline.clusterings == 1
    assert not services.end(60.0)
    assert rows_of(tmp_path) == expected("abcdef")


def test_a_failed_preparation_is_reported_and_paused(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "the disk is full"

    def fail(*_: object) -> PreparedClustering:
        raise DiskFull(message)

    with monkeypatch.context() as patched:
        patched.setattr(ClusteringPreparation, "run", fail)
        pipeline.let_prepare()
    pipeline.cluster()
    (failed,) = pipeline.failures
    assert (failed.service, failed.error) == ("clustering_preparation", message)
    pipeline.cluster()
    assert not pipeline.clustering.is_preparing
    pipeline.now_s += failed.pause_s
    pipeline.let_prepare()
    pipeline.cluster()
    assert pipeline.clusterings == 1


def test_a_failed_publication_is_undone_and_prepared_again_later(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its plan would prevent the next batches."""
    pipeline.let_prepare()

    def fail(*_: object) -> None:
        message = "the store is away"
        raise StorageUnavailable(message)

    with monkeypatch.context() as patched:
        patched.setattr(PreparedBaseFile, "publish", fail)
        pipeline.cluster()
    assert [one.service for one in pipeline.failures] == ["clustering"]
    assert pending(tmp_path) == []
    pipeline.write("a", "g")
    pipeline.now_s += FIRST_PAUSE_S
    pipeline.let_prepare()
    pipeline.cluster()
    assert pipeline.clusterings == 1
    assert rows_of(tmp_path) == expected("abcdefg")


@pytest.mark.parametrize("is_late", [False, True])
def test_the_next_clustering_is_inline_if_the_prepared_files_are_lost(
    is_late: bool, pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs may clean up temporary folders, also while the files are copied."""
    pipeline.let_prepare()
    job = pipeline.clustering._preparation._job
    assert job is not None
    assert job._folder is not None
    lost, copy = job._folder, PreparedBaseFile.publish

    def lose(self: PreparedBaseFile, *arguments: Any) -> WriteStat:
        shutil.rmtree(lost, ignore_errors=True)
        return copy(self, *arguments)

    with monkeypatch.context() as patched:
        if is_late:
            patched.setattr(PreparedBaseFile, "publish", lose)
        else:
            shutil.rmtree(lost)
        assert pipeline.cluster() == []
    assert (pipeline.clusterings, pipeline.outdated) == (0, [True])
    (event,) = (one for one in pipeline.events if isinstance(one, PreparationOutdated))
    # The removal of a plan whose execution has begun is a rollback.
    reason = "a commit was rolled back" if is_late else "was removed or changed by another program"
    assert reason in event.reason
    assert not pipeline.failures
    assert pending(tmp_path) == []
    pipeline.write("a", "g")
    assert len(pipeline.cluster()) == 1
    assert rows_of(tmp_path) == expected("abcdefg")


def test_a_killed_publication_is_removed_by_the_next_start(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.let_prepare()
    job = pipeline.clustering._preparation._job
    assert job is not None
    prepared = job.work._prepared  # type: ignore[attr-defined]
    begun = prepared.request(pipeline.table)
    begun.rewrite(LocalRunner(1))
    begun.stop_heartbeat()
    again = Run(background(tmp_path))
    (summary,) = again.cluster()
    assert summary.endswith(": removed, because the process that executed it has died")
    assert pending(tmp_path) == []
    again.write("a", "g")
    assert rows_of(tmp_path) == expected("abcdefg")
    assert metadata_differences(opened(tmp_path)) == []


def test_a_requested_clustering_replaces_a_preparation(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(monkeypatch) as released:
        pipeline.cluster()
        assert pipeline.clustering.run_now()
        assert not pipeline.clustering.is_preparing
        released.set()
    assert (pipeline.clusterings, pipeline.outdated) == (1, [])
    pipeline.write("g")
    pipeline.cluster()
    assert rows_of(tmp_path) == expected("abcdefg")


def test_the_end_of_a_run_discards_a_preparation(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    pipeline.let_prepare()
    assert list(folder.iterdir())
    assert not pipeline.clustering.end(60.0)
    assert not list(folder.iterdir())
    assert pipeline.clusterings == 0
    with scratch_folder("other"):
        rules = clustering_rules(background(tmp_path))
        pipeline.clustering = TableClustering(
            pipeline.rows, rules, LocalRunner(1), pipeline.events.append
        )
        pipeline.let_prepare()
    pipeline.cluster()
    assert pipeline.clusterings == 1
    assert not [one for one in pipeline.events if isinstance(one, ServiceFailed)]


@pytest.mark.parametrize(
    ("sections", "prepares"),
    [
        ({}, True),
        ({"clustering": {**BACKGROUND, "mode": "inline"}}, False),
        ({"run": {"mode": "once"}}, False),
    ],
)
def test_only_continuous_runs_prepare(
    tmp_path: Path, sections: dict[str, Any], prepares: bool
) -> None:
    clustering = sections.pop("clustering", BACKGROUND)
    found = clustering_rules(config(tmp_path, clustering, UPSERTS, **sections))
    assert found.in_background is prepares
