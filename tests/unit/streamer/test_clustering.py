"""A pipeline clusters its table between two batches; clusterings of others never end it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark.config.keys import EXECUTED_AT_ONCE
from lakemark.errors import InvalidConfig, StorageUnavailable, Unsupported
from lakemark.execution.runner import LocalRunner, Result, Task
from lakemark.model.action import Action, State
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.instant import Instant
from lakemark.model.row_order import Curve, RowOrder
from lakemark.operations.cluster import plan_clusters, request_clustering
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.storage import StorageLocation
from lakemark.timeline.content import encode_clustering_plan
from lakemark.transaction.rollback import roll_back_abandoned
from streamer.clustering import TableClustering
from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.events import Event, ServiceCompleted, ServiceFailed
from streamer.pipeline import clustering_rules, open_sink, table_clusterings
from streamer.service_guard import FIRST_PAUSE_S
from streamer.services import ServicePolicies, TableServices
from streamer.sources.kafka import KafkaSource
from tests.json_stream import InThisProcess, kafka_batch
from tests.unit.streamer.test_opened_sink import COLUMNS, Topic

#: Records are appended, so that the table has no buckets.
INSERTS: Mapping[str, Any] = {"operation": "insert"}
EVERY_SECOND: Mapping[str, Any] = {
    "enabled": True,
    "mode": "inline",
    "after_commits": 2,
    "sort_by": "region",
}
RUNNER = LocalRunner(1)

#: The age of a plan that no writer begins any more.
OLD_S = 300.0


def config(
    folder: Path,
    clustering: Mapping[str, Any] = EVERY_SECOND,
    table: Mapping[str, Any] = INSERTS,
    **sections: Any,
) -> PipelineConfig:
    return validated(
        {
            "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
            "decode": COLUMNS,
            "table": {"path": str(folder / "rows"), "record_key": "id", **table},
            "clustering": clustering,
            "base_files": {"small_file_bytes": 0},  # each batch writes a file
            **sections,
        }
    )


class Run:
    """A run of a pipeline, without its stream; it writes batches and clusters the table.

    Attributes:
        events: the events of the clustering.
        now_s: the time of the clustering's clock.
    """

    def __init__(self, pipeline: PipelineConfig, runner: LocalRunner = RUNNER) -> None:
        self.events, self.now_s = list[Event](), 0.0
        self._sink, writers = open_sink(pipeline, cast(KafkaSource, Topic()))
        self.rows: TableWriter = writers[0]
        self.clustering = TableClustering(
            self.rows, clustering_rules(pipeline), runner, self.events.append, lambda: self.now_s
        )
        self._sink.recover()
        found = self._sink.checkpoint()
        self._offset = found.offsets_by_partition[0] if found else 0

    def write(self, *keys: str) -> None:
        rows = [{"id": key, "region": f"r{ord(key[-1]) % 3}"} for key in keys]
        self._sink.write(kafka_batch("orders", self._offset, rows), InThisProcess())
        self._offset += len(rows)

    def cluster(self, refused: str = "") -> list[str]:
        """Run the clustering; return the summaries of what it did."""
        before = len(self.events)
        self.clustering.run(refused)
        new = self.events[before:]
        return [event.summary for event in new if isinstance(event, ServiceCompleted)]

    @property
    def failures(self) -> list[ServiceFailed]:
        return [event for event in self.events if isinstance(event, ServiceFailed)]

    @property
    def table(self) -> OpenTable:
        return self.rows.table


def opened(folder: Path) -> OpenTable:
    return open_table(StorageLocation(str(folder / "rows")))


def keys_of(folder: Path) -> list[str]:
    return sorted(lakemark.open(folder / "rows").scan(columns=["id"]).to_table()["id"].to_pylist())


def pending(folder: Path) -> list[str]:
    return [instant.requested_at for instant in opened(folder).timeline.pending()]


def started(folder: Path, clustering: Mapping[str, Any] = EVERY_SECOND) -> Run:
    """Start a run that has written two files."""
    run = Run(config(folder, clustering))
    run.write("a", "b", "c")
    run.write("d", "e")
    return run


def plan_of_others(table: OpenTable, plan: ClusteringPlan, age_s: float) -> Instant:
    """Write a plan to the timeline, as Apache Hudi did some seconds ago."""
    store = table.store
    name = store.clock.format(datetime.now(UTC) - timedelta(seconds=age_s))
    requested = Instant(name, store.version.clustering_action, State.REQUESTED)
    store.create(requested, encode_clustering_plan(plan, table.location.url))
    return requested


def other_plan(folder: Path, age_s: float = OLD_S, **changes: Any) -> Instant:
    table = opened(folder)
    plan = plan_clusters(table, ClusteringPolicy())
    assert plan is not None
    return plan_of_others(table, replace(plan, **changes), age_s)


def test_pipeline_clusters_after_so_many_commits(tmp_path: Path) -> None:
    run = Run(config(tmp_path))
    run.write("a", "b", "c")
    assert run.cluster() == [], "one commit"
    run.write("d", "e")
    (summary,) = run.cluster()
    assert summary.endswith("2 file groups rewritten into 1 file")
    assert run.cluster() == []
    run.write("f")
    assert run.cluster() == [], "one commit since"
    run.write("g")
    assert len(run.cluster()) == 1
    assert keys_of(tmp_path) == list("abcdefg")
    (file,) = (
        path
        for path in (tmp_path / "rows").glob("*.parquet")
        if pq.read_metadata(path).num_rows == 7
    )
    regions = pq.read_table(file, columns=["region"])["region"].to_pylist()
    assert regions == sorted(regions)
    assert metadata_differences(opened(tmp_path)) == []
    again = Run(config(tmp_path))
    again.write("h")
    assert keys_of(tmp_path) == list("abcdefgh"), "the checkpoint was kept"


def test_pipeline_does_not_cluster_by_default(tmp_path: Path) -> None:
    run = started(tmp_path, {})
    assert run.cluster() == []
    assert not opened(tmp_path).timeline.completed(Action.REPLACE_COMMIT)


def test_only_chosen_partitions_within_the_limits_are_clustered(tmp_path: Path) -> None:
    clustering = {**EVERY_SECOND, "partitions": ["r1", "r2"], "max_io_bytes": 1}
    table = {**INSERTS, "partition_by": "region"}
    run = Run(config(tmp_path, clustering, table))
    run.write("a", "b", "c")
    run.write("d", "e", "f")
    assert [one.partition("rewritten")[0][-14:] for one in run.cluster()] == ["2 file groups "]
    (done,) = opened(tmp_path).timeline.completed(Action.REPLACE_COMMIT)
    replaced = opened(tmp_path).store.read_commit(done).replaced_file_ids
    assert [*replaced] == ["r1"], "the first partition, because a group reads and writes more"
    assert keys_of(tmp_path) == list("abcdef")


@pytest.mark.parametrize("policy", ["execute", "keep", "remove"])
@pytest.mark.parametrize("is_full", [False, True])
def test_clustering_of_a_killed_pipeline_is_removed_and_made_again_later(
    tmp_path: Path, policy: str, is_full: bool
) -> None:
    killed, runner = started(tmp_path), FullDisk()
    clustering = request_clustering(killed.table, ClusteringPolicy())
    assert clustering is not None
    clustering.rewrite(RUNNER)
    clustering.stop_heartbeat()
    runner.is_full = is_full
    run = Run(config(tmp_path, {**EVERY_SECOND, "pending": policy}), runner)
    (summary,) = run.cluster()
    assert summary.endswith(": removed, because the process that executed it has died")
    assert pending(tmp_path) == []
    run.write("f")
    assert keys_of(tmp_path) == list("abcdef")
    assert not run.failures
    runner.is_full = False
    run.now_s += FIRST_PAUSE_S
    assert len(run.cluster()) == 1
    assert keys_of(tmp_path) == list("abcdef")


@pytest.mark.parametrize("policy", ["execute", "keep", "remove"])
@pytest.mark.parametrize("is_marked", [False, True])
def test_clustering_that_apache_hudi_executes_is_never_touched(
    tmp_path: Path, policy: str, is_marked: bool
) -> None:
    """Apache Hudi emits no heartbeat for a clustering."""
    run = started(tmp_path, {**EVERY_SECOND, "pending": policy})
    params = {EXECUTED_AT_ONCE: "true"} if is_marked else {}
    planned = other_plan(tmp_path, strategy_params=params)
    run.table.store.create(planned.inflight(), b"")
    source = next((tmp_path / "rows").glob("*.parquet"))
    written = source.with_name(f"{uuid4()}-0_0-1-2_{planned.requested_at}.parquet")
    shutil.copy(source, written)
    run.table.refresh()
    assert run.cluster(refused=planned.requested_at) == []
    assert not run.failures
    assert written.exists()
    assert opened(tmp_path).timeline.pending() == (planned.inflight(),)


@pytest.mark.parametrize("policy", ["execute", "remove"])
def test_plan_that_another_writer_has_just_made_is_left_to_it(tmp_path: Path, policy: str) -> None:
    run = started(tmp_path, {"pending": policy})
    planned = other_plan(tmp_path, age_s=10)
    run.table.refresh()
    assert run.cluster(refused=planned.requested_at) == []
    assert pending(tmp_path) == [planned.requested_at]


def test_clustering_that_completes_before_its_removal_is_kept(tmp_path: Path) -> None:
    run = started(tmp_path)
    assert len(run.cluster()) == 1
    (done,) = opened(tmp_path).timeline.completed(Action.REPLACE_COMMIT)
    assert not roll_back_abandoned(run.table.context, done.requested_at)
    assert opened(tmp_path).timeline.completed(Action.REPLACE_COMMIT) == (done,)


def test_plan_for_the_table_of_dead_letters_is_removed_if_it_prevents_a_batch(
    tmp_path: Path,
) -> None:
    letters = {"enabled": True, "path": str(tmp_path / "bad"), "max_share": 1.0}
    pipeline = config(tmp_path, {"pending": "remove"}, dead_letters=letters)
    sink, writers = open_sink(pipeline, cast(KafkaSource, Topic()))
    sink.recover()
    sink.write(kafka_batch("orders", 0, [{"id": "a", "region": "x"}, {"nope": 1}]), InThisProcess())
    bad = open_table(StorageLocation(str(tmp_path / "bad")))
    plan = plan_clusters(bad, ClusteringPolicy(order=RowOrder(("value",))))
    assert plan is not None
    planned, events = plan_of_others(bad, plan, OLD_S), list[Event]()
    clusterings = table_clusterings(pipeline, writers, RUNNER, events.append)
    sink.recover()
    for writer in writers:
        writer.table.refresh()
    TableServices(writers, ServicePolicies(), RUNNER, events.append, clusterings=clusterings).run(
        planned.requested_at
    )
    assert not open_table(StorageLocation(str(tmp_path / "bad"))).timeline.pending()


def test_plan_of_another_writer_is_executed(tmp_path: Path) -> None:
    run = started(tmp_path, {})
    other_plan(tmp_path)
    run.table.refresh()
    assert len(run.cluster()) == 1
    assert keys_of(tmp_path) == list("abcde")
    assert pending(tmp_path) == []


def test_plan_of_another_writer_is_kept(tmp_path: Path) -> None:
    run = started(tmp_path, {"pending": "keep"})
    planned = other_plan(tmp_path)
    run.table.refresh()
    assert run.cluster(refused=planned.requested_at) == []
    assert pending(tmp_path) == [planned.requested_at]
    run.write("f")
    assert keys_of(tmp_path) == list("abcdef"), "inserts go to other file groups"


def test_plan_of_another_writer_is_removed_only_if_it_prevents_a_batch(tmp_path: Path) -> None:
    run = started(tmp_path, {"pending": "remove"})
    planned = other_plan(tmp_path, strategy="com.example.Own")
    run.table.refresh()
    assert run.cluster() == []
    assert pending(tmp_path) == [planned.requested_at]
    (summary,) = run.cluster(refused=planned.requested_at)
    assert summary == f"{planned.requested_at}: removed, because a batch conflicts"
    assert pending(tmp_path) == []


def test_plan_that_lakemark_cannot_execute_is_reported_and_kept(tmp_path: Path) -> None:
    run = started(tmp_path, {})
    planned = other_plan(tmp_path, strategy="com.example.Own")
    run.table.refresh()
    run.write("f")
    for _ in range(3):
        assert run.cluster() == [], "its files are in the plan of the other writer"
    (failed,) = run.failures
    assert "com.example.Own" in failed.error
    assert (failed.service, failed.failures, failed.pause_s) == ("clustering", 1, FIRST_PAUSE_S)
    run.now_s += FIRST_PAUSE_S
    run.cluster()
    assert [event.failures for event in run.failures] == [1, 2]
    assert pending(tmp_path) == [planned.requested_at]


class FullDisk(LocalRunner):
    """A runner whose tasks fail while the disk is full."""

    def __init__(self) -> None:
        super().__init__(1)
        self.is_full = True

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        if self.is_full:
            message = "the disk is full"
            raise StorageUnavailable(message)
        return super().map(function, tasks)


def test_failed_clustering_is_undone_and_made_again_later(tmp_path: Path) -> None:
    runner = FullDisk()
    run = Run(config(tmp_path), runner)
    run.write("a", "b", "c")
    run.write("d", "e")
    assert run.cluster() == []
    assert [event.error for event in run.failures] == ["the disk is full"]
    assert pending(tmp_path) == [], "batches can be written to all file groups"
    runner.is_full = False
    assert run.cluster() == [], "it pauses"
    run.now_s += FIRST_PAUSE_S
    assert len(run.cluster()) == 1
    assert keys_of(tmp_path) == list("abcde")


def test_settings_become_the_policy(tmp_path: Path) -> None:
    sizes = {"small_file_bytes": 1, "target_file_bytes": 2, "max_group_bytes": 3, "max_groups": 4}
    order = {"sort_by": ["id", "region"], "curve": "hilbert"}
    settings = {"enabled": True, **sizes, "max_io_bytes": 5, **order}
    found = config(tmp_path, settings).clustering
    expected = ClusteringPolicy(
        **sizes, max_io_bytes=5, order=RowOrder(("id", "region"), Curve.HILBERT)
    )
    assert found.clustering_policy() == expected


@pytest.mark.parametrize(
    ("clustering", "table", "message"),
    [
        ({"sort_by": "id"}, INSERTS, "clustering.sort_by: has no effect without"),
        ({"mode": "inline"}, INSERTS, "clustering.mode: has no effect without"),
        ({"enabled": True}, {"buckets": 4}, "clustering.enabled: .* move the rows of a bucket"),
        (
            {"enabled": True},
            {"index": "consistent_hashing"},
            "clustering.enabled: .*bucket_resizing splits",
        ),
        ({"enabled": True, "after_commits": 21}, INSERTS, "clustering.after_commits: .*archival"),
        ({"enabled": True, "partitions": "a*"}, INSERTS, "clustering.partitions: .*partition_by"),
        ({"enabled": True, "curve": "hilbert"}, INSERTS, "clustering.curve: .*sort_by"),
        (
            {"enabled": True, "curve": "z-order", "sort_by": [f"c{n}" for n in range(17)]},
            INSERTS,
            "clustering.sort_by: .*at most 16",
        ),
    ],
)
def test_contradicting_settings_are_refused(
    tmp_path: Path, clustering: dict[str, Any], table: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, clustering, table)


def test_start_refuses_tables_with_buckets_and_unknown_columns(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"table\.index: lookup"):
        Run(config(tmp_path, {"enabled": True}, {}))
    assert not (tmp_path / "rows").exists()
    Run(config(tmp_path, {}, {})).write("a")
    with pytest.raises(Unsupported, match="table compact"):
        Run(config(tmp_path, {"enabled": True}, {}))
    with pytest.raises(InvalidConfig, match="no column 'day'"):
        Run(config(tmp_path / "other", {"enabled": True, "sort_by": "day"}))
