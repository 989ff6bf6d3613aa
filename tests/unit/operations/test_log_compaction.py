"""A log compaction changes which blocks of logs are read, but not what queries return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.config.table_properties import TableProperties
from lakemark.errors import WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action, State
from lakemark.model.row_order import RowOrder
from lakemark.operations.archive import archive
from lakemark.operations.cluster import plan_clusters
from lakemark.operations.compact import Planned, request_compaction
from lakemark.operations.compact_logs import (
    LogCompaction,
    compact_logs,
    pending_log_compactions,
    plan_log_compaction,
    schedule_log_compaction,
)
from lakemark.operations.metadata_table import drop_metadata_table
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read.queries import Snapshot
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.clustering import schedule
from lakemark.services.clustering_plan import ClusteringPolicy, plan_clustering
from lakemark.services.log_compaction import request_log_compaction
from lakemark.services.slice_choice import SliceChoice
from lakemark.storage import StorageLocation
from lakemark.transaction.attempt import AttemptLost
from streamer.cli import FAILED, MISUSED, OK, main
from tests.depth import examples
from tests.unit.operations.tables import FAST, SCHEMA, contents, location, operations, rows

VERSIONS = [6, 8, 9]

History = list[tuple[str | None, dict[str, Any]]]


def opened(table: lakemark.Table) -> OpenTable:
    return open_table(StorageLocation(table.location))


def new_table(folder: Path, version: int, **settings: Any) -> lakemark.Table:
    return lakemark.create(
        folder / "orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        version=version,
        multi_writer=FAST,
        **settings,
    )


def filled(
    folder: Path, version: int = 9, updates: int = 3, *, buckets: int = 1, has_metadata: bool = True
) -> lakemark.Table:
    """Create a table whose file groups have a base file, and a log for each update."""
    table = new_table(folder, version, buckets=buckets, metadata_table=has_metadata)
    table.upsert(rows(("a", "north", 1, 1), ("b", "north", 1, 1)))
    for ts in range(2, 2 + updates):
        updated = [("a", "north", ts, ts), ("b", "north", ts, ts)]
        table.upsert(rows(*updated[:buckets]))
    return table


def logs_of(folder: Path, instant: str) -> list[str]:
    """Return the names of the logs that contain an instant."""
    return [p.name for p in folder.rglob(f".*_{instant}.log.*") if ".hoodie" not in p.parts]


def effective_blocks(table: lakemark.Table) -> int:
    """Return how many commits' blocks a query of the only file group reads, at least one."""
    found = opened(table)
    count = 1
    while plan_log_compaction(found, count + 1).operations:
        count += 1
    return count


changes = st.lists(
    st.tuples(st.sampled_from("abc"), st.just("north"), st.integers(1, 5), st.integers(0, 9)),
    min_size=1,
    max_size=3,
    unique_by=lambda row: row[0],
)
steps = st.lists(
    changes | st.sampled_from(["delete", "compact logs", "compact logs", "compact"]),
    min_size=4,
    max_size=7,
)


def run(history: list[Any], version: int, *, is_event_time: bool, compacts: bool) -> History:
    """Execute a history, with or without its log compactions; return the rows after each commit."""
    table = lakemark.create(
        location("memory", Path()),
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts" if is_event_time else (),
        buckets=1,
        version=version,
        multi_writer=FAST,
    )
    seen: History = []
    for step in history:
        instant = None
        match step:
            case "delete":
                instant = table.delete(["a"]).instant
            case "compact logs":
                if compacts:
                    table.compact_logs(min_logs=1)
            case "compact":
                table.compact()
            case _:
                instant = table.upsert(rows(*step)).instant
        seen.append((instant, contents(table)))
    assert table.metadata_differences() == []
    for instant, expected in seen:
        if instant is not None:
            past = table.scan(Snapshot(instant), SCHEMA.names).to_table().to_pylist()
            assert {row["id"]: (row["region"], row["ts"], row["v"]) for row in past} == expected
    return seen


