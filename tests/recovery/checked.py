"""Checks that the next process finishes the work of one that stopped at any point."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.operations.open_table import OpenTable
from lakemark.storage import Storage, StorageLocation
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.table_context import LOCK_WAIT_S
from tests.recovery.scenarios import Rows, Scenario
from tests.recovery.stores import ScenarioStore, storage_at
from tests.storages import WatchedStorage
from tests.table_services import HISTORY, archived_names
from tests.tables import data_files

#: Files that are overwritten in place, so that their names do not identify their content.
_OVERWRITTEN = (PROPERTIES_PATH, f"{PROPERTIES_PATH}.backup", f"{HISTORY}/_version_")
_NAMED_AT_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|#\d+")
_LOCKS = re.compile(r"/\.locks/")
_SCRATCH = re.compile(r"/\.(locks|temp|aux)/")
_TIME = re.compile(r"\d{17}")


@dataclass
class Checked:
    """Checks the tables of a scenario, and remembers which it has checked.

    Attributes:
        scenario: the scenario.
        store: holds its tables.
        states: the rows that queries may find.
        seen: the numbers of the states that queries have found.
        compares_sizes: whether tables whose files differ only in size are checked separately.
    """

    scenario: Scenario
    store: ScenarioStore
    states: Sequence[Rows]
    seen: set[int] = field(default_factory=set)
    compares_sizes: bool = False
    _left: dict[str, int] = field(default_factory=dict)
    _allows_rebuild: bool = False
    _ended: set[str] = field(default_factory=set)

    def check(
        self,
        root: StorageLocation,
        what: str,
        is_done: bool = False,
        *,
        allows_rebuild: bool = False,
    ) -> None:
        """Check a table after a process stopped.

        Args:
            root: the location of the table.
            what: what happened to the process.
            is_done: whether the process succeeded.
            allows_rebuild: whether the next process may build the metadata table again.
        """
        self._allows_rebuild = allows_rebuild
        sizes = _sizes(root) if self.compares_sizes else ""
        files = f"{_describe_files(root)}\n{sizes}\n{allows_rebuild}"
        if files not in self._left:
            self._left[files] = self._check_recovery(root, what)
        self.seen.add(self._left[files])
        assert not is_done or self.states[self._left[files]] == self.states[-1], what
        self.store.drop(root)

    def _check_recovery(self, root: StorageLocation, what: str) -> int:
        """Have the next process recover and finish; return the number of the state before it."""
        scenario, left = self.scenario, self.scenario.rows(root)
        assert left in self.states, what
        files = _describe_files(root)
        scenario.recover(root, self._watched)
        if _describe_files(root) != files:
            assert scenario.rows(root) in (left, self.states[-1]), what
        scenario.run_next_process(root, self._watched)
        assert scenario.rows(root) == self.states[-1], what
        assert scenario.has_acted(root), what
        for table in scenario.tables(root):
            _check_nothing_is_left(table, what)
        ended = _describe_files(root, has_scratch=False)
        if ended not in self._ended:
            self._ended.add(ended)
            self._check_next_write(root, what)
        return self.states.index(left)

    def _watched(self, storage: Storage) -> Storage:
        return WatchedStorage(storage, self._check_metadata_is_kept)

    def _check_metadata_is_kept(self, method: str, path: str) -> None:
        is_rebuild = path == f"{METADATA_FOLDER}/{PROPERTIES_PATH}"
        is_allowed = self.scenario.makes_metadata or self._allows_rebuild
        assert is_allowed or not is_rebuild, "the metadata table is rebuilt"

    def _check_next_write(self, root: StorageLocation, what: str) -> None:
        expected = self.scenario.write_more(root)
        assert self.scenario.rows(root) == expected, what
        for table in self.scenario.tables(root):
            table.context.lock.acquire(0.0).release()
            _check_nothing_is_left(table, what)
            assert metadata_differences(table) == [], what


def _check_nothing_is_left(table: OpenTable, what: str) -> None:
    """Check that no pending instant, heartbeat or orphan remains, and that the lock is free."""
    storage, timeline = table.storage, table.timeline
    assert not timeline.pending(), what
    assert not storage.list_folder(HEARTBEAT_FOLDER)[1], what
    completed = {i.requested_at for i in timeline.completed() if i.action.is_write}
    known = completed | {name for name, _ in archived_names(storage)}
    assert {_TIME.findall(path)[-1] for path in data_files(storage)} <= known, what
    table.context.lock.acquire(LOCK_WAIT_S).release()
    if table.properties.metadata_partitions:
        assert keep_metadata_table(table) is None, what


def _describe_files(root: StorageLocation, has_scratch: bool = True) -> str:
    """Describe the files below a root; equal for tables that differ only in times and ids."""
    storage = storage_at(root)
    skipped = _LOCKS if has_scratch else _SCRATCH
    found = (info.path for info in storage.list_tree(""))
    lines = [path for path in found if not skipped.search(path)]
    for path in [path for path in lines if path.endswith(_OVERWRITTEN)]:
        lines += [line for line in storage.read(path).decode().split() if line[0] != "#"]
    text = "\n".join(lines)
    ranks = {time: str(rank) for rank, time in enumerate(sorted(set(_TIME.findall(text))))}
    text = _NAMED_AT_RANDOM.sub("*", _TIME.sub(lambda found: ranks[found[0]], text))
    return "\n".join(sorted(text.split("\n")))


def _sizes(root: StorageLocation) -> list[int]:
    return [info.size_bytes for info in storage_at(root).list_tree("")]
