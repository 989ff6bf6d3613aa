"""When a clean is planned, and when it is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sinks.hudi.table_writer import TableWriter
from sinks.hudi.upkeep import archive, clean
from table.config.table_properties import TableType
from table.errors import Refused
from table.model.action import Action, State
from table.model.instant import Instant
from table.model.restore import RestorePlan
from table.services.archival_plan import ArchivalPolicy
from table.services.cleaning import request
from table.services.cleaning_plan import CleaningPolicy
from table.timeline.clock import next_instant, parse_instant
from table.timeline.timeline_store import restore_plan_content
from table.transaction.sharing import Sharing
from tests.tables import Row, commit, data_files, writer
from tests.upkeep import make_plain, new_storage

ONE_COMMIT = CleaningPolicy(commits=1)


def expired() -> TableWriter:
    """A table of which a clean would delete files."""
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE)
    to = writer(storage)
    for number in range(4):
        commit(to, [Row("a", number, number)])
    return to


def test_nothing_is_planned_beside_a_plan() -> None:
    table = expired().table
    requested = request(table.access, lambda _: table.view(), ONE_COMMIT)
    assert requested is not None
    assert request(table.access, lambda _: table.view(), ONE_COMMIT) is None
    fresh = writer(table.storage).table
    assert [one.instant.requested_at for one in clean(fresh, ONE_COMMIT)] == [
        requested[0].requested_at
    ]


def test_where_writers_share_the_table_every_clock_passes_the_plans_time() -> None:
    table = expired().table
    access = replace(table.access, sharing=Sharing(clock_skew_ms=300))
    assert request(access, lambda _: table.view(), ONE_COMMIT) is not None
    minted = table.store.load().pending(Action.CLEAN)[0].requested_at
    assert datetime.now(UTC) - parse_instant(minted) >= timedelta(milliseconds=300)


def test_nothing_goes_while_a_restore_is_pending() -> None:
    table = expired().table
    assert request(table.access, lambda _: table.view(), ONE_COMMIT) is not None
    at = next_instant(table.store.load().newest_time)
    pending = Instant(at, Action.RESTORE, State.REQUESTED)
    table.store.create(pending, restore_plan_content(RestorePlan(at, ())))
    fresh, files = writer(table.storage).table, data_files(table.storage)
    with pytest.raises(Refused, match="has not ended; finish it first"):
        clean(fresh, ONE_COMMIT)
    with pytest.raises(Refused, match="has not ended; finish it first"):
        archive(fresh, ArchivalPolicy(1, 2), None)
    assert data_files(table.storage) == files
