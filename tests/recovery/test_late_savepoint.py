"""A savepoint that begins late, after its commit was archived, does not hide the commit.

A request may reach storage long after its process has died.
"""

from __future__ import annotations

import pytest

from lakemark.config.table_properties import TableType
from lakemark.model.action import Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.savepoint import delete_savepoint
from tests.table_services import active_names, make_plain, new_storage
from tests.tables import Row, commit, contents, writer


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9], ids=str)
def test_rows_of_an_archived_commit_are_kept_if_its_savepoint_begins_late(
    version: FormatVersion,
) -> None:
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE, version)
    commit(writer(storage), [Row("old", 1, 1, "west")])
    oldest = writer(storage).table.timeline.instants[0].requested_at
    for number in range(6):
        commit(writer(storage), [Row("new", number, number)])
    archive(writer(storage).table, ArchivalPolicy(2, 3), None)
    assert oldest not in {name for name, _ in active_names(storage)}

    late = Instant(oldest, Action.SAVEPOINT, State.INFLIGHT)
    writer(storage).table.store.create(late)

    assert contents(storage) == {"old": (1, 1), "new": (5, 5)}
    delete_savepoint(writer(storage).table.context, oldest)
    assert contents(storage) == {"old": (1, 1), "new": (5, 5)}
