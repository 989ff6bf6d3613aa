"""The specification "Timeline", for demands that no other test proves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa

import lakemark
from lakemark.operations.open_table import open_table
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.storage import StorageLocation
from lakemark.timeline.lsm_writer import HistorySettings
from tests.unit.operations.tables import (
    FAST,
    SCHEMA,
    contents,
    create,
    reopen,
    rows,
    write_many,
)

HISTORY = ".hoodie/timeline/history"


def create_unlisted(path: Path, table_type: str) -> lakemark.Table:
    """Create a table without a metadata table, so that files are found by listing storage."""
    return lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        buckets=1,
        metadata_table=False,
        multi_writer=FAST,
    )


def test_a_change_of_the_columns_is_in_its_commit(tmp_path: Path) -> None:
    """Each commit has the columns that the table has since then; time travel reads the old ones."""
    table = create(str(tmp_path / "t"))
    table.upsert(rows(("a", "north", 1, 1)))
    table.upsert(
        rows(("a", "north", 2, 2)).append_column("note", pa.array(["new"])), add_columns=True
    )
    opened = open_table(StorageLocation(table.location))
    commits = opened.store.read_commits(opened.timeline.completed())
    schemas = [json.loads(commit.extra_metadata["schema"]) for commit in commits]
    assert [[field["name"] for field in schema["fields"]] for schema in schemas[-2:]] == [
        ["id", "region", "ts", "v"],
        ["id", "region", "ts", "v", "note"],
    ]


def test_files_of_no_instant_are_not_read(tmp_path: Path) -> None:
    """A base file and a log that no instant of the timeline wrote change no query."""
    table = create_unlisted(tmp_path / "t", "merge_on_read")
    write_many(table, (1, 2))
    folder = tmp_path / "t" / "north"
    last = table.timeline.completed()[-1].requested_at
    later = str(int(last) + 1)
    (base,) = (one for one in folder.iterdir() if one.suffix == ".parquet")
    (log,) = folder.glob(".*.log.*")
    shutil.copy(base, folder / base.name.replace(base.stem.rpartition("_")[2], later))
    shutil.copy(log, folder / log.name.replace(last, later))
    assert contents(table) == {"a": ("north", 2, 2)}
    (group,) = open_table(StorageLocation(table.location)).view().file_groups()
    assert len(group.slices) == 1
    assert [one.name.instant for one in group.slices[0].logs] == [last]


def test_only_the_oldest_completed_actions_are_archived(tmp_path: Path) -> None:
    """They move from the active timeline to the history, with their content."""
    path = tmp_path / "t"
    table = create_unlisted(path, "copy_on_write")
    write_many(table, range(1, 6))
    before = {one.requested_at: one for one in table.timeline.completed()}
    opened = open_table(StorageLocation(table.location))
    content = {one: opened.store.read_commit(before[one]) for one in before}
    moved = table.archive(min_commits=2, max_commits=3, retain_commits=1).instants
    active = [one.requested_at for one in reopen(table.location).timeline.completed()]
    assert moved
    assert [*moved, *active] == sorted(before)
    history = open_table(StorageLocation(table.location)).store.load_archived()
    assert [one.requested_at for one in history.instants()] == [*moved]
    assert [history.read_commit(before[one]) for one in moved] == [content[one] for one in moved]
    assert {"_version_", "manifest_1"} < {one.name for one in (path / HISTORY).iterdir()}
    assert contents(table) == {"a": ("north", 5, 5)}


def test_defaults_of_archival() -> None:
    policy, history = ArchivalPolicy(), HistorySettings()
    assert (policy.max_commits, policy.min_commits) == (30, 20)
    assert history.files_to_merge == 10
