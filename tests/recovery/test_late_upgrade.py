"""A version change whose writer has lost the lock changes nothing."""

from __future__ import annotations

import pytest

from lakemark.config.table_properties import PROPERTIES_PATH, TableType
from lakemark.errors import WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.format_version import FormatVersion
from lakemark.operations.change_version import change_table_version
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import Storage
from lakemark.timeline.locks.table_lock import LeaseLost
from tests.clocks import SharedClock, on_clock
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, contents, writer
from tests.writers import shared_writer

CLOCK = SharedClock()
A_LEASE_AND_MORE_S = 61.0


def opened(storage: Storage, *, has_metadata: bool = False) -> TableWriter:
    return on_clock(shared_writer(storage, has_metadata=has_metadata), CLOCK)


def made(table_type: TableType) -> Storage:
    storage = new_storage()
    make_plain(storage, table_type, FormatVersion.V6)
    for number in range(3):
        commit(opened(storage), [Row("a", number, number)])
    return storage


@pytest.mark.parametrize(
    "before", ["create .hoodie/timeline/", f"replace {PROPERTIES_PATH}"], ids=["moves", "replaces"]
)
@pytest.mark.parametrize("table_type", TableType)
def test_commits_during_a_version_change_that_lost_the_lock_are_kept(
    table_type: TableType, before: str
) -> None:
    storage = made(table_type)

    def others_act() -> None:
        CLOCK.sleep(A_LEASE_AND_MORE_S)
        commit(opened(storage), [Row("a", 9, 9)])

    late = InterruptedStorage(storage, others_act)
    late.is_before = lambda _, method, path: f"{method} {path}".startswith(before)
    with pytest.raises((WriteConflict, LeaseLost)):
        change_table_version(opened(late).table, FormatVersion.V9, LocalRunner(1))
    assert late.stopped_at
    assert contents(storage) == {"a": (9, 9)}
    assert writer(storage).table.version is FormatVersion.V6
    change_table_version(opened(storage).table, FormatVersion.V9, LocalRunner(1))
    assert contents(storage) == {"a": (9, 9)}
    commit(opened(storage), [Row("a", 10, 10)])
    assert contents(storage) == {"a": (10, 10)}


def test_metadata_table_that_another_process_built_meanwhile_stays_in_the_properties() -> None:
    """A late process does not replace the properties of an upgraded table by older ones."""
    storage = made(TableType.COPY_ON_WRITE)

    def others_act() -> None:
        CLOCK.sleep(A_LEASE_AND_MORE_S)
        change_table_version(opened(storage).table, FormatVersion.V9, LocalRunner(1))

    late = InterruptedStorage(storage, others_act)
    late.is_before = lambda _, method, path: (method, path) == ("replace", PROPERTIES_PATH)
    with pytest.raises((WriteConflict, LeaseLost)):
        keep_metadata_table(opened(late, has_metadata=True).table)
    assert late.stopped_at
    assert writer(storage).table.version is FormatVersion.V9
    assert contents(storage) == {"a": (2, 2)}
