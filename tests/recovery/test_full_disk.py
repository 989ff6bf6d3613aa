"""The disk is full when a small file or a name is written, or a file is forced to the disk.

No file is incomplete, and the process continues once there is room again.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark.errors import DiskFull, HudiError
from lakemark.storage import StorageLocation, durability, open_storage
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock
from lakemark.timeline.locks.table_lock import SystemClock, TableLock
from tests.depth import sample
from tests.recovery.checked import Checked
from tests.recovery.scenarios import SCENARIOS, prepared_tables, unchanged
from tests.recovery.stores import OnDisk, transfer


class FullAt:
    """A function of the operating system that fails one of its calls, because the disk is full."""

    def __init__(self, call: Callable[..., object], nth: int | None) -> None:
        self._call, self._nth, self.calls = call, nth, 0

    def __call__(self, *given: object) -> object:
        number, self.calls = self.calls, self.calls + 1
        if number == self._nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._call(*given)


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Force files one by one, so that the same call number always means the same file."""
    monkeypatch.setattr(durability, "_THREADS", 1)


@pytest.mark.parametrize("function", ["write", "link", "fsync"])
def test_next_process_finishes_a_commit_that_failed_on_a_full_disk(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, store = SCENARIOS["commit"], OnDisk(tmp_path)
    origin = store.new()
    transfer(prepared_tables("commit"), origin)
    checked = Checked(scenario, store, scenario.states)

    def act(nth: int | None) -> int:
        root, is_done = store.copy(origin), True
        with monkeypatch.context() as patch:
            full = FullAt(getattr(os, function), nth)
            patch.setattr(os, function, full)
            try:
                scenario.act(root, unchanged)
            except HudiError:
                is_done = False
        with monkeypatch.context() as patch:  # the next process has its own list of files to force
            patch.setattr(durability, "_of_roots", {})
            checked.check(root, f"no room for {function} {nth}", is_done)
        return full.calls

    for nth in sample(range(act(None)), one_in=2):
        act(nth)


@pytest.mark.parametrize(
    "place",
    [
        r"/west/.*\.parquet",
        r"/north/\..*\.log\..*",
        r"/west",
        r"/\.hoodie/\.aux/prepared/\d+",
        r"/\.hoodie/metadata/files/\..*\.log\..*",
    ],
)
@pytest.mark.parametrize("recovers", ["another process", "the same process"])
def test_process_continues_after_a_file_could_not_be_forced(
    place: str, recovers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback deletes the file, whichever process rolls back, and then the process continues."""
    scenario, root = SCENARIOS["commit"], OnDisk(tmp_path).new()
    transfer(prepared_tables("commit"), root)
    failed: list[str] = []

    def fsync(descriptor: int) -> None:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
        if not failed and re.fullmatch(f"{root.url}/table{place}", target):
            failed.append(target)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(HudiError, match="is full"):
        scenario.act(root, unchanged)
    with monkeypatch.context() as patch:
        if recovers == "another process":  # it has its own list of files to force
            patch.setattr(durability, "_of_roots", {})
        scenario.recover(root, unchanged)
    durability.sync_process()
    scenario.run_next_process(root, unchanged)
    assert scenario.rows(root) == scenario.states[-1]


class FullFrom(FullAt):
    """A function of the operating system that fails from one of its calls on."""

    def __call__(self, *given: object) -> object:
        if self._nth is not None and self.calls >= self._nth:
            return _fail(0, memoryview(b""))
        return super().__call__(*given)


def _fail(descriptor: int, data: memoryview) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _Impatient(SystemClock):
    """A clock on which no one may wait."""

    def sleep(self, seconds: float) -> None:
        pytest.fail(f"waits {seconds} s")


def _lock(root: Path, provider: LockProviderName) -> TableLock:
    return open_lock(open_storage(StorageLocation(str(root))), provider=provider)


@pytest.mark.parametrize("provider", [LockProviderName.STORAGE, LockProviderName.FILE_SYSTEM])
def test_lock_is_released_on_a_full_disk(
    provider: LockProviderName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):  # the first lock file, and one with an older file next to it
        with (
            pytest.raises(DiskFull, match=f"the disk of {tmp_path} is full"),
            monkeypatch.context() as patch,
            _lock(tmp_path, provider).hold(wait_s=0),
        ):
            patch.setattr(os, "write", _fail)
            open_storage(StorageLocation(str(tmp_path))).create("a", b"1")
        for _ in range(2):
            _lock(tmp_path, provider).acquire(wait_s=0).release()


@pytest.mark.parametrize("nth", range(2))
def test_lock_that_could_not_be_acquired_on_a_full_disk_is_free(
    nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first file is that of lakemark's lock, the second one that of Apache Hudi's lock."""
    lock = _lock(tmp_path, LockProviderName.FILE_SYSTEM)
    with monkeypatch.context() as patch, pytest.raises(DiskFull):
        patch.setattr(os, "write", FullFrom(os.write, nth))
        lock.acquire(wait_s=90)
    lock.acquire(wait_s=0).release()


def test_writer_does_not_wait_for_a_lock_whose_file_does_not_fit_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = open_lock(open_storage(StorageLocation(str(tmp_path))), clock=_Impatient())
    monkeypatch.setattr(os, "write", _fail)
    with pytest.raises(DiskFull, match="free space on it"):
        lock.acquire(wait_s=90)
