"""A query with a condition lists only the files of the partitions and file groups that it needs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.operations.metadata_table import rebuild_metadata_table
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline import Timeline
from lakemark.view import partial_views
from lakemark.view.file_lister import DataFile, data_file
from tests.golden.golden_table import ALL_TABLES
from tests.golden.shared_tables import SharedTables
from tests.storages import CountingStorage
from tests.unit.operations.tables import SCHEMA, rows

REGIONS = ("north", "south", "west")


def create(path: Path, *, metadata_table: bool = True, version: int = 9) -> lakemark.Table:
    table = lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        buckets=4,
        metadata_table=metadata_table,
        version=version,
    )
    table.upsert(rows(*((f"{n}", region, 1, 100 * n) for n in range(8) for region in REGIONS)))
    return table


def opened(path: Path) -> OpenTable:
    return open_table(StorageLocation(str(path)))


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that became Python objects."""
    paths: list[str] = []

    def note(partition_path: str, name: str, size_bytes: int) -> DataFile | None:
        paths.append(f"{partition_path}/{name}")
        return data_file(partition_path, name, size_bytes)

    monkeypatch.setattr(partial_views, "data_file", note)
    return paths


@pytest.mark.parametrize("name", [n for n in ALL_TABLES if "schema_on_read" not in n])
def test_parts_of_a_table_have_the_same_slices_as_the_whole_table(
    name: str, shared_tables: SharedTables
) -> None:
    golden = shared_tables[name]
    whole, fresh = golden.table.view(), opened(golden.root)
    parts = fresh.snapshot.partial_views()
    is_listed = golden.properties.version != 6 and bool(golden.properties.metadata_partitions)
    assert (parts is not None) == is_listed
    if parts is None:
        return
    assert set(parts.partitions) == whole.partitions
    for path in parts.partitions:
        view = parts.view_of(parts.files_in([path]))
        assert view.latest_slices() == whole.latest_slices(path)
        assert view.read_optimized() == whole.read_optimized(path)
        assert view.visible_instants == whole.visible_instants


def test_only_files_of_matching_file_groups_are_listed(tmp_path: Path, listed: list[str]) -> None:
    create(tmp_path / "t")
    table = opened(tmp_path / "t")
    (one,) = table.scan(where="region = 'south' and v = 700").slices
    assert one.base is not None
    assert listed == [one.base.path]
    assert table.snapshot.loaded_view is None


def test_each_partition_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "t")
    table = opened(tmp_path / "t")
    parts = table.snapshot.partial_views()
    assert parts is not None
    asked: list[list[str]] = []
    list_names = MetadataFileLister.list_names

    def note(lister: MetadataFileLister, paths: list[str]) -> pa.Table:
        asked.append(paths)
        return list_names(lister, paths)

    monkeypatch.setattr(MetadataFileLister, "list_names", note)
    for region in ("north", "south", "north"):
        assert table.scan(where=f"region = '{region}'").to_table().num_rows == 8
    assert table.scan(where="v = 300").to_table().num_rows == len(REGIONS)
    assert asked == [["north"], ["south"], ["west"]]
    assert parts.files_in([]).num_rows == 0


def test_all_files_are_listed_by_the_metadata_table_that_is_already_open(tmp_path: Path) -> None:
    create(tmp_path / "t")
    storage = CountingStorage(open_storage(StorageLocation(str(tmp_path / "t"))))
    table = OpenTable(storage, read_properties(storage))
    assert table.scan(where="v = 700").to_table().num_rows == len(REGIONS)
    storage.forget()
    assert table.view().latest_slices() == opened(tmp_path / "t").view().latest_slices()
    assert table.view().partitions == {*REGIONS}
    assert {request.method for request in storage.requests} <= {"open"}


def test_table_is_loaded_again_if_the_open_metadata_table_was_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = create(tmp_path / "t")
    table = opened(tmp_path / "t")
    assert table.snapshot.partial_views() is not None
    writer.upsert(rows(("new", "east", 1, 7)))

    def find_removed_file(lister: MetadataFileLister, paths: list[str]) -> pa.Table:
        message = "a file of the metadata table was removed"
        raise lakemark.SnapshotChanged(message)

    monkeypatch.setattr(MetadataFileLister, "list_names", find_removed_file)
    assert "east" in table.view().partitions
    assert table.timeline.instants == opened(tmp_path / "t").timeline.instants


def test_table_without_a_metadata_table_is_listed_whole(tmp_path: Path, listed: list[str]) -> None:
    create(tmp_path / "t", metadata_table=False)
    table = opened(tmp_path / "t")
    assert table.scan(where="region = 'south' and v = 700").to_table().num_rows == 1
    assert table.snapshot.loaded_view is not None and not listed


def test_rows_of_own_later_commits_are_found(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table = lakemark.open(tmp_path / "t")
    assert table.scan(where="v = 7").to_table().num_rows == 0
    table.upsert(rows(("new", "east", 1, 7), ("0", "south", 2, 7)))
    assert table.scan(where="v = 7").to_table().num_rows == 2
    table.compact()
    assert table.scan(where="v = 7").to_table().num_rows == 2


def test_commits_of_others_are_found_after_a_refresh(tmp_path: Path) -> None:
    writer = create(tmp_path / "t")
    table = lakemark.open(tmp_path / "t")
    assert table.scan(where="v = 7").to_table().num_rows == 0
    writer.upsert(rows(("new", "east", 1, 7)))
    assert table.scan(where="v = 7").to_table().num_rows == 0
    table.refresh()
    assert table.scan(where="v = 7").to_table().num_rows == 1


def test_table_is_opened_again_if_a_clean_begins_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path / "t")
    table = opened(tmp_path / "t")
    clean = Instant("29990101000000000", Action.CLEAN, State.REQUESTED)
    load, loaded = table.store.load, 0

    def load_after_a_clean() -> Timeline:
        nonlocal loaded
        loaded += 1
        if loaded == 2:
            table.storage.create(table.store.path_of(clean), b"")
        return load()

    monkeypatch.setattr(table.store, "load", load_after_a_clean)
    parts = table.snapshot.partial_views()
    assert parts is not None and clean in parts.context.timeline.instants
    assert clean in table.timeline.instants


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("first", ["region = 'north' and v = 100", None])
def test_query_survives_that_another_process_builds_the_metadata_table_again(
    tmp_path: Path, first: str | None, version: int
) -> None:
    create(tmp_path / "t", version=version)
    table = opened(tmp_path / "t")
    assert table.scan(where=first).to_table().num_rows == (1 if first else 8 * len(REGIONS))
    if first is None:
        assert table.scan(where="v = 100").to_table().num_rows == len(REGIONS)
    rebuild_metadata_table(opened(tmp_path / "t"))
    for condition in ("region = 'south' and v = 100", "v = 200", "region = 'west'"):
        count = table.scan(where=condition).to_table().num_rows
        assert count == opened(tmp_path / "t").scan(where=condition).to_table().num_rows > 0


def test_view_of_a_query_that_selects_most_files_is_kept(tmp_path: Path) -> None:
    create(tmp_path / "t")
    table = opened(tmp_path / "t")
    assert table.scan(where="v >= 0").to_table().num_rows == 8 * len(REGIONS)
    assert table.snapshot.loaded_view is not None
