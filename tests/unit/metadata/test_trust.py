"""A metadata table that lacks a part of the table is not used, and makes no query lose rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.metadata import commit_statistics, metadata_writer
from lakemark.metadata.column_stats.encode import StatisticsEntry, encode_partition_statistics
from lakemark.metadata.column_stats.lookup import PartitionStatistics
from lakemark.metadata.consistency import find_inconsistency
from lakemark.metadata.index_definition import define_column_statistics, read_definitions
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER, open_metadata_table
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.writer_state import MetadataTableBehind
from lakemark.model.action import Action, State
from lakemark.model.changes import ChangeKind
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.operations.clean import clean
from lakemark.operations.compact import Compaction, pending_compactions, request_compaction
from lakemark.operations.metadata_table import (
    keep_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.read.queries import Snapshot
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.metadata_updater import NoMetadataUpdater
from tests.storages import CountingStorage
from tests.table_services import as_of, make_plain, new_storage, since
from tests.tables import Row, commit, contents, keys_of_two_buckets, make, writer

EVERY_COMMIT = CompactionPolicy(after_commits=1)
WHOLE = {"a": (3, 3), "b": (3, 3)}
OWN = ["_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key"]
NOTHING = RecordChanges.of([], pa.array([], pa.large_binary()))


def table(*times: int) -> tuple[CountingStorage, TableWriter]:
    """Create a table; for each time, commit the same two rows."""
    storage = CountingStorage(new_storage())
    make(storage)
    to = writer(storage)
    for ts in times:
        commit(to, [Row("a", ts, ts), Row("b", ts, ts, region="south")])
    return storage, to


def forget(storage: Storage, instant: Instant) -> None:
    """Delete everything that the metadata table has recorded of an instant."""
    recorded = storage.list_tree(METADATA_FOLDER)
    storage.delete([one.path for one in recorded if instant.requested_at in one.name])


def compact(to: TableWriter) -> None:
    assert to.compact_if_due(EVERY_COMMIT, LocalRunner(1))


def test_rows_of_a_commit_that_it_lacks_are_read() -> None:
    storage, to = table(1, 2, 3)
    newest = to.table.timeline.completed()[-1]
    storage.forget()
    assert contents(storage) == WHOLE
    assert storage.count("list_tree", under="north") == 0
    forget(storage, newest)
    assert contents(storage) == WHOLE
    fresh = writer(storage).table
    assert as_of(fresh, newest.requested_at) == WHOLE
    assert since(fresh, to.table.timeline.completed()[-2].completed_at or "") == [
        ("a", 3),
        ("b", 3),
    ]
    assert fresh.scan(Snapshot(), where="ts = 3").to_reader().read_all().num_rows == 2
    first, *others = metadata_differences(fresh)
    assert first.aspect == "timeline" and newest.requested_at in first.stored
    assert others, "its files are not listed"


def test_a_plan_takes_the_logs_of_a_commit_that_it_lacks() -> None:
    storage, to = table(1, 2, 3)
    forget(storage, to.table.timeline.completed()[-1])
    fresh = writer(storage)
    requested = request_compaction(fresh.table)
    assert requested is not None
    assert {len(one.log_files) for one in requested[1].operations} == {2}


def test_a_commit_missing_from_the_metadata_table_costs_no_rows() -> None:
    storage, to = table(1, 2)
    foreign = writer(storage, metadata_updater=NoMetadataUpdater())
    commit(foreign, [Row("a", 3, 3), Row("b", 3, 3, region="south")])
    to.table.refresh()
    with pytest.raises(Unsupported, match="lacks deltacommit"):
        compact(to)
    assert contents(storage) == WHOLE
    restarted = writer(storage)
    assert keep_metadata_table(restarted.table)
    commit(foreign, [Row("a", 3, 3)])
    restarted.table.refresh()
    with pytest.raises(MetadataTableBehind, match="the next start"):
        compact(restarted)
    restarted.recover()
    compact(restarted)
    assert contents(storage) == WHOLE
    assert metadata_differences(restarted.table) == []


def test_a_plan_that_leaves_logs_out_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, to = table(1, 2, 3)

    def short(slices: Sequence[FileSlice]) -> list[FileSlice]:
        return [replace(one, logs=one.logs[:-1]) for one in slices]

    with monkeypatch.context() as patch:
        honest = CompactionPlan.of
        patch.setattr(CompactionPlan, "of", lambda slices: honest(short(slices)))
        assert request_compaction(to.table)
    commit(to, [Row("a", 4, 4)])
    fresh = writer(storage).table
    (planned,) = pending_compactions(fresh)
    Compaction.begin(fresh, planned).run(LocalRunner(1))
    assert contents(storage) == {**WHOLE, "a": (4, 4)}
    assert metadata_differences(fresh) == []


def test_a_dead_writer_is_undone_though_the_metadata_table_was_deleted() -> None:
    storage, to = table(1, 2, 3)
    to.begin()
    storage.delete([one.path for one in storage.list_tree(METADATA_FOLDER)])
    restarted = writer(storage)
    assert restarted.recover()
    assert metadata_differences(restarted.table) == []
    assert contents(storage) == WHOLE


def test_a_clean_that_was_archived_before_older_commits_is_consistent() -> None:
    first, clean, last = (
        Instant(f"2026010100000000{n}", action, State.COMPLETED, f"2026010100000010{n}")
        for n, action in enumerate((Action.DELTA_COMMIT, Action.CLEAN, Action.DELTA_COMMIT))
    )
    recorded = Timeline.of(replace(i, action=Action.DELTA_COMMIT) for i in (first, clean, last))
    archived = {clean.requested_at: clean.completed_at}
    assert find_inconsistency(Timeline.of([first, last], True, archived.get), recorded) is None
    gone = find_inconsistency(Timeline.of([first, last], True), recorded)
    assert gone is not None and clean.requested_at in gone


def test_a_commit_before_the_build_that_is_archived_is_not_missed() -> None:
    """A compaction is executed after the build, and was planned before commits that it contains."""
    compaction, earlier, later = (
        Instant(f"2026010100000000{n}", Action.DELTA_COMMIT, State.COMPLETED, f"20260101{at}")
        for n, at in enumerate(("000001000", "000000100", "000002000"))
    )
    data = Timeline.of([compaction, earlier, later], True)
    recorded = [
        replace(compaction, completed_at="20260101000000900"),
        replace(later, completed_at="20260101000001900"),
    ]
    assert find_inconsistency(data, Timeline.of(recorded, True)) is None
    missing = find_inconsistency(data, Timeline.of(recorded[:1], True))
    assert missing is not None and later.requested_at in missing


def test_a_clean_that_it_lacks_is_noticed() -> None:
    storage, to = table()
    commit(to, [Row("a", 1, 1)])
    for ts in (2, 3):
        commit(to, [Row("a", ts, ts)])
        compact(to)
    cleaned = clean(to.table, CleaningPolicy(commits=1))[-1]
    assert keep_metadata_table(writer(storage).table) is None
    forget(storage, cleaned.instant)
    fresh = writer(storage).table
    assert metadata_differences(fresh)[0].aspect == "timeline"
    listed = {f.path for group in fresh.view().groups.values() for f in group.files.values()}
    assert listed and listed.isdisjoint(cleaned.plan.paths)
    assert keep_metadata_table(fresh) == f"it lacks clean {cleaned.instant.requested_at}"
    assert metadata_differences(fresh) == []


def test_statistics_of_a_partition_are_those_of_what_queries_read() -> None:
    storage, to = table()
    rows = [Row(f"k{n}", 1, n) for n in range(8)]
    commit(to, rows)
    commit(to, [Row(one.id, 50, 5) for one in rows])
    requested = request_compaction(to.table)
    assert requested is not None
    commit(to, [Row("k0", 60, kind=ChangeKind.DELETE)])
    commit(to, [Row("k1", 70, 7)])
    Compaction.begin(to.table, requested).run(LocalRunner(1))
    assert _of_partition(to, "ts") == (1, 70, 17), "of two records that of the later request stands"
    assert metadata_differences(to.table) == []
    to = writer(storage)
    commit(to, [Row("k1", 80, 8)])
    assert _of_partition(to, "ts") == (50, 80, 10)
    compact(to)
    assert _of_partition(to, "ts") == (50, 80, 7)
    reopened = writer(storage).table
    assert metadata_differences(reopened) == []
    rebuild_metadata_table(reopened)
    assert _of_partition(to, "ts") == (50, 80, 7)
    assert metadata_differences(reopened) == []


def test_a_partition_whose_last_row_is_deleted_has_no_statistics() -> None:
    storage = new_storage()
    make(storage, TableType.COPY_ON_WRITE)
    to = writer(storage)
    commit(to, [Row("a", 1, 1), Row("h", 1, 1, "south")])
    commit(to, [Row("h", 2, 2, "south", ChangeKind.DELETE)])
    assert metadata_differences(to.table) == []
    assert contents(storage) == {"a": (1, 1)}


def test_missing_statistics_are_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, to = table(1)
    monkeypatch.setattr(commit_statistics, "encode_column_statistics", lambda *_: NOTHING)
    commit(to, [Row("a", 2, 2)])
    (log,) = [log for one in to.table.view().latest_slices() for log in one.logs]
    found = [one for one in metadata_differences(to.table) if one.aspect == "ts"]
    assert [(one.path, one.stored) for one in found] == [(log.path, "no statistics")]
    assert storage.head(log.path) is not None


def test_a_file_without_statistics_is_read_and_has_them_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = new_storage()
    make(storage, TableType.COPY_ON_WRITE)
    to = writer(storage)
    with monkeypatch.context() as patch:
        patch.setattr(commit_statistics, "encode_column_statistics", lambda *_: NOTHING)
        commit(to, [Row(f"k{n}", n, n) for n in range(8)])
    untold = {one.path for one in metadata_differences(to.table)}
    assert len(untold) == 2
    to = writer(storage)  # the other writer knows the ranges of its files
    commit(to, [Row("k0", 50, 50)])
    assert _of_partition(to, "ts") == (1, 50, 8)
    (replaced,) = {one.path for one in metadata_differences(to.table)}
    assert replaced not in {one.base.path for one in to.table.view().latest_slices() if one.base}


def test_a_writer_that_began_before_the_metadata_table_existed_records_its_statistics() -> None:
    storage = new_storage()
    make_plain(storage)
    to = writer(storage)
    commit(to, [Row(f"k{n}", n, n) for n in range(8)])
    assert keep_metadata_table(writer(storage).table) == "there is none"
    commit(to, [Row("k0", 50, 50)])
    assert _of_partition(to, "ts") == (0, 50, 9)
    assert metadata_differences(writer(storage).table) == []


@pytest.mark.parametrize(
    ("indexed", "reason"),
    [
        (["ts"], "it has no statistics of column _hoodie_commit_time"),
        (["unknown"], "it has no statistics of column _hoodie_commit_time"),
        ([*OWN, "id", "region", "ts", "v"], None),
        ([*OWN, "id", "region", "ts", "v", "dropped"], None),
        ([*OWN, "id", "region", "ts", "v", "v.x"], "column v.x, which lakemark omits"),
    ],
)
def test_statistics_of_other_columns_are_rebuilt(indexed: list[str], reason: str | None) -> None:
    storage, to = table(1)
    version = to.table.version.column_statistics
    define_column_statistics(storage, indexed, version, lambda: None)
    rebuilt = keep_metadata_table(writer(storage).table)
    assert (rebuilt is None) == (reason is None) and (reason or "") in (rebuilt or "")
    assert len(read_definitions(storage)["column_stats"].source_fields) >= 7


def test_a_column_that_a_partition_has_no_statistics_of_is_looked_up_in_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage, to = table()

    def without_ts(
        partitions: Sequence[StatisticsEntry], version: str, *, is_tight: bool
    ) -> RecordChanges:
        rows = ColumnRanges.of(pa.table({"_hoodie_record_key": ["k"]}), ["_hoodie_record_key"])
        recorded = [one._replace(ranges=rows) for one in partitions]
        return encode_partition_statistics(recorded, version, is_tight=is_tight)

    with monkeypatch.context() as patch:
        patch.setattr(commit_statistics, "encode_partition_statistics", without_ts)
        commit(to, [Row(f"k{n}", n, n) for n in range(8)])
    to = writer(storage)
    commit(to, [Row("k0", 50, 50)])
    assert _of_partition(to, "ts") == (0, 50, 9)
    assert metadata_differences(to.table) == []


def test_loose_bounds_and_statistics_of_deleted_files_are_differences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage, to = table(1)
    wide = ColumnRanges.of(pa.table({"ts": [-1, 1]}), ["ts"])

    def widened(
        partitions: Sequence[StatisticsEntry], version: str, *, is_tight: bool
    ) -> RecordChanges:
        both = [one._replace(ranges=ColumnRanges.union([one.ranges, wide])) for one in partitions]
        return encode_partition_statistics(both, version, is_tight=is_tight)

    with monkeypatch.context() as patch:
        patch.setattr(commit_statistics, "encode_partition_statistics", widened)
        commit(to, [Row("a", 2, 2)])
    (found,) = metadata_differences(to.table)
    assert (found.path, found.aspect) == ("north/", "ts") and "min -1" in found.stored
    compact(to)
    assert metadata_differences(to.table) == [], "a compaction makes them anew"
    commit(to, [Row("a", 3, 3)])
    monkeypatch.setattr(metadata_writer, "delete_column_statistics", lambda *_: NOTHING)
    (cleaned,) = clean(to.table, CleaningPolicy(commits=1))
    gone = {one.path for one in metadata_differences(writer(storage).table)}
    assert gone == {path.rpartition("/")[2] for path in cleaned.plan.paths}


@pytest.mark.parametrize("table_type", TableType)
def test_a_file_without_rows_does_not_empty_the_statistics_of_its_partition(
    table_type: TableType,
) -> None:
    """The partition keeps its statistics, without which Apache Hudi would skip it in queries."""
    storage, (small, large) = new_storage(), keys_of_two_buckets()
    make(storage, table_type)
    commit(writer(storage), [Row(small, 1, 1), Row(large, 1, 1), Row("s", 1, 1, "south")])
    to = writer(storage)
    commit(to, [Row(small, 2, 2, kind=ChangeKind.DELETE)])
    if table_type is TableType.MERGE_ON_READ:
        compact(writer(storage))
    assert metadata_differences(writer(storage).table) == []
    assert contents(storage) == {large: (1, 1), "s": (1, 1)}


def test_a_partition_without_statistics_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check reports a partition without statistics, which Apache Hudi would skip in queries."""
    _, to = table(1)
    with monkeypatch.context() as patch:
        patch.setattr(commit_statistics, "encode_partition_statistics", lambda *_, **__: NOTHING)
        commit(to, [Row("s", 2, 2, "west")])
    found = {(one.path, one.aspect, one.stored) for one in metadata_differences(to.table)}
    assert ("west/", "ts", "no statistics") in found
    assert {path for path, _, _ in found} == {"west/"}


def _of_partition(to: TableWriter, column: str) -> tuple[int, int, int]:
    """Return the bounds and the value count of the only partition that has rows."""
    properties = writer(to.table.storage).table.properties
    metadata = open_metadata_table(to.table.storage, properties, to.table.store.load(), UTC_CLOCK)
    assert metadata is not None
    (row,) = PartitionStatistics(metadata).of_column(column, pa.int64()).to_pylist()
    return row["min"], row["max"], row["value_count"]
