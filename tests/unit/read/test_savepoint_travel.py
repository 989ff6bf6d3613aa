"""Time travel to a savepoint works, although cleaning no longer retains its state."""

from __future__ import annotations

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig
from lakemark.execution.runner import LocalRunner
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.savepoint import create_savepoint, delete_savepoint
from lakemark.storage import Storage
from tests.table_services import as_of, make_plain, new_storage
from tests.tables import Row, commit, writer

CLEANING = CleaningPolicy(commits=1)
KINDS = [
    (TableType.COPY_ON_WRITE, FormatVersion.V9),
    (TableType.MERGE_ON_READ, FormatVersion.V9),
    (TableType.MERGE_ON_READ, FormatVersion.V8),
    (TableType.MERGE_ON_READ, FormatVersion.V6),
]
each_kind = pytest.mark.parametrize(("table_type", "version"), KINDS)

Rows = dict[str, tuple[int, int]]


class History:
    """A table with commits and some compactions, and its rows as of each commit."""

    def __init__(self, table_type: TableType, version: FormatVersion) -> None:
        self.storage: Storage = new_storage()
        make_plain(self.storage, table_type, version)
        self.to: TableWriter = writer(self.storage)
        self.commits: list[Instant] = []
        self.seen: dict[str, Rows] = {}

    def write(self, number: int) -> Instant:
        rows = [Row(key, number, number) for key in "abcd"[: 2 + number % 3]]
        done = commit(self.to, [*rows, Row(f"k{number}", number, number, "south")])
        self.commits.append(done)
        self.seen[done.requested_at] = as_of(writer(self.storage).table, done.requested_at)
        return done

    def compact(self) -> None:
        self.to.compact_if_due(CompactionPolicy(1), LocalRunner(1))

    def save(self, instant: Instant) -> None:
        slices = self.to.table.view().as_of(instant.requested_at).latest_slices()
        create_savepoint(self.to.table.context, instant.requested_at, lambda *_: slices, "", "")
        self.to = writer(self.storage)

    def expire(self) -> None:
        """Write and clean until no file of the current state is retained."""
        for number in range(10, 14):
            self.write(number)
            self.compact()
            clean(self.to.table, CLEANING)


def made(table_type: TableType, version: FormatVersion) -> tuple[History, Instant]:
    history = History(table_type, version)
    history.write(1)
    history.compact()
    history.write(2)
    saved = history.write(3)
    history.save(saved)
    history.write(4)
    history.expire()
    return history, saved


@each_kind
def test_savepoint_state_is_readable_and_other_cleaned_times_are_refused(
    table_type: TableType, version: FormatVersion
) -> None:
    history, saved = made(table_type, version)
    archive(history.to.table, ArchivalPolicy(1, 2, delta_commits_to_compact=1), CLEANING)
    fresh = writer(history.storage).table
    assert as_of(fresh, saved.requested_at) == history.seen[saved.requested_at]
    for other in history.commits[:4]:
        if other is not saved:
            with pytest.raises(InvalidConfig, match="was cleaned"):
                as_of(fresh, other.requested_at)
    after = str(int(saved.requested_at) + 1)
    with pytest.raises(InvalidConfig, match="was cleaned"):
        as_of(fresh, after)
    delete_savepoint(fresh.context, saved.requested_at)
    with pytest.raises(InvalidConfig, match="was cleaned"):
        as_of(writer(history.storage).table, saved.requested_at)


@each_kind
def test_savepoint_of_an_older_commit_reads_the_state_of_that_commit(
    table_type: TableType, version: FormatVersion
) -> None:
    history = History(table_type, version)
    history.write(1)
    saved = history.write(2)
    history.write(3)
    history.save(saved)
    history.expire()
    fresh = writer(history.storage).table
    assert as_of(fresh, saved.requested_at) == history.seen[saved.requested_at]


@each_kind
def test_savepoint_with_a_missing_file_is_refused(
    table_type: TableType, version: FormatVersion
) -> None:
    history, saved = made(table_type, version)
    store = history.to.table.store
    (savepoint,) = (i for i in store.load().instants if i.action.value == "savepoint")
    files = store.read_savepoint(savepoint).files
    paths = [f"{partition}/{name}" for partition, names in files.items() for name in names]
    for path in paths:
        content = history.storage.read(path)
        history.storage.delete([path])
        with pytest.raises(InvalidConfig, match="was cleaned"):
            as_of(writer(history.storage).table, saved.requested_at)
        history.storage.put(path, content)
