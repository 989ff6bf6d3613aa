"""lakemark cleans, archives and compacts tables that Apache Hudi cleaned and archived before."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.errors import InvalidConfig
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import groups_by_bucket
from lakemark.model.action import Action
from lakemark.model.clean_plan import CleanMetadata, CleanPlan
from lakemark.model.meta_columns import FILE_NAME, without_meta_columns
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.compact import Compaction, request_compaction
from lakemark.operations.compact_logs import compact_logs
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services import archival
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation
from streamer.clustering import ClusteringRules, PendingPlans, TableClustering
from streamer.events import Event, ServiceCompleted
from streamer.services import ServicePolicies, TableServices
from tests.golden.golden_table import Row, sorted_rows, unpack

ARCHIVAL = ArchivalPolicy(2, 3, delta_commits_to_compact=1)


def opened(table: OpenTable) -> OpenTable:
    return open_table(StorageLocation(table.location.url))


def rows_anywhere(table: OpenTable) -> list[Row]:
    """Read all rows, without the names of their files."""
    return sorted_rows(table.scan().to_reader().read_all().drop_columns([FILE_NAME]))


def names(table: OpenTable) -> tuple[list[str], list[str]]:
    """List the names of active and archived instants."""
    active = [str(i) for i in table.timeline.completed()]
    return active, [str(i) for i in table.store.load_archived().instants()]


@pytest.mark.parametrize("name", ["v9_mor_long_archived", "v8_mor_archived", "v6_mor_archived"])
def test_archival_appends_to_the_history_of_apache(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path).table
    rows = sorted_rows(table.scan().to_reader().read_all())
    active, archived = names(table)
    commits = {i: table.store.read_commit(i) for i in table.timeline.completed(Action.DELTA_COMMIT)}
    done = archive(table, ARCHIVAL, None)
    assert done is not None
    after = opened(table)
    left, more = names(after)
    assert set(more) == {*archived, *(str(instant) for instant in done.instants)}
    assert sorted([*left, *more]) == sorted([*active, *archived])
    assert sorted_rows(after.scan().to_reader().read_all()) == rows
    assert all(after.store.read_commit(i) == metadata for i, metadata in commits.items())


@pytest.mark.parametrize("name", ["v6_mor_failed_write", "v6_mor_rollback"])
def test_logs_that_a_rollback_block_undid_stay_undone_after_archival(
    name: str, tmp_path: Path
) -> None:
    table = unpack(name, tmp_path).table
    rows = sorted_rows(table.scan().to_reader().read_all())
    (rollback,) = table.timeline.completed(Action.ROLLBACK)
    undone = table.store.read_rollback(rollback).instant
    keep_metadata_table(table)
    assert archival.archive(table.context, ArchivalPolicy(1, 2, 1), None, lambda timeline: ())
    after = opened(table)
    assert after.timeline.is_archived(undone)
    assert sorted_rows(after.scan().to_reader().read_all()) == rows
    assert metadata_differences(after) == []


@pytest.mark.parametrize(
    ("name", "pending"),
    [
        ("v9_mor_pending_log_compaction", 1),
        ("v9_mor_log_compacted", 0),
        ("v8_mor_log_compacted", 0),
        ("v6_mor_log_compacted", 0),
    ],
)
def test_log_compactions_of_apache_are_executed_and_continued(
    name: str, pending: int, tmp_path: Path
) -> None:
    table = unpack(name, tmp_path).table
    rows = rows_anywhere(table)
    planned = [i.requested_at for i in table.timeline.pending(Action.LOG_COMPACTION)]
    assert len(planned) == pending
    for _ in range(1 + pending):
        ((instant, _),) = compact_logs(table, LocalRunner(1), min_logs=1)
        assert instant.requested_at in planned or not planned
        planned = []
        table = opened(table)
        assert rows_anywhere(table) == rows
    assert not table.timeline.pending()


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("v9_mor_pending_log_compaction", "log_compaction"),
        ("v6_cow_pending_clustering", "clustering"),
        ("v9_cow_pending_clustering", "clustering"),
    ],
)
def test_pipeline_executes_the_pending_plans_of_apache(
    name: str, service: str, tmp_path: Path
) -> None:
    table = unpack(name, tmp_path).table
    rows = rows_anywhere(table)
    assert table.schema is not None
    to = TableWriter(table, without_meta_columns(table.schema), WriterSettings(index=None))
    to.recover()
    assert table.timeline.pending(), "plans of other writers are kept"
    events: list[Event] = []
    rules = ClusteringRules(None, 1, lambda path: True, PendingPlans.EXECUTE)
    runner, policies = LocalRunner(1), ServicePolicies(CompactionPolicy(1_000))
    clustering = TableClustering(to, rules, runner, events.append)
    TableServices([to], policies, runner, events.append, clusterings=[clustering]).run()
    done = [event for event in events if isinstance(event, ServiceCompleted)]
    assert [event.service for event in done if event.service != "metadata"] == [service]
    after = opened(table)
    assert not after.timeline.pending()
    assert rows_anywhere(after) == rows
    assert metadata_differences(after) == []


@pytest.mark.parametrize(
    "name", ["v9_mor_clustered", "v9_mor_hive_complex_ts", "v8_mor_column_stats"]
)
def test_slices_whose_file_ids_have_no_bucket_are_compacted(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path).table
    rows = rows_anywhere(table)
    groups = {file_slice.group for file_slice in table.view().latest_slices()}
    with pytest.raises(InvalidConfig, match=r"another index|beyond"):
        groups_by_bucket(groups, lambda _: 1 << 20)
    planned = request_compaction(table)
    assert planned is not None
    Compaction.begin(table, planned).run(LocalRunner(1))
    after = opened(table)
    assert {slice_.group for slice_ in after.view().latest_slices()} == groups
    assert not any(file_slice.logs for file_slice in after.view().latest_slices())
    assert rows_anywhere(after) == rows
    assert metadata_differences(after) == []


@pytest.mark.parametrize("name", ["v9_cow_cdc", "v9_mor_compacted", "v9_cow_savepoint"])
def test_cleaning_deletes_old_slices_and_keeps_the_rows(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path).table
    rows = sorted_rows(table.scan().to_reader().read_all())
    before = {file for group in table.view().groups.values() for file in group.files}
    cleaned = clean(table, CleaningPolicy(commits=1))
    gone = {path.rpartition("/")[2] for one in cleaned for path in one.plan.paths}
    after = opened(table)
    assert {file for group in after.view().groups.values() for file in group.files} == before - gone
    assert sorted_rows(after.scan().to_reader().read_all()) == rows
    if "cdc" in name:
        assert any(file.endswith(".cdc") for file in gone)
    for savepoint in after.timeline.completed(Action.SAVEPOINT):
        kept = after.store.read_savepoint(savepoint).files.values()
        assert before >= {name for listed in kept for name in listed}
        assert not gone & {name for listed in kept for name in listed}


def test_clean_plans_and_metadata_of_apache_are_read(tmp_path: Path) -> None:
    table = unpack("v9_cow_savepoint", tmp_path).table
    instant = table.timeline.completed(Action.CLEAN)[-1]
    plan = table.store.read_clean_plan(instant.requested_at)
    assert plan is not None
    assert plan.policy == "KEEP_LATEST_COMMITS"
    assert plan.paths
    assert not any("/" in name for names in plan.files.values() for name in names)
    assert len(plan.savepoints) == 1
    assert table.store.read_clean(instant) == CleanMetadata.of(plan)
    assert CleanPlan.from_record(plan.to_record("/lake/t")) == plan
