"""Of the files that Apache Hudi wrote, only those that no query reads are orphans."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.operations.orphan_removal import find_orphans, remove_orphans
from lakemark.services.orphans import Orphan, Reason
from lakemark.storage import StorageLocation
from tests.golden.golden_table import ALL_TABLES, OLD_TABLES, GoldenTable, sorted_rows, unpack

#: A time at which all files are old enough.
LATER = datetime.now(UTC) + timedelta(days=9)

MAINTAINED = [name for name in ALL_TABLES if name not in OLD_TABLES]


def of_table(orphans: list[Orphan]) -> list[Orphan]:
    """Return the data files of the table itself."""
    return [one for one in orphans if not one.path.startswith(".hoodie/")]


@pytest.mark.parametrize("name", MAINTAINED)
def test_no_file_of_a_commit_is_an_orphan(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    table = golden.table
    commits = [i for i in table.timeline.completed() if i.action.is_write]
    named = {
        path
        for commit in commits
        for stat in table.store.read_commit(commit).write_stats
        for path in stat.sizes_bytes
    }
    found = find_orphans(table, now=LATER)
    assert named.isdisjoint(one.path for one in found)
    assert [one for one in found if not one.reason.is_clear] == []
    assert {one.reason for one in of_table(found)} <= {Reason.UNDONE}


@pytest.mark.parametrize(
    "name",
    [
        "v6_mor_failed_write",
        "v6_mor_rollback",
        "v8_mor_archived",
        "v9_cow_clustered",
        "v9_mor_failed_write",
        "v9_mor_rollback",
        "v9_mor_compacted",
        "v9_mor_savepoint_restore",
    ],
)
def test_rows_are_the_same_after_the_orphans_of_a_table_were_removed(
    name: str, tmp_path: Path
) -> None:
    golden = unpack(name, tmp_path)
    rows, before = all_rows(golden), golden.table.timeline
    late = leave_late_copy(golden)
    removed = {one.path for one in remove_orphans(golden.table, now=LATER)}
    assert late in removed
    assert find_orphans(golden.table, now=LATER) == []
    after = open_table(StorageLocation(str(golden.root)))
    assert after.timeline == before
    assert sorted_rows(after.scan().to_reader().read_all()) == rows
    assert not [one for one in metadata_differences(after) if late in str(one)]


def all_rows(golden: GoldenTable) -> object:
    return sorted_rows(golden.table.scan().to_reader().read_all())


def leave_late_copy(golden: GoldenTable) -> str:
    """Copy a base file, as the failed attempt of a task leaves it; return its path."""
    storage, table = golden.storage, golden.table
    bases = [one.base for one in table.view().latest_slices() if one.base is not None]
    assert bases
    name = bases[0].name
    other = f"{name.file_id}_77-88-99_{name.instant}.{name.extension}"
    folder = bases[0].partition_path
    path = f"{folder}/{other}" if folder else other
    storage.put(path, storage.read(bases[0].path))
    return path
