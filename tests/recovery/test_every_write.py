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

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from table.config.table_properties import PROPERTIES_PATH
from table.errors import HudiError
from table.hudi_table import HudiTable
from table.metadata.opening import METADATA_FOLDER
from table.storage import Storage, StorageLocation
from table.transaction.access import LOCK_WAIT_S
from table.transaction.heartbeat import HEARTBEAT_FOLDER
from tests.depth import EVERYTHING, sample
from tests.fixtures.quick_s3 import QuickS3
from tests.recovery.places import OnDisk, OnS3, Place, storage_at, transfer
from tests.recovery.scenarios import SCENARIOS, Rows, Scenario, laid_down
from tests.storages import FaultyStorage, WatchedStorage
from tests.storages.faulty_storage import When
from tests.tables import data_files
from tests.upkeep import HISTORY, archived_names

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

DOUBTS: tuple[When, ...] = ("lost", "doubtful")

#: Long on a local disk, too; other scenarios make a metadata table as well.
LONG = ("making of the metadata table", "upgrade from version 8")

#: What is written over in place, so that its name does not tell what it says.
_WRITTEN_OVER = (PROPERTIES_PATH, f"{PROPERTIES_PATH}.backup", f"{HISTORY}/_version_")
_NAMED_AT_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|#\d+")
_LOCKS = re.compile(r"/\.locks/")
_SCRATCH = re.compile(r"/\.(locks|temp|aux)/")
_TIME = re.compile(r"\d{17}")


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
    checked = _Checked(scenario, place, states)
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


@dataclass
class _Checked:
    """What was seen of a scenario, and set right.

    Attributes:
        seen: which of the states.
    """

    scenario: Scenario
    place: Place
    states: Sequence[Rows]
    seen: set[int] = field(default_factory=set)
    _left: dict[str, int] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)

    def check(self, root: StorageLocation, what: str, is_done: bool = False) -> None:
        look = _look(root)
        if look not in self._left:
            self._left[look] = self._set_right(root, what)
        self.seen.add(self._left[look])
        assert not is_done or self.states[self._left[look]] == self.states[-1], what
        self.place.drop(root)

    def _set_right(self, root: StorageLocation, what: str) -> int:
        """Which of the states was left."""
        scenario, left = self.scenario, self.scenario.rows(root)
        assert left in self.states, what
        look = _look(root)
        scenario.recover(root, self._watched)
        if _look(root) != look:
            assert scenario.rows(root) in (left, self.states[-1]), what
        scenario.go_on(root, self._watched)
        assert scenario.rows(root) == self.states[-1], what
        assert scenario.has_acted(root), what
        for table in scenario.tables(root):
            _check_nothing_is_left(table, what)
        ended = _look(root, has_scratch=False)
        if ended not in self._ended:
            self._ended.add(ended)
            self._check_the_table_goes_on(root, what)
        return self.states.index(left)

    def _watched(self, storage: Storage) -> Storage:
        return WatchedStorage(storage, self._check_metadata_goes_on)

    def _check_metadata_goes_on(self, method: str, path: str) -> None:
        is_making = path == f"{METADATA_FOLDER}/{PROPERTIES_PATH}"
        assert self.scenario.makes_metadata or not is_making, "the metadata table is made anew"

    def _check_the_table_goes_on(self, root: StorageLocation, what: str) -> None:
        expected = self.scenario.write_more(root)
        assert self.scenario.rows(root) == expected, what
        for table in self.scenario.tables(root):
            table.access.lock.acquire(0.0).release()
            _check_nothing_is_left(table, what)
            assert table.metadata_differences() == [], what


def _check_nothing_is_left(table: HudiTable, what: str) -> None:
    """Nothing pending, no beat, no lock for longer than a dead owner's lease, no orphan."""
    storage, timeline = table.storage, table.timeline
    assert not timeline.pending(), what
    assert not storage.list_folder(HEARTBEAT_FOLDER)[1], what
    completed = {i.requested_at for i in timeline.completed() if i.action.is_write}
    known = completed | {name for name, _ in archived_names(storage)}
    assert {_TIME.findall(path)[-1] for path in data_files(storage)} <= known, what
    table.access.lock.acquire(LOCK_WAIT_S).release()
    if table.properties.metadata_partitions:
        assert table.keep_metadata_table() is None, what


def _look(root: StorageLocation, has_scratch: bool = True) -> str:
    """What is below a root: equal for tables that differ in times and ids alone."""
    storage = storage_at(root)
    passed_over = _LOCKS if has_scratch else _SCRATCH
    found = (info.path for info in storage.list_tree(""))
    lines = [path for path in found if not passed_over.search(path)]
    for path in [path for path in lines if path.endswith(_WRITTEN_OVER)]:
        lines += [line for line in storage.read(path).decode().split() if line[0] != "#"]
    text = "\n".join(lines)
    ranks = {time: str(rank) for rank, time in enumerate(sorted(set(_TIME.findall(text))))}
    text = _NAMED_AT_RANDOM.sub("*", _TIME.sub(lambda found: ranks[found[0]], text))
    return "\n".join(sorted(text.split("\n")))