@settings(max_examples=examples(12), deadline=None)
@given(version=st.sampled_from(VERSIONS), is_event_time=st.booleans(), history=steps)
def test_queries_of_every_commit_find_the_rows_of_a_table_without_log_compactions(
    version: int, is_event_time: bool, history: list[Any]
) -> None:
    with_them = run(history, version, is_event_time=is_event_time, compacts=True)
    without = run(history, version, is_event_time=is_event_time, compacts=False)
    assert [found for _, found in with_them] == [found for _, found in without]


@pytest.mark.parametrize("version", VERSIONS)
def test_fewer_blocks_are_read_until_the_next_commits(version: int, tmp_path: Path) -> None:
    table = filled(tmp_path, version)
    expected = contents(table)
    assert effective_blocks(table) == 3
    assert table.compact_logs() == lakemark.ServiceResult(), "five logs are needed by default"
    done = table.compact_logs(min_logs=3)
    assert (len(done.instants), len(done.files)) == (1, 1)
    assert effective_blocks(table) == 1
    assert contents(table) == expected
    assert table.compact_logs(min_logs=2) == lakemark.ServiceResult()
    table.upsert(rows(("b", "north", 9, 9)))
    assert effective_blocks(table) == 2
    assert table.compact_logs(min_logs=2).files
    assert contents(table) == {**expected, "b": ("north", 9, 9)}
    assert operations(table).count("LOG_COMPACT") == 2
    assert table.compact().files
    assert contents(table) == {**expected, "b": ("north", 9, 9)}
    assert table.metadata_differences() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_rollback_of_a_log_compaction_brings_the_replaced_blocks_back(
    version: int, tmp_path: Path
) -> None:
    table = filled(tmp_path, version)
    expected = contents(table)
    (instant,) = table.compact_logs(min_logs=2).instants
    with pytest.raises(lakemark.Refused, match="is later; roll that back first"):
        table.rollback(table.timeline.completed(Action.DELTA_COMMIT)[-2].requested_at)
    table.rollback(instant)
    assert effective_blocks(table) == 3
    assert contents(table) == expected
    assert pending_log_compactions(opened(table)) == [], "its plan was removed, too"
    assert table.metadata_differences() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_restore_undoes_log_compactions(version: int, tmp_path: Path) -> None:
    table = filled(tmp_path, version)
    target = table.timeline.completed(Action.DELTA_COMMIT)[-2].requested_at
    table.compact_logs(min_logs=2)
    table.upsert(rows(("b", "north", 9, 9)))
    assert schedule_log_compaction(opened(table), 2)
    table.restore(target)
    assert contents(table) == {"a": ("north", 3, 3), "b": ("north", 1, 1)}
    assert pending_log_compactions(opened(table)) == []
    assert table.metadata_differences() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_plan_is_executed_while_commits_continue(version: int, tmp_path: Path) -> None:
    table = filled(tmp_path, version)
    planned = schedule_log_compaction(opened(table), 2)
    assert planned is not None
    assert plan_log_compaction(opened(table), 1).operations == (), "it is planned already"
    table.upsert(rows(("b", "north", 7, 7)))
    compaction = LogCompaction.begin(opened(table), planned)
    table.upsert(rows(("a", "north", 8, 8)))
    compaction.run(LocalRunner(1))
    assert contents(table) == {"a": ("north", 8, 8), "b": ("north", 7, 7)}
    assert effective_blocks(table) == 3, "the new block, and those of two commits"
    assert table.metadata_differences() == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("begun", [False, True])
def test_compaction_makes_the_plan_out_of_date(version: int, begun: bool, tmp_path: Path) -> None:
    table = filled(tmp_path, version)
    other = opened(table)
    planned = schedule_log_compaction(other, 2)
    assert planned is not None
    compaction = LogCompaction.begin(other, planned) if begun else None
    assert table.compact().files
    if compaction is not None:
        with pytest.raises(WriteConflict, match="nothing was published"):
            compaction.run(LocalRunner(1))
    table.upsert(rows(("b", "north", 7, 7)))
    assert table.compact_logs(min_logs=2) == lakemark.ServiceResult()
    assert [i.action for i in opened(table).timeline.pending()] == []
    assert contents(table) == {"a": ("north", 4, 4), "b": ("north", 7, 7)}
    assert table.metadata_differences() == []


