"""The base of a commit is the timeline that was loaded under the lock when the commit began.

A commit is not checked for conflicts with instants that completed before. So its base must include
all of them, even if they are archived by then.
"""

from __future__ import annotations

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import write_checkpoint
from lakemark.config.table_properties import TableType
from lakemark.errors import Refused
from lakemark.model.format_version import FormatVersion
from lakemark.operations.archive import archive
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.storage import Storage
from lakemark.timeline.locks.lock_provider import LOCK_PATH
from lakemark.timeline.locks.table_lock import LeaseLost
from tests.clocks import SharedClock, on_clock
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import archived_names, make_plain, new_storage
from tests.tables import Row, commit, contents, write_files, writer
from tests.writers import shared_writer

SHORT = ArchivalPolicy(2, 4, delta_commits_to_compact=1)
A_LEASE_AND_MORE_S = 61.0


def opened(storage: Storage) -> TableWriter:
    return shared_writer(storage, has_metadata=False)


def commit_elsewhere_and_archive(storage: Storage) -> None:
    """Commit and archive until the commit of partition north is in the history."""
    to = opened(storage)
    for value in range(5):
        commit(to, [Row("s", value, value, region="south")])
        archive(to.table, SHORT, None)


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
@pytest.mark.parametrize("table_type", TableType)
def test_rows_committed_while_a_writer_waited_for_the_lock_are_kept(
    table_type: TableType, version: FormatVersion
) -> None:
    storage = new_storage()
    make_plain(storage, table_type, version)
    commit(opened(storage), [Row("s", 0, 0, region="south")])
    waiting = InterruptedStorage(storage, lambda: commit(opened(storage), [Row("a", 5, 5)]))
    late = opened(waiting)
    late.table.refresh()
    waiting.is_before = lambda _, method, path: path == LOCK_PATH
    written = write_files(late, [Row(key, 9, 9) for key in ("b", "c", "d")])
    commit_elsewhere_and_archive(storage)
    assert len(archived_names(storage)) >= 1
    late.commit(written, {})
    expected = {"a": (5, 5), "b": (9, 9), "c": (9, 9), "d": (9, 9), "s": (4, 4)}
    assert contents(storage) == expected
    commit(opened(storage), [Row("a", 6, 6)])
    assert contents(storage) == {**expected, "a": (6, 6)}


@pytest.mark.parametrize("state", ["requested", "inflight"])
def test_writer_that_loses_the_lock_before_its_instant_exists_can_begin_again(state: str) -> None:
    storage, clock = new_storage(), SharedClock()
    make_plain(storage)
    commit(opened(storage), [Row("a", 1, 1)])

    def others() -> None:
        clock.sleep(A_LEASE_AND_MORE_S)
        commit(on_clock(opened(storage), clock), [Row("a", 5, 5)])
        commit_elsewhere_and_archive(storage)

    stopped = InterruptedStorage(storage, others)
    to = on_clock(opened(stopped), clock)
    stopped.is_before = lambda _, method, path: method == "create" and path.endswith(state)
    with pytest.raises(LeaseLost):
        to.begin()
    assert not writer(storage).table.timeline.pending()
    commit(to, [Row("b", 9, 9)])
    assert contents(storage) == {"a": (5, 5), "b": (9, 9), "s": (4, 4)}


def test_writer_that_is_refused_under_the_lock_creates_no_file() -> None:
    storage = new_storage()
    make_plain(storage)
    commit(opened(storage), [Row("a", 1, 1)])
    restoring = writer(storage).table
    restore = restoring.store.clock.next_instant(restoring.timeline.newest_time)
    storage.create(f".hoodie/timeline/{restore}.restore.requested", b"")
    before = [info.path for info in storage.list_tree("")]
    with pytest.raises(Refused, match="restore"):
        write_checkpoint(opened(storage).table, "a", KafkaCheckpoint("orders", {0: 1}))
    assert [info.path for info in storage.list_tree("")] == before
