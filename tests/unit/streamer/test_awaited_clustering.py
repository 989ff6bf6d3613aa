"""A run whose batch a clustering of another writer refuses: it waits, then writes the batch once.

The runs are complete, but read files, so that they need neither Kafka nor Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import lakemark
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.operations.cluster import (
    execute_clustering,
    pending_clusterings,
    request_clustering,
)
from lakemark.operations.coordination import Coordination
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.storage import StorageLocation
from lakemark.transaction.conflicts import ClusteringPlanned
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.rollback import roll_back_named
from streamer import pipeline
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.events import (
    BatchWritten,
    ClusteringAwaited,
    Event,
    Retrying,
    RunStarted,
    ServiceCompleted,
    ServiceFailed,
)
from streamer.loop import StreamLoop
from tests.unit.streamer.test_clustering import opened, other_plan

RUNNER = LocalRunner(1)
COLUMNS = {"id": "string", "n": "bigint", "region": "string"}

#: The other writer is gone after so many waits, more than ``MAX_ATTEMPTS``.
WAITS = 4
MAX_ATTEMPTS = 2

#: Ends the clustering of the other writer.
End: TypeAlias = Callable[[], object]

#: Plans the clustering of the other writer of a table in a folder.
Begin: TypeAlias = Callable[[Path], End]


def config(
    folder: Path,
    pending: str = "execute",
    sharing: str = "single_writer",
    mode: str = "continuous",
) -> PipelineConfig:
    retry = {"backoff_s": 0.001, "max_backoff_s": 0.002, "max_attempts": MAX_ATTEMPTS}
    files = {"kind": "files", "path": str(folder / "in"), "format": "json"}
    shared = {"mode": sharing, "clock_skew_ms": 0} if sharing == "multi_writer" else {}
    return validated(
        {
            "source": {**files, "poll_interval_s": 0.01, "max_files_per_batch": 1},
            "decode": {"schema": COLUMNS},
            "table": {
                "path": str(folder / "rows"),
                "record_key": "id",
                "partition_by": "region",
                "partition_change": "move",  # the table has no buckets, but a batch updates rows
            },
            "run": {"mode": mode, "trigger_interval_s": 0, "retry": retry},
            "clustering": {"pending": pending},
            "concurrency": shared,
            "base_files": {"small_file_bytes": 0},  # each batch writes a file
        }
    )


def other_writer(folder: Path) -> OpenTable:
    sharing = Coordination(multi_writer=MultiWriter(clock_skew_ms=0))
    return open_table(StorageLocation(str(folder / "rows")), coordination=sharing)


def plan_only(folder: Path) -> End:
    """Plan a clustering, which another writer executes later."""
    planned = other_plan(folder)

    def execute() -> None:
        table = other_writer(folder)
        (pending,) = pending_clusterings(table)
        assert pending[0].requested_at == planned.requested_at
        assert execute_clustering(table, pending, RUNNER)

    return execute


def plan_and_execute(folder: Path) -> End:
    """Begin a clustering, whose writer emits a heartbeat until it publishes it."""
    begun = request_clustering(other_writer(folder), ClusteringPolicy())
    assert begun is not None

    def finish() -> None:
        begun.publish(begun.rewrite(RUNNER))
        begun.stop_heartbeat()

    return finish


def plan_and_begin_as_apache_hudi(folder: Path) -> End:
    """Begin a clustering without a heartbeat, which an operator removes."""
    planned, table = other_plan(folder), opened(folder)
    table.store.create(planned.inflight(), b"")
    return lambda: roll_back_named(opened(folder).context, planned.requested_at)


@dataclass
class Other:
    """Another writer, which plans a clustering when a run has started; it hears the run's events.

    Attributes:
        begin: plans the clustering.
        loop: the run.
        events: the events of the run.
        end: ends the clustering; None before the run has started.
    """

    begin: Callable[[], End]
    loop: list[StreamLoop] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    end: End | None = None

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RunStarted) and self.end is None:
            self.end = self.begin()
        if self.end and isinstance(event, ClusteringAwaited) and event.waits == WAITS:
            self.end()
        if isinstance(event, BatchWritten):
            self.loop[0].stop()

    @property
    def waits(self) -> list[int]:
        return [one.waits for one in self.events if isinstance(one, ClusteringAwaited)]

    def seen(self, kind: type[Event]) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]


def put(folder: Path, name: str, **values: int) -> None:
    path = folder / "in" / name
    path.parent.mkdir(exist_ok=True)
    rows = [{"id": key, "n": n, "region": "x"} for key, n in values.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(settings: PipelineConfig, other: Other | None = None) -> None:
    with pipeline.build(settings, other or (lambda _: None)) as built:
        if other:
            other.loop.append(built.loop)
        built.loop.run()


def write_two_files(folder: Path) -> None:
    """Write the files that the other writer clusters, and records for the next batch."""
    put(folder, "1.json", a=1, b=1)
    put(folder, "2.json", c=1)
    run(config(folder, mode="once"))
    put(folder, "3.json", a=2, c=2, d=2)


def check_rows(folder: Path) -> None:
    found = lakemark.open(folder / "rows").scan(columns=["id", "n"]).to_table().to_pylist()
    rows = sorted((one["id"], one["n"]) for one in found)
    assert rows == [("a", 2), ("b", 1), ("c", 2), ("d", 2)]
    assert not opened(folder).timeline.pending()
    assert metadata_differences(opened(folder)) == []


@pytest.mark.parametrize(
    ("begin", "sharing"),
    [
        (plan_only, "single_writer"),
        (plan_and_begin_as_apache_hudi, "single_writer"),
        (plan_and_execute, "single_writer"),
        (plan_and_execute, "multi_writer"),
    ],
)
@pytest.mark.parametrize("policy", ["execute", "keep", "remove"])
def test_refused_batch_is_written_once_when_the_clustering_is_gone(
    tmp_path: Path, policy: str, begin: Begin, sharing: str
) -> None:
    write_two_files(tmp_path)
    other = Other(lambda: begin(tmp_path))
    run(config(tmp_path, policy, sharing), other)

    is_ended_by_run = begin is plan_only and policy != "keep"
    assert other.waits == ([1] if is_ended_by_run else [*range(1, WAITS + 1)])
    assert not other.seen(Retrying), "a wait is no failure"
    assert not other.seen(ServiceFailed)
    (written,) = other.seen(BatchWritten)
    assert (written.records_read, written.rows_written) == (3, 3)
    done = [e.summary for e in other.seen(ServiceCompleted) if e.service == "clustering"]
    expected = {"execute": "rewritten into 1 file", "remove": "because a batch conflicts"}
    assert [text.endswith(expected[policy]) for text in done] == [True] * is_ended_by_run
    check_rows(tmp_path)
    rollbacks = len(opened(tmp_path).timeline.completed(Action.ROLLBACK))
    removals = policy == "remove" if begin is plan_only else begin is not plan_and_execute
    assert rollbacks == 1 + removals, "one attempt was in vain"


def test_batch_is_written_when_the_process_that_executes_the_clustering_has_died(
    tmp_path: Path,
) -> None:
    def plan_and_die() -> End:
        begun = request_clustering(other_writer(tmp_path), ClusteringPolicy())
        assert begun is not None
        begun.rewrite(RUNNER)
        return begun.stop_heartbeat

    write_two_files(tmp_path)
    other = Other(plan_and_die)
    run(config(tmp_path, "keep"), other)
    assert other.waits == [*range(1, WAITS + 1)]
    (removal,) = (e.summary for e in other.seen(ServiceCompleted) if e.service == "clustering")
    assert removal.endswith("removed, because the process that executed it has died")
    assert len(other.seen(BatchWritten)) == 1
    check_rows(tmp_path)


@pytest.mark.parametrize("policy", ["execute", "keep", "remove"])
def test_run_until_all_is_read_gives_up_only_if_it_keeps_the_plan(
    tmp_path: Path, policy: str
) -> None:
    write_two_files(tmp_path)
    other, settings = Other(lambda: plan_only(tmp_path)), config(tmp_path, policy, mode="once")
    if policy == "keep":
        with pytest.raises(ClusteringPlanned, match="lakemark table cluster TABLE --run"):
            run(settings, other)
        assert not other.seen(BatchWritten)
        assert other.end is not None
        other.end()
        run(settings, other)
    else:
        run(settings, other)
    assert other.waits == []
    assert [one.attempt for one in other.seen(Retrying)] == [1]
    assert len(other.seen(BatchWritten)) == 1
    check_rows(tmp_path)