def test_executor_that_died_is_followed_by_the_next(tmp_path: Path) -> None:
    table = filled(tmp_path)
    other = opened(table)
    planned = schedule_log_compaction(other, 2)
    assert planned is not None
    dead = LogCompaction.begin(other, planned)
    dead.execution.rewrite(dead._rewriter, dead.execution.plan.operations, LocalRunner(1))
    (instant, _) = planned
    assert opened(table).timeline.find(instant.requested_at) is not None
    dead.execution.stop_heartbeat()
    assert table.compact_logs().instants == (instant.requested_at,)
    assert contents(table) == {"a": ("north", 4, 4), "b": ("north", 1, 1)}
    (log,) = logs_of(tmp_path, instant.requested_at)  # that of the first attempt was deleted

    # The first executor had only been paused, and creates its log again.
    dead.execution.rewrite(dead._rewriter, dead.execution.plan.operations, LocalRunner(1))
    assert len(logs_of(tmp_path, instant.requested_at)) == 2
    drop_metadata_table(opened(table))
    (found,) = opened(table).view().latest_slices()
    assert log in {str(one.name) for one in found.logs}
    assert len(found.logs) == 4, "three logs of commits, and that of the second attempt"
    assert contents(table) == {"a": ("north", 4, 4), "b": ("north", 1, 1)}


def begin(table: lakemark.Table, planned: Planned, *, writes: bool) -> LogCompaction:
    """Begin an attempt whose writer is considered dead, and maybe write its logs."""
    begun = LogCompaction.begin(opened(table), planned)
    begun.execution.stop_heartbeat()
    if writes:
        write_logs(begun)
    return begun


def write_logs(attempt: LogCompaction) -> None:
    attempt.execution.rewrite(attempt._rewriter, attempt.execution.plan.operations, LocalRunner(1))


@pytest.mark.parametrize("version", VERSIONS)
def test_open_table_forgets_the_logs_of_an_attempt_that_died(version: int, tmp_path: Path) -> None:
    table = filled(tmp_path, version, has_metadata=False)
    planned = schedule_log_compaction(opened(table), 2)
    assert planned is not None
    begin(table, planned, writes=True)
    assert table.compact_logs().instants == (planned[0].requested_at,)
    found = table.scan(columns=["id", "ts"]).to_table().sort_by("id").to_pylist()
    assert found == [{"id": "a", "ts": 4}, {"id": "b", "ts": 1}]
    assert table.compact().files
    assert contents(table) == {"a": ("north", 4, 4), "b": ("north", 1, 1)}


@pytest.mark.parametrize("version", [8, 9])
def test_view_skips_a_log_that_a_lost_attempt_wrote_late(version: int, tmp_path: Path) -> None:
    table = filled(tmp_path, version, has_metadata=False)
    planned = schedule_log_compaction(opened(table), 2)
    assert planned is not None
    lost = begin(table, planned, writes=False)
    other = opened(table)
    winner = LogCompaction.begin(other, planned)
    write_logs(lost)
    listed = other.view()
    (found,) = listed.with_commit(*winner.run(LocalRunner(1))).latest_slices()
    assert len(found.logs) == 4, "three logs of commits, and that of the attempt that completed"


@pytest.mark.parametrize("version", [8, 9])
def test_archival_deletes_logs_that_a_lost_attempt_wrote_late(version: int, tmp_path: Path) -> None:
    table = filled(tmp_path, version, has_metadata=False)
    planned = schedule_log_compaction(opened(table), 2)
    assert planned is not None
    instant = planned[0].requested_at
    lost = begin(table, planned, writes=False)
    assert table.compact_logs().instants == (instant,)
    (log,) = logs_of(tmp_path, instant)
    write_logs(lost)
    assert len(logs_of(tmp_path, instant)) == 2
    for ts in (10, 11, 12):
        table.upsert(rows(("b", "north", ts, ts)))
    assert archive(opened(table), ArchivalPolicy(1, 2, delta_commits_to_compact=1), None)
    assert logs_of(tmp_path, instant) == [log]
    assert contents(table) == {"a": ("north", 4, 4), "b": ("north", 12, 12)}


