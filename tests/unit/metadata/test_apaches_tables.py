"""The metadata tables of Apache Hudi 1.2.0 agree with their data tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark.errors import CorruptData
from lakemark.metadata.bloom_filters import BloomFilters
from lakemark.metadata.column_stats.lookup import ColumnStatistics, PartitionStatistics
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_table_opener import open_metadata_table
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_index import RecordIndex
from lakemark.model.file_slice import BaseFile
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, StorageFileLister
from tests.golden.shared_tables import SharedTables
from tests.unit.metadata.metadata_tables import ApachesTable, names_with_metadata, unpack

NAMES = names_with_metadata()
OF_EACH_VERSION = ("v6_mor_recordindex", "v8_mor_recordindex", "v9_mor_recordindex")
WITH_STATISTICS = [
    "v6_mor_recordindex",
    "v8_cow_simple",
    "v9_cow_clustered",
    "v9_mor_evolved",
    "v9_mor_nonpartitioned_multiorder",
]

Listing = dict[str, list[tuple[str, int]]]


def listed(files: dict[str, list[DataFile]]) -> Listing:
    return {
        path: sorted((str(file.name), file.size_bytes) for file in found)
        for path, found in files.items()
    }


def in_storage(table: ApachesTable) -> Listing:
    """List the files of committed instants in storage."""
    files = StorageFileLister(table.storage).list_files()
    return listed(
        {
            path: [file for file in found if table.timeline.is_committed(file.name.instant)]
            for path, found in files.items()
        }
    )


def paths(table: ApachesTable) -> set[str]:
    """Return the paths of all files that the metadata table lists."""
    files = MetadataFileLister(table.metadata).list_files()
    return {file.path for found in files.values() for file in found}


@pytest.mark.parametrize("name", NAMES)
def test_the_listing_is_that_of_storage(name: str, shared_tables: SharedTables) -> None:
    table = ApachesTable.at(shared_tables[name].root)
    lister = MetadataFileLister(table.metadata)
    files = lister.list_files()
    assert listed(files) == in_storage(table)
    assert lister.list_partitions() == sorted(files)
    for path in files:
        assert listed(lister.list_some([path])) == listed({path: files[path]})


@pytest.mark.parametrize("name", WITH_STATISTICS)
def test_statistics_are_those_of_the_base_files(name: str, shared_tables: SharedTables) -> None:
    table = ApachesTable.at(shared_tables[name].root)
    statistics = ColumnStatistics(table.metadata)
    checked = 0
    files = MetadataFileLister(table.metadata).list_files()
    stored = {str(f.name): f.path for found in files.values() for f in found if _is_base(f)}
    rows = {file: pq.ParquetFile(table.root / path).read() for file, path in stored.items()}
    for column in next(iter(rows.values())).schema:
        found = statistics.of_column(column.name, column.type)
        for row in found.to_pylist():
            values = rows.get(row["file_name"])
            if values is not None and values.schema.field(column.name).type == column.type:
                assert row == _statistics_of(row["file_name"], values.column(column.name))
                checked += 1
    assert checked >= 10 * len(stored)


def _is_base(file: DataFile) -> bool:
    return isinstance(file, BaseFile)


def _statistics_of(file_name: str, column: pa.ChunkedArray) -> dict[str, object]:
    values = [value for value in column.to_pylist() if value is not None]
    return {
        "file_name": file_name,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "null_count": column.null_count,
        "value_count": len(column),
    }


@pytest.mark.parametrize("name", ["v8_mor_recordindex", "v9_cow_clustered", "v9_mor_compacted"])
def test_statistics_of_a_partition_bound_its_rows(name: str, shared_tables: SharedTables) -> None:
    table = ApachesTable.at(shared_tables[name].root)
    snapshot = pq.read_table(table.root.parent / "expected" / "snapshot.parquet")
    statistics = PartitionStatistics(table.metadata)
    for column in ("id", "qty", "ts", "seen", "day", "price"):
        # Spark answers with nanoseconds, which no column of the table has.
        values = snapshot.column(column)
        data_type = pa.timestamp("us", "UTC") if column == "seen" else values.type
        found = statistics.of_column(column, data_type).to_pylist()
        assert {row["partition_path"] for row in found} == {"r0", "r1", "r2"}
        of_partition = zip(
            snapshot.column("_hoodie_partition_path").to_pylist(),
            values.cast(data_type).to_pylist(),
            strict=True,
        )
        bounds = {row["partition_path"]: row for row in found}
        for path, value in of_partition:
            assert value is None or bounds[path]["min"] <= value <= bounds[path]["max"]


@pytest.mark.parametrize("name", OF_EACH_VERSION)
def test_the_record_index_has_the_location_of_each_record(
    name: str, shared_tables: SharedTables
) -> None:
    table = ApachesTable.at(shared_tables[name].root)
    snapshot = pq.read_table(table.root.parent / "expected" / "snapshot.parquet")
    index = RecordIndex(table.metadata)
    found = index.lookup(snapshot.column("_hoodie_record_key"))
    locations = {row["record_key"]: row for row in found.to_pylist()}
    for row in snapshot.to_pylist():
        location = locations[row["_hoodie_record_key"]]
        assert location["partition_path"] == row["_hoodie_partition_path"]
        assert row["_hoodie_file_name"].startswith(location["file_id"])
        assert table.timeline.is_committed(location["instant_time"])
    assert sum(rows.num_rows for rows in index.scan()) == snapshot.num_rows


@pytest.mark.parametrize("name", OF_EACH_VERSION)
def test_bloom_filters_contain_the_keys_of_their_files(
    name: str, shared_tables: SharedTables
) -> None:
    table = ApachesTable.at(shared_tables[name].root)
    listing = MetadataFileLister(table.metadata).list_files()
    files = [(path, str(f.name)) for path, found in listing.items() for f in found if _is_base(f)]
    filters = BloomFilters(table.metadata).of_files([*files, ("r0", "none.parquet")])
    assert set(filters) == set(files)
    for (path, file), bloom in filters.items():
        keys = pq.ParquetFile(table.root / path / file).read(["_hoodie_record_key"]).column(0)
        assert bloom.might_contain(keys.combine_chunks()).all()
        assert not bloom.might_contain(pa.array(["none"])).any()


@pytest.mark.parametrize("name", OF_EACH_VERSION)
def test_a_commit_counts_once_it_completed_in_the_table(name: str, tmp_path: Path) -> None:
    """Readers ignore a commit of the metadata table until the data table's instant has completed.

    The metadata table has each commit before the data table has it.
    """
    before = unpack(name, tmp_path)
    newest = before.timeline.completed()[-1]
    store = TimelineStore.of_table(before.storage, before.properties)
    written = {stat.path for stat in store.read_commit(newest).write_stats}
    keys = pa.concat_tables(RecordIndex(before.metadata).scan()).column("record_key")
    timeline = before.root / ".hoodie" / ("" if name.startswith("v6") else "timeline")
    (completed,) = [
        path
        for path in timeline.glob(f"{newest.requested_at}*.deltacommit")
        if not path.name.startswith(".")
    ]
    completed.unlink()
    after = ApachesTable.at(before.root)
    assert not after.timeline.is_committed(newest.requested_at)
    seen_before = paths(before)
    assert paths(after) == seen_before - written and written <= seen_before
    assert RecordIndex(after.metadata).lookup(keys).num_rows == len(keys)


def test_what_was_requested_after_the_timeline_was_loaded_does_not_count(
    shared_tables: SharedTables,
) -> None:
    table = ApachesTable.at(shared_tables["v9_mor_recordindex"].root)
    known = table.timeline.instants[:-1]
    older = type(table.timeline)(known, table.timeline.has_history)
    metadata = open_metadata_table(table.storage, table.properties, older, UTC_CLOCK)
    assert metadata is not None
    files = MetadataFileLister(metadata).list_files()
    names = [file.name for found in files.values() for file in found]
    assert names and all(older.is_committed(name.instant) for name in names)
    assert metadata.usable_partitions(PartitionKind.FILES) == ["files"]


def test_partitions_are_distinguished_by_their_names(shared_tables: SharedTables) -> None:
    table = ApachesTable.at(shared_tables["v9_mor_recordindex"].root)
    for kind in PartitionKind:
        expected = [] if kind.stored_name.endswith("_") else [kind.stored_name]
        assert table.metadata.partitions_of_kind(kind) == expected
    assert PartitionKind.of("secondary_index_by_name") is PartitionKind.SECONDARY_INDEX


def test_a_deleted_metadata_table_is_noticed(tmp_path: Path) -> None:
    table = unpack("v9_mor_hive_complex_ts", tmp_path)
    (table.root / ".hoodie/metadata/.hoodie/hoodie.properties").unlink()
    with pytest.raises(CorruptData, match="metadata"):
        ApachesTable.at(table.root)
    trusted = table.properties.without_metadata_table()
    assert open_metadata_table(table.storage, trusted, table.timeline, UTC_CLOCK) is None


def test_damaged_properties_of_a_metadata_table_are_reported_under_their_own_path(
    tmp_path: Path,
) -> None:
    table = unpack("v9_mor_hive_complex_ts", tmp_path)
    properties = table.root / ".hoodie/metadata/.hoodie/hoodie.properties"
    properties.write_bytes(b"hoodie.table.name=x")
    remedy = r"table\.checksum.*table check TABLE --rebuild"
    with pytest.raises(CorruptData, match=remedy) as damaged:
        ApachesTable.at(table.root)
    assert damaged.value.path.endswith(str(properties))
