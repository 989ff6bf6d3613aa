"""The power fails at any write to a local disk: the next process finishes the work.

An undisturbed run of a scenario derives, before each write and at its end, what a power failure
would leave. Everything that was not forced to the disk is lost, or only the content of files, or a
random part. In each case acknowledged results survive, no file is incomplete, and the next process
finishes the work, as in ``test_every_write``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from lakemark.storage import StorageLocation
from tests.depth import EVERYTHING, SEED, examples
from tests.recovery.checked import Checked
from tests.recovery.scenarios import SCENARIOS, prepared_tables
from tests.recovery.stores import OnDisk, transfer
from tests.storages import WatchedStorage
from tests.storages.forgetful_disk import Contents, Everything, ForgetfulDisk, Loss, Some

#: Scenarios of ``make test``, and before how many of their writes the power fails.
_USUAL = {
    "commit": 4,
    "compaction": 2,
    "archival": 3,
    "rollback of a commit": 2,
    "upgrade": 2,
}


@pytest.mark.parametrize("name", SCENARIOS if EVERYTHING else _USUAL)
def test_acknowledged_results_survive_a_power_failure_at_any_write(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, store = SCENARIOS[name], OnDisk(tmp_path)
    root = store.new()
    transfer(prepared_tables(name), root)
    states = scenario.states or [scenario.rows(root)]
    checked = Checked(scenario, store, states, compares_sizes=True)
    (tmp_path / "vault").mkdir()
    left: list[tuple[str, StorageLocation]] = []
    with monkeypatch.context() as patch:
        disk = ForgetfulDisk(Path(root.url), tmp_path / "vault", patch)

        def fail_now(what: str) -> None:
            left.extend((what, found) for found in _after_power_failure(disk, tmp_path, len(left)))

        scenario.act(
            root, lambda inner: WatchedStorage(inner, lambda *call: fail_now(f"before {call}"))
        )
        acknowledged = len(left)
        fail_now("at the end")
    assert disk.forced
    for number in sorted({*_chosen(name, acknowledged), *range(acknowledged, len(left))}):
        what, found = left[number]
        checked.check(found, f"power failed {what}", is_done=number >= acknowledged)


def _after_power_failure(
    disk: ForgetfulDisk, folder: Path, number: int
) -> Iterator[StorageLocation]:
    losses: tuple[Loss, ...] = (Everything(), Contents(), Some(SEED + number))
    for loss in losses:
        target = folder / uuid4().hex
        disk.after_power_failure(target, loss)
        yield StorageLocation(str(target))


def _chosen(name: str, count: int) -> list[int]:
    wanted = count if EVERYTHING else min(count, examples(3 * _USUAL[name]))
    return Random(SEED).sample(range(count), wanted)