@pytest.mark.parametrize("next_step", ["another attempt", "the attempt resumes"])
def test_compaction_planned_with_the_log_of_an_attempt_can_be_executed(
    next_step: str, tmp_path: Path
) -> None:
    # In table version 6, such a plan contains all logs of a slice.
    table = filled(tmp_path, 6, buckets=2, has_metadata=False)
    expected = contents(table)
    planned = schedule_log_compaction(opened(table), 2)
    assert planned is not None and len(planned[1].operations) == 2
    attempt = begin(table, planned, writes=next_step == "another attempt")
    if next_step == "the attempt resumes":
        assert table.compact_logs().files
        write_logs(attempt)
    requested = request_compaction(opened(table), SliceChoice(max_io_bytes=1))
    assert requested is not None
    (operation,) = requested[1].operations
    token = f"-{int(attempt.execution.instant.attempt[:12], 16)}"
    assert any(name.endswith(token) for name in operation.log_files)
    if next_step == "the attempt resumes":
        with pytest.raises(AttemptLost):
            attempt.run(LocalRunner(1))
    else:
        assert table.compact_logs().files, "of the file group that is not in the compaction"
    assert contents(table) == expected
    assert table.compact().instants == (requested[0].requested_at,)
    assert contents(table) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_log_compaction_yields_to_a_compaction_that_was_planned_meanwhile(
    version: int, tmp_path: Path
) -> None:
    table = filled(tmp_path, version)
    planned = schedule_log_compaction(opened(table), 2)
    assert planned is not None
    attempt = begin(table, planned, writes=False)
    table.upsert(rows(("a", "north", 5, 5)))
    requested = request_compaction(opened(table))
    assert requested is not None
    with pytest.raises(WriteConflict, match="nothing was published"):
        attempt.run(LocalRunner(1))
    assert table.compact_logs() == lakemark.ServiceResult()
    assert pending_log_compactions(opened(table)) == [], "the plan was removed as out of date"
    assert table.compact().instants == (requested[0].requested_at,)
    assert contents(table) == {"a": ("north", 5, 5), "b": ("north", 1, 1)}


@pytest.mark.parametrize("version", VERSIONS)
def test_log_compactions_continue_beside_a_pending_clustering(version: int, tmp_path: Path) -> None:
    table = new_table(tmp_path, version, index="lookup")
    order = ClusteringPolicy(order=RowOrder(("v",)))
    for ts in range(1, 5):
        table.upsert(rows(("a", "north", ts, ts), ("b", "south", ts, ts)))
    expected = contents(table)
    planned = schedule_log_compaction(opened(table), 2)
    assert planned is not None and len(planned[1].operations) == 2
    assert plan_clusters(opened(table), order) is None, "their file groups are left out"

    # The clustering of another writer, which does not leave them out.
    taken = {one for one in opened(table).view().groups if one.partition_path == "north"}
    plan = plan_clustering(opened(table).view(), order, ["north"])
    clustering = schedule(opened(table).context, lambda _: plan)
    assert clustering is not None and set(clustering[1].groups) == taken
    ((done, metadata),) = compact_logs(opened(table), LocalRunner(1))
    assert (done.requested_at, len(metadata.write_stats)) == (planned[0].requested_at, 1)

    table.rollback(clustering[0].requested_at)
    planned = schedule_log_compaction(opened(table), 2)
    assert planned is not None and {one.group for one in planned[1].operations} == taken
    assert schedule(opened(table).context, lambda _: plan) is not None
    for ts in (5, 6):
        table.upsert(rows(("b", "south", ts, ts)))
    (compacted,) = table.compact_logs(min_logs=2).instants
    assert compacted != planned[0].requested_at, "the other plan waits"
    assert [i for i, _ in pending_log_compactions(opened(table))] == [planned[0]]
    assert contents(table) == {**expected, "b": ("south", 6, 6)}


