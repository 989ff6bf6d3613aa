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

from lakemark.errors import HudiError
from lakemark.storage import durability
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
def test_process_continues_after_another_process_rolled_back_its_commit(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process continues after a file could not be forced, if another process deleted it."""
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
    with monkeypatch.context() as patch:  # the other process has its own list of files to force
        patch.setattr(durability, "_of_roots", {})
        scenario.recover(root, unchanged)
    durability.sync_process()
    scenario.run_next_process(root, unchanged)
    assert scenario.rows(root) == scenario.states[-1]
