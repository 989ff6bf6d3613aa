"""Two archivers, of which the first lost the lock while it was paused: the history stays intact.

The first is paused before each of its reads and writes in turn. Meanwhile its lease expires and a
second process archives. Then the first resumes. In another test the first gets no answer to one of
its writes, and the second continues from the files that it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from lakemark.errors import Retriable
from lakemark.model.format_version import FormatVersion
from lakemark.operations.archive import archive
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.storage import Storage
from lakemark.timeline import timeline_store
from lakemark.timeline.lsm_history import LsmHistory
from lakemark.timeline.lsm_manifest import VERSION_FILE
from lakemark.timeline.lsm_writer import HistorySettings, LsmWriter
from tests.clocks import SharedClock, on_clock
from tests.depth import sample
from tests.recovery.stores import OnDisk, storage_at
from tests.storages import CountingStorage, FaultyStorage, WatchedStorage
from tests.storages.faulty_storage import When
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import (
    HISTORY,
    active_names,
    archived_names,
    copy_of,
    make_plain,
    new_storage,
    since,
)
from tests.tables import Row, commit, contents, writer

T = TypeVar("T")

POLICY = ArchivalPolicy(2, 3, delta_commits_to_compact=1)
MERGES_SOON = HistorySettings(files_to_merge=2)


class StoppedStorage(WrappedStorage):
    """Pauses its process before call number ``nth`` while others act."""

    def __init__(self, inner: Storage, nth: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self._calls, self._nth, self._meanwhile = 0, nth, meanwhile

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        self._calls += 1
        if self._calls - 1 == self._nth:
            self._meanwhile()
        return call()

    _writing = _reading


class Table:
    """One table, and how many commits it has."""

    def __init__(self, storage: Storage, committed: int = 0) -> None:
        self.storage, self.committed, self.clock = storage, committed, SharedClock()

    def commit(self, count: int = 1) -> None:
        to = on_clock(writer(self.storage), self.clock)
        for _ in range(count):
            commit(to, [Row(f"k{self.committed}", self.committed, self.committed)])
            self.committed += 1

    def archive(self, storage: Storage | None = None) -> bool:
        """Archive in a new process, and return whether anything was archived."""
        to = on_clock(writer(storage or self.storage), self.clock)
        return archive(to.table, POLICY, None) is not None

    def expire_lease(self) -> None:
        self.clock.sleep(61.0)

    def check(self, what: str) -> None:
        expected = {f"k{n}": (n, n) for n in range(self.committed)}
        assert contents(self.storage) == expected, what
        found = since(writer(self.storage).table, "0")
        assert found == sorted((key, v) for key, (v, _) in expected.items()), what
        archived, active = archived_names(self.storage), active_names(self.storage)
        assert len(set(archived)) == len(archived), what
        assert len({*archived, *active}) == self.committed, what

    def check_after_archival(self, what: str) -> None:
        """Check the table and its history.

        ``_version_`` names the newest manifest, and the files of every manifest exist.
        """
        self.check(what)
        if self.storage.head(f"{HISTORY}/{VERSION_FILE}"):
            history = LsmHistory(self.storage, HISTORY)
            assert history.pointer()[0] == max(history.versions()), what
            listed = {info.name for info in self.storage.list_folder(HISTORY)[1]}
            for version in history.versions():
                assert listed.issuperset(f.name for f in history.manifest(version)), what


def archives_the_same(table: Table) -> None:
    table.expire_lease()
    table.archive()


def archives_more(table: Table) -> None:
    table.expire_lease()
    table.commit(3)
    table.archive()


def archives_often(table: Table) -> None:
    """Archive until the manifest number that the first archiver will create is free again."""
    table.expire_lease()
    for _ in range(4):
        table.commit(2)
        table.archive()


@pytest.fixture(autouse=True)
def _merging_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    def merging_soon(
        storage: Storage, history: LsmHistory, check: Callable[[], None], _: object
    ) -> LsmWriter:
        return LsmWriter(storage, history, check, MERGES_SOON)

    monkeypatch.setattr(timeline_store, "LsmWriter", merging_soon)


Copies = Callable[[], Table]


@pytest.fixture
def copies(kind: str, tmp_path: Path) -> Copies:
    """Create copies of a table that was archived before, and whose next archival is due."""
    version = FormatVersion.V6 if "6" in kind else FormatVersion.V9
    disk = OnDisk(tmp_path) if "disk" in kind else None
    origin = Table(storage_at(disk.new()) if disk else new_storage())
    make_plain(origin.storage, version=version)
    origin.commit(4)
    assert origin.archive()
    origin.commit(2)

    def copy() -> Table:
        storage = origin.storage
        new = storage_at(disk.copy(storage.location)) if disk else copy_of(storage)
        return Table(new, origin.committed)

    return copy


@pytest.mark.parametrize(
    ("kind", "meanwhile"),
    [
        ("memory, version 9", archives_the_same),
        ("memory, version 9", archives_more),
        ("memory, version 9", archives_often),
        ("disk, version 9", archives_more),
        pytest.param("disk, version 9", archives_often, marks=pytest.mark.slow),
        ("disk, version 6", archives_more),
    ],
)
def test_archiver_that_lost_the_lock_does_not_damage_the_history(
    copies: Copies, meanwhile: Callable[[Table], None]
) -> None:
    calls = list(_calls_of_an_archival(copies()))
    for nth, what in sample(calls, _one_in(copies())):
        table = copies()
        with suppress(Retriable):
            table.archive(StoppedStorage(table.storage, nth, partial(meanwhile, table)))
        table.check(what)
        table.commit(2)
        assert table.archive(), what
        table.check_after_archival(what)


@pytest.mark.parametrize("when", ["lost", "doubtful"])
@pytest.mark.parametrize("kind", ["memory, version 9", "disk, version 6"])
def test_next_archiver_continues_after_an_unanswered_write(copies: Copies, when: When) -> None:
    writes = enumerate(_writes_of_an_archival(copies()))
    of_history = [(nth, path) for nth, (_, path) in writes if "/.locks/" not in path]
    for nth, path in sample(of_history, _one_in(copies())):
        table = copies()
        with pytest.raises(Retriable):
            table.archive(FaultyStorage(table.storage, nth, when))
        table.check(path)
        table.expire_lease()
        table.commit(2)
        assert table.archive(), path
        table.check_after_archival(path)


def _one_in(table: Table) -> int:
    """Return how many neighbouring steps one is drawn from: memory is fast, a disk is slower."""
    return 2 if table.storage.location.url.startswith("memory:") else 3


def _calls_of_an_archival(table: Table) -> Iterator[tuple[int, str]]:
    """List its writes, except those of the lock, and its reads of the history."""
    counted = CountingStorage(table.storage)
    assert table.archive(counted)
    for nth, (method, path) in enumerate(counted.requests):
        is_write = method in ("close", "create", "delete", "put", "replace")
        if path.startswith(HISTORY) or (is_write and "/.locks/" not in path):
            yield nth, f"{method} {path}"


def _writes_of_an_archival(table: Table) -> list[tuple[str, str]]:
    writes: list[tuple[str, str]] = []
    watched = WatchedStorage(table.storage, lambda method, path: writes.append((method, path)))
    assert table.archive(watched)
    return writes
