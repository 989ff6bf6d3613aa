"""One read of a process fails: the process still succeeds, or raises a typed error.

A run without faults counts the reads of a scenario. Then the scenario runs again and again, and one
read fails each time: the store does not answer, or the object is gone. Of every few consecutive
reads, the seed selects one. Afterwards queries find the expected rows, and the next process
finishes the work, as in ``test_every_write``. A query whose read fails returns all rows or raises
a typed error, but never returns a part of the rows.

With ``LAKEMARK_DEPTH=2`` each read of each scenario fails, in both ways.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.errors import HudiError
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.storage import StorageLocation
from tests.depth import EVERYTHING, SEED, sample
from tests.recovery.checked import Checked
from tests.recovery.scenarios import SCENARIOS, TABLE, Scenario, prepared_tables
from tests.recovery.stores import OnDisk, storage_at, transfer
from tests.storages.unread_storage import Reads, UnreadStorage
from tests.tables import contents

#: Scenarios of ``make test``; there one of so many reads fails.
_USUAL = {
    "commit": 18,
    "compaction": 24,
    "cleaning": 14,
    "archival": 40,
    "rollback of a commit": 18,
    "rollback of a dead writer": 12,
}


def ways(number: int) -> tuple[bool, ...]:
    """Return which errors the read raises; True is "not found".

    The seed selects one of them; at a higher depth, both are tried.
    """
    return (False, True) if EVERYTHING else ((SEED + number) % 2 == 1,)


@pytest.mark.parametrize("name", SCENARIOS if EVERYTHING else _USUAL)
def test_next_process_finishes_the_work_after_any_failed_read(name: str, tmp_path: Path) -> None:
    scenario, store = SCENARIOS[name], OnDisk(tmp_path)
    origin = store.new()
    transfer(prepared_tables(name), origin)
    checked = Checked(scenario, store, scenario.states or [scenario.rows(origin)])
    undisturbed = Reads()
    root = store.copy(origin)
    assert is_done(scenario, root, undisturbed)
    store.drop(root)
    for number in sample(range(len(undisturbed.methods)), one_in=_USUAL.get(name, 1)):
        for is_gone in ways(number):
            root = store.copy(origin)
            reads = Reads(number, is_gone)
            done = is_done(scenario, root, reads)
            # Without its properties, the metadata table looks as if another process had dropped it.
            looks_dropped = is_gone and reads.failed == f"{METADATA_FOLDER}/{PROPERTIES_PATH}"
            what = f"read {number} failed, gone: {is_gone}"
            checked.check(root, what, done, allows_rebuild=looks_dropped)


def is_done(scenario: Scenario, root: StorageLocation, reads: Reads) -> bool:
    """Run a process; return True if it succeeded, and False if it raised a typed error."""
    try:
        scenario.act(root, lambda storage: UnreadStorage(storage, reads))
    except HudiError:
        return False
    return True


@pytest.mark.parametrize("name", ["compaction", "rollback of a commit, copy-on-write"])
def test_query_whose_read_fails_returns_all_rows_or_an_error(name: str) -> None:
    storage = storage_at(prepared_tables(name).child(TABLE))
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
