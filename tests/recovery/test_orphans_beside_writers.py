"""At no write of another process is a file an orphan that the process, or a query, needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakemark.errors import Refused, SnapshotChanged
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.orphan_removal import find_orphans
from lakemark.services.orphans import Reason
from lakemark.storage import StorageLocation
from lakemark.storage.storage import NotFound
from tests.recovery.scenarios import SCENARIOS, TABLE, prepared_tables
from tests.recovery.stores import OnDisk, storage_at, transfer
from tests.storages import WatchedStorage
from tests.tables import writer

#: A time at which all files are old enough to be removed.
LATER = datetime.now(UTC) + timedelta(days=9)

#: One scenario for each kind of writer.
KINDS = (
    "pipeline",
    "commit",
    "commit, copy-on-write",
    "commit of a non-blocking writer",
    "commit that compacts the metadata table",
    "overwrite of a partition",
    "compaction",
    "log compaction",
    "log compaction in version 6",
    "asynchronous compaction during a batch",
    "split of buckets",
    "clustering in version 6",
    "creation of a record index",
    "bootstrap of the metadata table",
    "services of the metadata table",
    "cleaning",
    "archival",
    "rollback of a dead writer",
    "rollback of a commit",
    "rollback of a compaction",
    "restore",
    "restore to the empty table",
    "upgrade",
    "downgrade",
)

#: Orphans are not judged while a restore is pending.
RESTORES = ("restore", "restore to the empty table")


@dataclass
class Remover:
    """Removes orphans before each write of another process, without waiting for its lock.

    Attributes:
        root: the location of the table.
        writes: how many writes were observed.
        judged: before how many of them the orphans were judged.
        data: the data files that were removed, with the write before which it happened.
    """

    root: StorageLocation
    writes: int = 0
    judged: int = 0
    data: dict[str, str] = field(default_factory=dict)

    def remove(self, method: str, path: str) -> None:
        self.writes += 1
        try:
            table = writer(storage_at(self.root.child(TABLE))).table
            found = [one for one in find_orphans(table, now=LATER) if one.reason.is_clear]
        except (Refused, SnapshotChanged, NotFound):
            return
        self.judged += 1
        table.context.delete_files([one.path for one in found])
        lost = (one for one in found if one.reason is not Reason.FINISHED)
        self.data |= {one.path: f"before {method} {path}: {one.reason}" for one in lost}


@pytest.mark.parametrize("name", KINDS)
def test_removal_before_any_write_deletes_nothing_that_the_writer_needs(
    name: str, tmp_path: Path
) -> None:
    scenario, store = SCENARIOS[name], OnDisk(tmp_path)
    root = store.new()
    transfer(prepared_tables(name), root)
    remover = Remover(root)
    scenario.act(root, lambda storage: WatchedStorage(storage, remover.remove))
    assert remover.data == {}
    assert scenario.has_acted(root)
    assert not scenario.states or scenario.rows(root) == scenario.states[-1]
    for table in scenario.tables(root):
        assert metadata_differences(table) == []
    assert remover.judged > (0 if name in RESTORES else remover.writes / 2)