@pytest.mark.parametrize("version", VERSIONS)
def test_plan_of_another_writer_can_be_removed(version: int, tmp_path: Path) -> None:
    # lakemark executes no such plan in a table for CDC queries.
    table = new_table(tmp_path, version, cdc=None if version == 6 else "op_key_only")
    for ts in range(1, 4):
        table.upsert(rows(("a", "north", ts, ts)))
    other = opened(table)
    planned = request_log_compaction(other.context, lambda _: other.view().slices_for_writing())
    assert planned is not None
    if version != 6:
        with pytest.raises(lakemark.Unsupported, match="CDC"):
            table.compact_logs()
    assert table.rollback(planned[0].requested_at).files == ()
    assert [str(i) for i in opened(table).timeline.pending()] == []


def test_archived_log_compaction_is_still_read(tmp_path: Path) -> None:
    for version in VERSIONS:
        table = filled(tmp_path / str(version), version)
        (instant,) = table.compact_logs(min_logs=2).instants
        for ts in (10, 11, 12):
            table.upsert(rows(("b", "north", ts, ts)))
        assert archive(opened(table), ArchivalPolicy(1, 2, delta_commits_to_compact=1), None)
        after = opened(table)
        assert after.timeline.is_archived(instant)
        found = after.store.load_archived().find(instant)
        assert found is not None
        assert (found.action, found.state) == (Action.DELTA_COMMIT, State.COMPLETED)
        assert contents(table) == {"a": ("north", 4, 4), "b": ("north", 12, 12)}
        assert effective_blocks(table) == 4
        assert table.compact_logs(min_logs=2).files
        assert table.compact().files
        assert contents(table) == {"a": ("north", 4, 4), "b": ("north", 12, 12)}


def test_logs_of_cdc_queries_and_copy_on_write_tables_are_refused(tmp_path: Path) -> None:
    made = {
        "CDC": {"cdc": "data_before_after"},
        "copy-on-write": {"table_type": "copy_on_write"},
    }
    for word, kind in made.items():
        path = tmp_path / word
        table = lakemark.create(path, schema=SCHEMA, record_key="id", **kind)  # type: ignore[arg-type]
        with pytest.raises(lakemark.Unsupported, match=word):
            table.compact_logs()
        assert main(["table", "compact", str(path), "--logs", "--run"]) == FAILED


@pytest.mark.parametrize("version", [6, 9])
def test_tables_whose_deletes_need_their_columns_are_refused(version: int, tmp_path: Path) -> None:
    table = filled(tmp_path, version)
    package = "org.apache.hudi.common.model"
    refused = {
        "strategy": {"hoodie.record.merge.strategy.id": "8a1e25de-7f4b-4b57-9d4b-6f2a0f4b5c10"},
        "PartialUpdateAvroPayload": {
            "hoodie.compaction.payload.class": f"{package}.PartialUpdateAvroPayload",
            "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        },
    }
    for word, changed in refused.items():
        found = opened(table)
        values = {**found.properties.values, "hoodie.record.merge.mode": "CUSTOM"}
        values.pop("hoodie.compaction.payload.class", None)
        found.snapshot.properties = TableProperties({**values, **changed})
        with pytest.raises(lakemark.Unsupported, match=f"{word}.* columns of deleted rows"):
            plan_log_compaction(found, 2)


def test_command_plans_schedules_and_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = filled(tmp_path)

    def run(*options: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        words = ["table", "compact", table.location, *options, "--logs", "--clock-skew-ms=0"]
        assert main([*words, "--json"]) == OK
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert run() == [], "five logs are needed by default"
    (planned,) = run("--min-logs=3")
    assert (planned["instant"], planned["logs"]) == (None, 3)
    assert run("south*", "--min-logs=3") == []
    (scheduled,) = run("--min-logs=3", "--schedule")
    assert run("--plan") == [scheduled]
    (done,) = run("--run")
    assert (done["instant"], done["slices"], done["rows"]) == (scheduled["instant"], 1, 1)
    assert run("--run") == []
    assert contents(table) == {"a": ("north", 4, 4), "b": ("north", 1, 1)}
    assert main(["table", "compact", table.location, "--logs", "--after=1h"]) == MISUSED
    assert "--after cannot be combined with --logs" in capsys.readouterr().err
    assert main(["table", "compact", table.location, "--min-logs=3"]) == MISUSED
    assert "--min-logs is only for log compactions" in capsys.readouterr().err
