"""A writer that keeps the ranges of files commits the same statistics as one that reads them."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.column_stats.derive import FileRange
from lakemark.metadata.column_stats.known_files import KnownFiles
from lakemark.metadata.column_stats.lookup import PartitionStatistics
from lakemark.metadata.metadata_table_opener import open_metadata_table
from lakemark.model.action import Action, State
from lakemark.model.changes import ChangeKind
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_names import BaseFileName
from lakemark.model.file_slice import BaseFile
from lakemark.model.instant import Instant
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.timeline import Timeline
from tests.depth import examples
from tests.storages.counting_storage import CountingStorage
from tests.table_services import new_storage
from tests.tables import Row, commit, make, write_files, writer

COLUMNS = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
KINDS = st.sampled_from([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.DELETE])
PARTITIONS = st.sampled_from(["north", "south"])

Rows: TypeAlias = list[tuple[str, int, str, ChangeKind]]

ROWS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(-9, 9), PARTITIONS, KINDS),
    min_size=1,
    max_size=5,
    unique_by=lambda row: row[0],
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), ROWS),
        st.tuples(st.just("commit"), ROWS),
        st.tuples(st.just("abandon"), ROWS),
        st.tuples(st.just("compact"), st.just([])),
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=examples(10), deadline=None)
@given(STEPS, st.sampled_from(TableType))
def test_kept_ranges_give_the_same_statistics_as_ranges_that_are_read(
    steps: list[tuple[str, Rows]], table_type: TableType
) -> None:
    keeping, reading = _made(table_type), _made(table_type)
    for number, (step, rows) in enumerate(steps):
        reading.table.metadata_writer.forget(reading.table.properties)
        for to in (keeping, reading):
            _do(to, step, [Row(key, number, v, path, kind) for key, v, path, kind in rows])
        assert _statistics(keeping) == _statistics(reading)


def test_a_commit_that_replaces_files_reads_no_statistics() -> None:
    storage = CountingStorage(new_storage())
    make(storage, TableType.COPY_ON_WRITE)
    to = writer(storage)
    commit(to, [Row("a", 1, 9), Row("h", 1, 1)])
    storage.forget()
    commit(to, [Row("a", 2, 2)])
    for partition in ("column_stats", "partition_stats"):
        assert not storage.count("open", under=f".hoodie/metadata/{partition}")
    assert metadata_differences(to.table) == []


def test_a_compaction_after_the_last_commit_reads_no_statistics() -> None:
    storage = CountingStorage(new_storage())
    make(storage, TableType.MERGE_ON_READ)
    to = writer(storage)
    for number in range(3):
        commit(to, [Row("a", number, 9 - number), Row("h", number, 1)])
        storage.forget()
        assert to.compact_if_due(CompactionPolicy(after_commits=1), LocalRunner(1)) or not number
        assert not storage.count("open", under=".hoodie/metadata")
    assert metadata_differences(to.table) == []


def test_a_compaction_beside_commits_forgets_the_files() -> None:
    known, columns = KnownFiles(), pa.schema([("v", pa.int64())])
    first, second, last = _replacement(1), _replacement(2), _replacement(3)
    planned = Instant(last[0].requested_at, Action.COMPACTION, State.REQUESTED)
    known.add_new_partitions([""])
    known.add_derived("", [_file("f", 1)])
    known.add_commit(first, Timeline(()), [""])
    done = first[0].completed("20260101000000009")
    beside = Timeline.of([done, planned])
    known.forget_outdated(beside, planned)
    assert known.remaining([""], last, beside, columns)
    known.forget_outdated(beside, second[0])
    assert not known.remaining([""], last, beside, columns)


def test_files_are_forgotten_if_the_last_commit_did_not_complete() -> None:
    known, columns = KnownFiles(), pa.schema([("v", pa.int64())])
    first, second = _replacement(1), _replacement(2)
    known.add_new_partitions([""])
    known.add_derived("", [_file("f", 1)])
    known.add_commit(first, Timeline(()), [""])
    done = Timeline((first[0].completed("20260101000000009"),))
    known.forget_outdated(done, second[0])
    assert known.remaining([""], second, done, columns)
    known.forget_outdated(Timeline((first[0],)), second[0])
    assert not known.remaining([""], second, done, columns)


def test_the_partitions_that_were_changed_longest_ago_are_forgotten_first() -> None:
    known, columns = KnownFiles(max_ranges=2), pa.schema([("v", pa.int64())])
    for path in ("x", "y", "z"):
        known.add_derived(path, [_file("f", 1)])
    known.add_commit(_replacement(1), Timeline(()), ["x"])
    assert {*known.remaining("xyz", _replacement(2), Timeline(()), columns)} == {"x", "z"}


def _made(table_type: TableType) -> TableWriter:
    storage = new_storage()
    make(storage, table_type)
    return writer(storage)


def _do(to: TableWriter, step: str, rows: list[Row]) -> None:
    if step == "commit":
        commit(to, rows)
    elif step == "abandon":
        write_files(to, rows)
        to.abandon()
    else:
        to.compact_if_due(CompactionPolicy(after_commits=1), LocalRunner(1))


def _statistics(to: TableWriter) -> list[dict[str, object]]:
    table = to.table
    metadata = open_metadata_table(table.storage, table.properties, table.timeline, UTC_CLOCK)
    assert metadata is not None
    found = (PartitionStatistics(metadata).of_column(one.name, one.type) for one in COLUMNS)
    return [row for rows in found for row in sorted(rows.to_pylist(), key=str)]


def _replacement(number: int) -> tuple[Instant, CommitMetadata]:
    return Instant(f"2026010100000000{number}", Action.COMMIT, State.INFLIGHT), CommitMetadata()


def _file(file_id: str, value: int) -> FileRange:
    name = BaseFileName(file_id, "0-0-0", "20260101000000000")
    ranges = ColumnRanges.of(pa.table({"v": [value]}), ["v"])
    return FileRange(BaseFile("", name, 1), ranges)
