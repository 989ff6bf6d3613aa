"""A compaction of the metadata table that knows its logs writes what one that reads them writes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.recent_logs import RecentLogs
from lakemark.metadata.record_changes import RecordChanges
from lakemark.model.changes import ChangeKind
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import LogFile
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from tests.depth import examples
from tests.storages.counting_storage import CountingStorage
from tests.table_services import new_storage
from tests.tables import Row, commit, make, write_files, writer

KINDS = st.sampled_from([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.DELETE])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "commit", "abandon", "compact", "clean"]),
        st.sampled_from("abcdefgh"),
        st.sampled_from(["north", "south", "east"]),
        KINDS,
    ),
    min_size=EVERY_DELTA_COMMITS,
    max_size=3 * EVERY_DELTA_COMMITS,
)


@settings(max_examples=examples(8), deadline=None)
@given(STEPS, st.sampled_from(TableType))
def test_compactions_that_know_their_logs_keep_every_record(
    steps: list[tuple[str, str, str, ChangeKind]], table_type: TableType
) -> None:
    storage = new_storage()
    make(storage, table_type)
    to = writer(storage)
    for number in range(2 * EVERY_DELTA_COMMITS):  # the first compaction also has older logs
        commit(to, [Row("a", number, number)])
    for number, (step, key, partition, kind) in enumerate(steps, start=100):
        _do(to, step, Row(key, number, number, partition, kind))
    for number in range(2 * EVERY_DELTA_COMMITS):
        commit(to, [Row("z", 1000 + number, number)])
    assert metadata_differences(writer(storage).table) == []


def test_the_logs_of_the_own_commits_are_not_read_again() -> None:
    storage = CountingStorage(new_storage())
    make(storage, TableType.MERGE_ON_READ)
    to = writer(storage)
    compacted_at = set()
    for number in range(3 * EVERY_DELTA_COMMITS):
        storage.forget()
        commit(to, [Row("a", number, 1)])
        if (compaction := to.table.metadata_writer.compacted_at) not in compacted_at:
            compacted_at.add(compaction)
            # the first compaction reads the logs with which the table was created
            if len(compacted_at) > 2:
                paths = [one.path for one in storage.requests if one.method == "open"]
                assert [path for path in paths if ".log." in path] == []
    assert len(compacted_at) > 2


def test_too_many_changes_are_not_kept() -> None:
    known, small, large = RecentLogs(max_bytes=200), _changes(100), _changes(150)
    log = LogFile("files", LogFileName("files-0000-0", "20260101000000000", 1, "0-0-0"), 7)
    known.add(log.path, 7, small)
    assert known.find([log]) == [small]
    assert known.find([replace(log, size_bytes=8)]) is None
    known.add("other", 1, large)
    known.add(log.path, 7, small)  # but the compaction would have to read the other log
    assert known.find([log]) is None
    known.clear()
    known.add(log.path, 7, small)
    assert known.find([log]) == [small]


def _changes(size_bytes: int) -> RecordChanges:
    return RecordChanges.of([b"k"], pa.array([b"v" * size_bytes], pa.large_binary()))


def _do(to: TableWriter, step: str, row: Row) -> None:
    if step == "commit":
        commit(to, [row])
    elif step == "abandon":
        write_files(to, [row])
        to.abandon()
    elif step == "compact":
        to.compact_if_due(CompactionPolicy(after_commits=1), LocalRunner(1))
    else:
        clean(to.table, CleaningPolicy(commits=2))
