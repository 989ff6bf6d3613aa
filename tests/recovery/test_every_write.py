"""A process dies, or gets no answer, at any of its writes: the next process finishes the work.

A run without faults counts the writes of a scenario, and copies the store before each write. Each
copy is the state that a process leaves if it dies before this write, or right after the previous
one.

Then the scenario runs again and again, and one write gets no answer each time. The write is carried
out on a local disk and does not arrive on S3, or the reverse. Afterwards queries find the expected
rows. The next process finishes the work, and does not rebuild a metadata table that is still
consistent.

Equal stores are checked once. Two stores are equal if their files differ only in the times and ids
in their names, and if overwritten files have the same content. If many files of one folder are
deleted one after the other, only the first and the last deletion are tested.

The seed selects every second of the writes before which the process dies, and every fourth of those
that get no answer. In ``make test-deep``, the process dies before every write, every write gets no
answer, in both ways and on both stores, and every deletion is tested.
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
from tests.recovery.scenarios import SCENARIOS, Scenario, prepared_tables
from tests.recovery.stores import OnDisk, OnS3, ScenarioStore, transfer
from tests.storages import FaultyStorage, WatchedStorage
from tests.storages.faulty_storage import When

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

DOUBTS: tuple[When, ...] = ("lost", "doubtful")

#: Scenarios that take long on a local disk, too; other scenarios build a metadata table as well.
LONG = (
    "creation of a secondary index",
    "creation of partition statistics, copy-on-write",
    "bootstrap of the metadata table",
    "clustering with a record index",
    "prepared clustering with a record index",
    "move to another partition with a record index",
    "split of buckets with a metadata table",
    "prepared split of buckets with a metadata table",
    "upgrade from version 4",
    "upgrade from version 8",
)


def cases() -> Iterator[ParameterSet]:
    """List every scenario on either store; on S3 those with a metadata table take long."""
    for name, scenario in SCENARIOS.items():
        for kind in ("local", "S3"):
            is_long = scenario.has_metadata and (kind == "S3" or name in LONG)
            marks = [pytest.mark.slow] if is_long else []
            yield pytest.param(name, kind, id=f"{name}, {kind}", marks=marks)


@pytest.fixture
def store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> ScenarioStore:
    if kind == "local":
        return OnDisk(tmp_path)
    server: QuickS3 = request.getfixturevalue("quick_s3")
    return OnS3(server)


@pytest.mark.parametrize(("name", "kind"), list(cases()))
def test_next_process_finishes_the_work_of_one_stopped_at_any_write(
    name: str, store: ScenarioStore
) -> None:
    scenario = SCENARIOS[name]
    origin = store.new()
    transfer(prepared_tables(name), origin)
    states = scenario.states or [scenario.rows(origin)]
    checked = Checked(scenario, store, states)
    assert scenario.rows(origin) == states[0]
    deaths = _deaths(scenario, store, origin)
    chosen = sample(deaths, one_in=2)
    for nth in chosen + [other for other in deaths if other not in chosen]:
        if nth in chosen or len(checked.seen) < len(states):
            checked.check(deaths[nth], f"dead before write {nth}")
    assert checked.seen == set(range(len(states))), "deaths before and after each publication"
    for nth in sample(list(deaths)[:-1], one_in=4):
        for when in DOUBTS if EVERYTHING else [DOUBTS[(nth + isinstance(store, OnS3)) % 2]]:
            left = store.copy(origin)
            is_done = _doubt(scenario, left, nth, when)
            checked.check(left, f"write {nth} {when}", is_done)


def _deaths(
    scenario: Scenario, store: ScenarioStore, origin: StorageLocation
) -> dict[int, StorageLocation]:
    """Copy the store before each write of a process and at its end, as a death there leaves it."""
    root = store.copy(origin)
    left: list[StorageLocation] = []
    kinds: list[object] = []

    def before_write(method: str, path: str) -> None:
        left.append(store.copy(root))
        kinds.append(path.rpartition("/")[0] if method == "delete" else len(kinds))

    scenario.act(root, lambda storage: WatchedStorage(storage, before_write))
    assert scenario.has_acted(root)
    assert len(left) > 2
    chosen = range(len(left)) if EVERYTHING else _ends_of_runs(kinds)
    return {nth: left[nth] for nth in chosen} | {len(left): root}


def _ends_of_runs(kinds: Sequence[object]) -> list[int]:
    """List the first and the last of consecutive equal kinds.

    The ones between them leave no other kind of state.
    """
    last = len(kinds) - 1
    return [n for n in range(len(kinds)) if n in (0, last) or len({*kinds[n - 1 : n + 2]}) > 1]


def _doubt(scenario: Scenario, root: StorageLocation, nth: int, when: When) -> bool:
    """Run a process with one answer missing, and return whether it succeeded."""
    process: list[FaultyStorage] = []

    def wrap(storage: Storage) -> Storage:
        one = process[0].for_storage(storage) if process else FaultyStorage(storage, nth, when)
        process.append(one)
        return one

    try:
        scenario.act(root, wrap)
    except HudiError:
        return False
    return True
