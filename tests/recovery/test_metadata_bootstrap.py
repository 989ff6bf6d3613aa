"""A metadata table is built while another process changes the table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Retriable, SnapshotChanged, WriteConflict
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.storage import Storage
from tests.clocks import SharedClock, on_clock
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import copy_of, make_plain, new_storage
from tests.tables import Row, commit, contents, writer

T = TypeVar("T")

CLOCK = SharedClock()
LONGER_THAN_A_LEASE_S = 61

#: The bootstrap is paused before one of so many requests.
STRIDE = 7

Act = Callable[[Storage], object]


class Stops(WrappedStorage):
    """Pauses before one of its requests for longer than a lease, while another process acts."""

    def __init__(self, inner: Storage, nth: int, meanwhile: Act) -> None:
        super().__init__(inner)
        self._nth, self._meanwhile, self._count = nth, meanwhile, 0
        self.has_stopped = False

    def _request(self, method: str, path: str, call: Callable[[], T]) -> T:
        if self._count == self._nth:
            self.has_stopped = True
            CLOCK.sleep(LONGER_THAN_A_LEASE_S)
            self._meanwhile(self.inner)
        self._count += 1
        return call()

    _reading = _writing = _request


def started(storage: Storage, has_metadata: bool) -> TableWriter:
    to = on_clock(writer(storage), CLOCK)
    to.settings = replace(to.settings, metadata_table=has_metadata)
    return to


def build_metadata_table_and_commit(storage: Storage) -> None:
    to = started(storage, True)
    to.recover()
    commit(to, [Row("n", 9, 9)])


def commit_without_metadata_table(storage: Storage) -> None:
    commit(started(storage, False), [Row("n", 9, 9)])


def delete_old_files(storage: Storage) -> None:
    clean(started(storage, False).table, CleaningPolicy(commits=1))


@pytest.mark.parametrize(
    "meanwhile", [build_metadata_table_and_commit, commit_without_metadata_table, delete_old_files]
)
def test_metadata_table_is_complete_or_unused_wherever_its_bootstrap_was_paused(
    meanwhile: Act,
) -> None:
    plain = new_storage()
    make_plain(plain, TableType.COPY_ON_WRITE)
    for number in range(4):
        commit(started(plain, False), [Row("a", number, number)])
    expected = {"a": (3, 3)} if meanwhile is delete_old_files else {"a": (3, 3), "n": (9, 9)}
    nth, has_stopped = 0, True
    while has_stopped:
        storage = copy_of(plain)
        stops = Stops(storage, nth, meanwhile)
        with suppress(Retriable, WriteConflict, SnapshotChanged):
            keep_metadata_table(started(stops, True).table)
        has_stopped = stops.has_stopped
        if has_stopped:
            assert contents(storage) == expected, nth
            CLOCK.sleep(LONGER_THAN_A_LEASE_S)
            next_start = started(storage, True)
            next_start.recover()
            commit(next_start, [Row("z", 1, 1)])
            assert metadata_differences(next_start.table) == [], nth
            assert contents(storage) == {**expected, "z": (1, 1)}, nth
        nth += STRIDE
    assert nth > 40
