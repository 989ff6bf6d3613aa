"""Stale listings: queries and writers keep the promises of docs/guarantees.md about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Fenced, Retriable, SnapshotChanged
from lakemark.execution.runner import LocalRunner
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.rollback import recover
from tests.protocol.virtual_time import VirtualTime, on_virtual_time
from tests.storages.stale_listings import StaleListings
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, contents, data_files, make, write_files, writer
from tests.unit.transaction.shared_table import Table

TIMELINE = ".hoodie/timeline"
METADATA = ".hoodie/metadata"

Rows = dict[str, tuple[int, int]]

#: Which listings are stale.
STALE: dict[str, Callable[[str], bool]] = {
    "all": lambda folder: True,
    "timeline": lambda folder: folder == TIMELINE,
    "both timelines": lambda folder: folder in (TIMELINE, f"{METADATA}/{TIMELINE}"),
    "all of the table": lambda folder: not folder.startswith(METADATA),
}


@dataclass
class History:
    """Records a store with stale listings, and the rows of the table, after each step."""

    storage: Storage
    which: str
    moments: list[tuple[StaleListings, Rows]] = field(default_factory=list)

    def note(self) -> None:
        stale = StaleListings(self.storage, STALE[self.which])
        self.moments.append((stale, contents(self.storage)))

    def write(self, deletes: bool) -> None:
        """Commit new and old keys, and compact; with ``deletes`` also clean and archive."""
        for number in range(8):
            rows = [Row("a", number, number), Row(f"k{number}", number, number, region="south")]
            commit(writer(self.storage), rows)
            self.note()
            if number % 2:
                writer(self.storage).compact_if_due(CompactionPolicy(2), LocalRunner(1))
                self.note()
                if deletes:
                    self._delete()

    def _delete(self) -> None:
        clean(writer(self.storage).table, CleaningPolicy(commits=2))
        self.note()
        archive(writer(self.storage).table, ArchivalPolicy(3, 4, delta_commits_to_compact=1), None)
        self.note()


@pytest.fixture(params=STALE)
def which(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=[True, False], ids=["metadata table", "no metadata table"])
def has_metadata(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


@pytest.fixture(params=TableType)
def history(request: pytest.FixtureRequest, has_metadata: bool, which: str) -> History:
    storage = new_storage()
    (make if has_metadata else make_plain)(storage, request.param)
    return History(storage, which)


def test_query_with_a_stale_timeline_returns_the_rows_of_that_time(history: History) -> None:
    history.write(deletes=False)
    for stale, rows in history.moments:
        assert contents(stale) == rows
    assert history.moments[0][0].shown


def test_query_with_a_stale_timeline_returns_no_wrong_rows_after_cleaning(
    history: History, has_metadata: bool, which: str
) -> None:
    """A query returns the right rows, or fails.

    It fails if the listing of the partitions is stale, too, and names a deleted file.
    """
    history.write(deletes=True)
    lists_old_partitions = not has_metadata and which.startswith("all")
    failed = 0
    for stale, rows in history.moments:
        try:
            found = contents(stale)
        except SnapshotChanged:
            failed += 1
        else:
            assert found.items() <= rows.items()
            assert found == rows or not lists_old_partitions
    assert failed < len(history.moments)
    assert failed or not lists_old_partitions


@pytest.mark.parametrize("table_type", TableType)
def test_query_with_a_metadata_table_lists_no_partition(table_type: TableType) -> None:
    storage = new_storage()
    make(storage, table_type)
    commit(writer(storage), [Row("a", 1, 1)])
    stale = StaleListings(storage, lambda folder: not folder.startswith(".hoodie"))
    commit(writer(storage), [Row("a", 2, 2), Row("b", 2, 2), Row("c", 2, 2, region="south")])
    assert contents(stale) == {"a": (2, 2), "b": (2, 2), "c": (2, 2)}
    assert not stale.shown


@pytest.fixture
def clock() -> Iterator[VirtualTime]:
    with on_virtual_time() as virtual:
        yield virtual


def test_writer_is_rolled_back_and_fenced_if_its_heartbeat_is_not_listed(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    before = StaleListings(table.storage, lambda folder: folder == HEARTBEAT_FOLDER)
    living = table.open()
    written = write_files(living, [Row("b", 2, 2)])
    assert recover(table.open(before).table.context) == [], "its instant is not old enough"
    table.wait_until_dead(living)
    assert recover(table.open().table.context) == [], "its heartbeat is alive"
    assert recover(table.open(before).table.context) == [living.pending_instant]
    assert before.shown
    with pytest.raises((Fenced, Retriable)):
        living.commit(written, {})
    assert table.rows() == {"a": 1}
    assert not [path for path in data_files(table.storage) if living.pending_instant in path]
