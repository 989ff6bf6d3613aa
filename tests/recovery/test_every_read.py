"""A process that once gets no answer to a read of anything: it ends well, or with a typed error.

One undisturbed run of a scenario counts its reads. Then it runs with one of them failing, of each
few neighbours the one that the seed draws, as if the store did not answer or the object were gone.
Whatever that leaves, queries find the model's rows, and the next process finishes the work
(``test_every_write``). A query whose read fails gives all rows or a typed error, never a part.

With ``LAKEMARK_DEPTH=2`` each read of each scenario fails, in both ways.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.errors import HudiError
from lakemark.storage import StorageLocation
from tests.depth import EVERYTHING, SEED, sample
from tests.recovery.checked import Checked
from tests.recovery.places import OnDisk, storage_at, transfer
from tests.recovery.scenarios import SCENARIOS, TABLE, Scenario, laid_down
from tests.storages.unread_storage import Reads, UnreadStorage
from tests.tables import contents

#: Scenarios of ``make test``, and of how many reads one fails there.
_USUAL = {
    "commit": 18,
    "compaction": 24,
    "cleaning": 14,
    "archival": 40,
    "rollback of a commit": 18,
    "rollback of the dead": 12,
}


def ways(number: int) -> tuple[bool, ...]:
    """Whether the object is said to be gone: one of both by the seed, or both."""
    return (False, True) if EVERYTHING else ((SEED + number) % 2 == 1,)


@pytest.mark.parametrize("name", SCENARIOS if EVERYTHING else _USUAL)
def test_whatever_read_fails_the_next_process_sets_it_right(name: str, tmp_path: Path) -> None:
    scenario, place = SCENARIOS[name], OnDisk(tmp_path)
    origin = place.new()
    transfer(laid_down(name), origin)
    checked = Checked(scenario, place, scenario.states or [scenario.rows(origin)])
    undisturbed = Reads()
    root = place.copy(origin)
    assert is_done(scenario, root, undisturbed)
    place.drop(root)
    for number in sample(range(len(undisturbed.methods)), one_in=_USUAL.get(name, 1)):
        for is_gone in ways(number):
            root = place.copy(origin)
            done = is_done(scenario, root, Reads(number, is_gone))
            checked.check(root, f"read {number} failed, gone: {is_gone}", done)


def is_done(scenario: Scenario, root: StorageLocation, reads: Reads) -> bool:
    """Whether a process came to its end, not to a typed error."""
    try:
        scenario.act(root, lambda storage: UnreadStorage(storage, reads))
    except HudiError:
        return False
    return True


@pytest.mark.parametrize("name", ["compaction", "rollback of a commit, copy-on-write"])
def test_a_query_whose_read_fails_gives_no_part_of_the_rows(name: str) -> None:
    storage = storage_at(laid_down(name).child(TABLE))
    undisturbed = Reads()
    expected = contents(UnreadStorage(storage, undisturbed))
    assert expected
    for number in range(len(undisturbed.methods)):
        for is_gone in (False, True):
            try:
                found = contents(UnreadStorage(storage, Reads(number, is_gone)))
            except HudiError:
                continue
            assert found == expected, f"read {number} failed, gone: {is_gone}"
