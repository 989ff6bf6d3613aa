"""The bloom filters that a table's metadata table keeps, from its creation to its rebuild."""

from __future__ import annotations

import pytest

from lakemark.codec.hfile import Entries
from lakemark.config import keys
from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.metadata import bootstrap
from lakemark.metadata.bloom_filter_records import delete_bloom_filters, encode_bloom_filters
from lakemark.metadata.bloom_filters import BloomFilters
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges
from lakemark.model.changes import ChangeKind
from lakemark.model.file_slice import BaseFile
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import (
    drop_metadata_table,
    keep_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.rollback import roll_back_named
from tests.golden.shared_tables import SharedTables
from tests.table_services import new_storage
from tests.tables import Row, commit, make, writer
from tests.unit.metadata.metadata_tables import ApachesTable
from tests.unit.metadata.written_tables import decoded

NAME = PartitionKind.BLOOM_FILTERS.stored_name
#: A file that no table of these tests has.
ABSENT = ("north", "00000000-0000-0000-0000-000000000000-0_0-0-0_1.parquet")


@pytest.mark.parametrize("name", ["v6_mor_recordindex", "v8_mor_recordindex", "v9_mor_recordindex"])
def test_the_records_are_apaches(name: str, shared_tables: SharedTables) -> None:
    table = ApachesTable.at(shared_tables[name].root)
    listing = MetadataFileLister(table.metadata).list_files()
    files = [file for found in listing.values() for file in found]
    ours = encode_bloom_filters(table.storage, files)
    stored = RecordChanges.union(
        RecordChanges.of(part.keys.to_pylist(), part.values)
        for part in map(table.metadata.rows.newest_entries, table.metadata.slices(NAME))
    )
    assert _without_times(ours.written) == _without_times(stored.written)
    same = [
        one == other for one, other in zip(ours.written.values, stored.written.values, strict=True)
    ]
    assert any(same), "Apache Hudi gives the first filters of a partition the time of its creation"
    assert delete_bloom_filters(files).deleted == ours.written.keys


def _without_times(entries: Entries) -> dict[str, dict[str, object]]:
    records = dict(decoded(entries))
    for record in records.values():
        del record["BloomFilterMetadata"]["timestamp"]
    return records


@pytest.mark.parametrize("table_type", TableType)
def test_each_base_file_has_its_bloom_filter(table_type: TableType) -> None:
    storage = new_storage()
    make(storage, table_type, indexes=[NAME])
    to = writer(storage)
    for number in range(12):
        commit(to, [Row("a", number), Row(f"k{number}", number, region="south")])
        if number % 3 == 2:
            commit(to, [Row("a", number, kind=ChangeKind.DELETE)])
            to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
            clean(to.table, CleaningPolicy(commits=1))
        assert _base_files(to) and set(_filters(to)) == _base_files(to)
        assert metadata_differences(to.table) == []
    assert to.table.metadata_writer.compacted_at, "the metadata table was compacted"


@pytest.mark.parametrize("table_type", TableType)
def test_a_rollback_removes_the_filters_of_its_files(table_type: TableType) -> None:
    storage = new_storage()
    make(storage, table_type, indexes=[NAME])
    to = writer(storage)
    commit(to, [Row("a", 1)])
    before = set(_filters(to))
    undone = commit(to, [Row("b", 2, region="south")])
    assert set(_filters(to)) > before
    roll_back_named(to.table.context, undone.requested_at)
    to = writer(storage)
    assert set(_filters(to)) == before
    commit(to, [Row("b", 3, region="south")])
    assert metadata_differences(writer(storage).table) == []


def test_an_index_is_built_again_with_the_metadata_table() -> None:
    storage = new_storage()
    make(storage, indexes=[NAME])
    to = writer(storage)
    commit(to, [Row("a", 1)])
    rebuild_metadata_table(to.table)
    assert NAME in to.table.properties.metadata_partitions
    assert set(_filters(to)) == _base_files(to)
    _drop_as_a_restore_does(storage)
    assert keep_metadata_table(writer(storage).table) == "there is none"
    to = writer(storage)
    assert set(_filters(to)) == _base_files(to)
    assert keys.DROPPED_INDEXES not in to.table.properties.values
    commit(to, [Row("b", 1, region="south")])
    assert metadata_differences(to.table) == []


@pytest.mark.parametrize("is_dropped_before", [False, True])
def test_an_index_is_not_built_again_after_the_metadata_table_was_removed(
    is_dropped_before: bool,
) -> None:
    storage = new_storage()
    make(storage, indexes=[NAME])
    if is_dropped_before:
        _drop_as_a_restore_does(storage)
    drop_metadata_table(writer(storage).table)
    keep_metadata_table(writer(storage).table)
    assert NAME not in writer(storage).table.properties.metadata_partitions


def test_a_missing_and_a_wrong_filter_are_reported() -> None:
    storage = new_storage()
    make(storage, indexes=[NAME])
    to = writer(storage)
    commit(to, [Row("a", 1), Row("b", 1, region="south")])
    (north, _), (south, _) = sorted(_filters(to))
    bases = {base.partition_path: base for base in _bases(to)}
    to = _with_filters(storage, delete_bloom_filters([bases["north"]]))
    (missing,) = metadata_differences(to.table)
    assert (missing.path, missing.aspect) == (bases["north"].path, NAME)
    assert (north, south) == ("north", "south")
    copied = encode_bloom_filters(storage, [bases["south"]]).written
    swapped = delete_bloom_filters([bases["north"]]).deleted
    to = _with_filters(storage, RecordChanges.of(swapped.to_pylist(), copied.values))
    (wrong,) = metadata_differences(to.table)
    assert (wrong.path, wrong.stored) == (bases["north"].path, "another filter")


def _with_filters(storage: Storage, changes: RecordChanges) -> TableWriter:
    """Commit some changes to the bloom filters with a commit that changes no data."""
    instant = commit(writer(storage), [])
    own = FolderStorage(storage, METADATA_FOLDER)
    instants = TimelineStore(own)
    MetadataStore(own, instants, instants.load()).commit(instant, {NAME: changes}, lambda: None)
    return writer(storage)


def _drop_as_a_restore_does(storage: Storage) -> None:
    bootstrap.drop_metadata_table(storage, read_properties(storage), lambda: None)


def _metadata(to: TableWriter) -> MetadataTable:
    to.table.refresh()
    table = to.table
    metadata = table.metadata_opener.open(table.properties, table.timeline, table.store.clock)
    assert metadata is not None
    return metadata


def _bases(to: TableWriter) -> list[BaseFile]:
    listing = MetadataFileLister(_metadata(to)).list_files()
    return [f for files in listing.values() for f in files if isinstance(f, BaseFile)]


def _base_files(to: TableWriter) -> set[tuple[str, str]]:
    return {(base.partition_path, str(base.name)) for base in _bases(to)}


def _filters(to: TableWriter) -> list[tuple[str, str]]:
    """Return the files that have a filter, after a check that no other file has one."""
    metadata = _metadata(to)
    found = BloomFilters(metadata).of_files([*_base_files(to), ABSENT])
    rows = metadata.newest(metadata.parts(NAME), PartitionKind.BLOOM_FILTERS.payload)
    assert sum(table.num_rows for table in rows) == len(found)
    return [*found]
