"""The disk is full at any write of small files, or of a name: nothing is half there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark.errors import HudiError
from tests.depth import sample
from tests.recovery.checked import Checked
from tests.recovery.places import OnDisk, transfer
from tests.recovery.scenarios import SCENARIOS, laid_down, unchanged


class FullAt:
    """A disk that has no room for one of the calls of an operating system's function."""

    def __init__(self, call: Callable[..., object], nth: int | None) -> None:
        self._call, self._nth, self.calls = call, nth, 0

    def __call__(self, *given: object) -> object:
        number, self.calls = self.calls, self.calls + 1
        if number == self._nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._call(*given)


@pytest.mark.parametrize("function", ["write", "link"])
def test_a_commit_on_a_full_disk_is_set_right(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, place = SCENARIOS["commit"], OnDisk(tmp_path)
    origin = place.new()
    transfer(laid_down("commit"), origin)
    checked = Checked(scenario, place, scenario.states)

    def act(nth: int | None) -> int:
        root, is_done = place.copy(origin), True
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
