"""A restore to a savepoint brings back all rows, although others acted while it was written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakemark.errors import Refused
from lakemark.execution.runner import LocalRunner
from lakemark.model.instant import Instant
from lakemark.operations.clean import clean
from lakemark.operations.restore import restore_table
from lakemark.operations.savepoint import create_savepoint
from lakemark.operations.table_writer import TableWriter
from lakemark.services import savepoint
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.transaction.multi_writer import MultiWriter
from tests.table_services import as_of, make_plain, new_storage
from tests.tables import Row, commit, contents, write_files, writer
from tests.unit.operations.tables import FAST

NON_BLOCKING = replace(FAST, non_blocking=True)

#: The rows as of the commit whose state is kept.
KEPT = {"a": (100, 100), "b": (100, 100)}


class Shared:
    """A table whose commit begins before a compaction is planned, and completes afterwards."""

    def __init__(self, sharing: MultiWriter) -> None:
        self.storage: Storage = new_storage()
        self.sharing = sharing
        make_plain(self.storage)
        self.write(1)
        self.compact()
        self.write(2)
        self.late = self.opened()
        self.files = write_files(self.late, [Row("a", 100, 100), Row("b", 100, 100)])

    def opened(self) -> TableWriter:
        return writer(self.storage, multi_writer=self.sharing)

    def write(self, ts: int) -> None:
        commit(self.opened(), [Row("a", ts, ts), Row("b", ts, ts)])

    def compact(self) -> None:
        self.opened().compact_if_due(CompactionPolicy(1), LocalRunner(1))

    def publish(self) -> Instant:
        return self.late.commit(self.files, {})

    def expire(self) -> None:
        """Write and clean until no file of the current state is retained."""
        for ts in range(101, 106):
            self.write(ts)
            self.compact()
        assert clean(self.opened().table, CleaningPolicy(commits=1))

    def restore(self, to: Instant) -> None:
        restore_table(self.opened().table, to.requested_at)


@pytest.mark.parametrize("sharing", [FAST, NON_BLOCKING], ids=["multi_writer", "non_blocking"])
def test_savepoint_keeps_the_logs_that_a_compaction_left_to_its_new_slice(
    sharing: MultiWriter,
) -> None:
    shared = Shared(sharing)
    shared.compact()
    kept = shared.publish()
    assert contents(shared.storage) == KEPT
    queried = as_of(shared.opened().table, kept.requested_at)
    create_savepoint(shared.opened().table, kept.requested_at)
    shared.expire()
    assert as_of(shared.opened().table, kept.requested_at) == queried
    shared.restore(kept)
    assert contents(shared.storage) == KEPT
    shared.write(106)
    shared.restore(kept)
    assert contents(shared.storage) == KEPT


def test_savepoint_without_these_logs_is_not_restored() -> None:
    """Apache Hudi, and earlier releases, keep only the files of queries as of the commit."""
    shared = Shared(NON_BLOCKING)
    shared.compact()
    kept = shared.publish()
    table = shared.opened().table
    slices = table.view().as_of(kept.requested_at).latest_slices()
    savepoint.create_savepoint(table.context, kept.requested_at, lambda *_: slices, "ann", "")
    shared.expire()
    newest = contents(shared.storage)
    with pytest.raises(Refused, match=f"{kept.requested_at}.log.1.* would read afterwards"):
        shared.restore(kept)
    assert contents(shared.storage) == newest
    assert not shared.opened().table.timeline.pending()


def test_savepoint_is_restored_again_after_a_restore_undid_a_commit_that_began_earlier() -> None:
    shared = Shared(NON_BLOCKING)
    shared.write(50)
    kept = shared.opened().table.timeline.completed()[-1]
    shared.publish()
    create_savepoint(shared.opened().table, kept.requested_at)
    for ts in (200, 201):
        shared.write(ts)
        shared.restore(kept)
        assert contents(shared.storage) == {"a": (50, 50), "b": (50, 50)}


def test_savepoint_is_restored_although_a_pending_compaction_completes_later() -> None:
    shared = Shared(NON_BLOCKING)
    shared.publish()
    ((planned, _),) = shared.opened().compactions_to_do(CompactionPolicy(1))
    shared.write(150)
    kept = shared.opened().table.timeline.completed()[-1]
    assert planned.requested_at < kept.requested_at
    create_savepoint(shared.opened().table, kept.requested_at)
    shared.compact()
    shared.expire()
    shared.restore(kept)
    assert contents(shared.storage) == {"a": (150, 150), "b": (150, 150)}
