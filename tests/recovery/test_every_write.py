"""A process that dies, or gets no answer, at any write of anything: the next one sets it right.

One undisturbed run of a scenario is a dry run that counts its writes, and shows the store as it was
before each of them: what a process leaves that dies there, or right after the write before. Then it
runs with an answer missing to a write, of each two neighbours to the one that the seed draws,
whether that was done or never arrived: of the two each write has one on a local disk, and the other
on S3. Whatever is left each time, queries find the model's rows, and a process that starts finishes
the work, without making a metadata table anew that can go on.

States that look alike are set right once: the same files but for times and ids in their names, and
the same content where that is written over. Of many files of one folder that are deleted one after
the other, the first and the last count.

In ``make test-deep`` each write misses an answer in both ways on both stores, and each of
many deletions counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakemark.errors import HudiError
from lakemark.storage import Storage, StorageLocation
from tests.depth import EVERYTHING, sample
from tests.fixtures.quick_s3 import QuickS3
from tests.recovery.checked import Checked
from tests.recovery.places import OnDisk, OnS3, Place, transfer
from tests.recovery.scenarios import SCENARIOS, Scenario, laid_down
from tests.storages import FaultyStorage, WatchedStorage
from tests.storages.faulty_storage import When

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

DOUBTS: tuple[When, ...] = ("lost", "doubtful")

#: Long on a local disk, too; other scenarios make a metadata table as well.
LONG = ("making of the metadata table", "upgrade from version 8")


def cases() -> Iterator[ParameterSet]:
    """Every scenario on either store; on S3 those of the metadata table take long."""
    for name, scenario in SCENARIOS.items():
        for kind in ("local", "S3"):
            is_long = scenario.has_metadata and (kind == "S3" or name in LONG)
            marks = [pytest.mark.slow] if is_long else []
            yield pytest.param(name, kind, id=f"{name}, {kind}", marks=marks)


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if kind == "local":
        return OnDisk(tmp_path)
    server: QuickS3 = request.getfixturevalue("quick_s3")
    return OnS3(server)


@pytest.mark.parametrize(("name", "kind"), list(cases()))
def test_whatever_a_stop_leaves_the_next_process_sets_right(name: str, place: Place) -> None:
    scenario = SCENARIOS[name]
    origin = place.new()
    transfer(laid_down(name), origin)
    states = scenario.states or [scenario.rows(origin)]
    checked = Checked(scenario, place, states)
    assert scenario.rows(origin) == states[0]
    deaths = _deaths(scenario, place, origin)
    for nth, left in deaths.items():
        checked.check(left, f"dead before write {nth}")
    assert checked.seen == set(range(len(states))), "deaths on all sides of what is published"
    for nth in sample(list(deaths)[:-1], one_in=2):
        for when in DOUBTS if EVERYTHING else [DOUBTS[(nth + isinstance(place, OnS3)) % 2]]:
            left = place.copy(origin)
            is_done = _doubt(scenario, left, nth, when)
            checked.check(left, f"write {nth} {when}", is_done)


def _deaths(
    scenario: Scenario, place: Place, origin: StorageLocation
) -> dict[int, StorageLocation]:
    """What a process leaves that dies before its first write, before its second, …, at its end."""
    root = place.copy(origin)
    left: list[StorageLocation] = []
    kinds: list[object] = []

    def before_write(method: str, path: str) -> None:
        left.append(place.copy(root))
        kinds.append(path.rpartition("/")[0] if method == "delete" else len(kinds))

    scenario.act(root, lambda storage: WatchedStorage(storage, before_write))
    assert scenario.has_acted(root)
    assert len(left) > 2
    chosen = range(len(left)) if EVERYTHING else _ends_of_runs(kinds)
    return {nth: left[nth] for nth in chosen} | {len(left): root}


def _ends_of_runs(kinds: Sequence[object]) -> list[int]:
    """The first and the last of equal neighbours: those between leave nothing that is new."""
    last = len(kinds) - 1
    return [n for n in range(len(kinds)) if n in (0, last) or len({*kinds[n - 1 : n + 2]}) > 1]


def _doubt(scenario: Scenario, root: StorageLocation, nth: int, when: When) -> bool:
    """Whether the process came to its end though one answer was missing."""
    process: list[FaultyStorage] = []

    def wrap(storage: Storage) -> Storage:
        one = process[0].beside(storage) if process else FaultyStorage(storage, nth, when)
        process.append(one)
        return one

    try:
        scenario.act(root, wrap)
    except HudiError:
        return False
    return True
