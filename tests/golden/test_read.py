"""What Apache Hudi wrote reads as Apache Hudi reads it, meta columns included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest

from lakemark.errors import CorruptData, InvalidConfig, SnapshotChanged
from lakemark.index.bucket import BucketIndex, bucket_of, groups_by_bucket
from lakemark.index.stored_rows import detect_key_generator
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.stored_rows import stored_rows
from tests.golden.golden_table import ALL_TABLES, GoldenTable, sorted_rows, unpack
from tests.golden.shared_tables import SharedTables

_BUCKET_COUNT = 2

#: Whose rows carry their keys and can be read.
_TABLES = [n for n in ALL_TABLES if "virtual_keys" not in n and "schema_on_read" not in n]


@pytest.fixture(scope="module", params=_TABLES)
def golden(request: pytest.FixtureRequest, shared_tables: SharedTables) -> GoldenTable:
    return shared_tables[request.param]


@pytest.fixture
def bucketed(tmp_path: Path) -> GoldenTable:
    """One that the test may damage."""
    return unpack("v9_mor_parquet_bucket", tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "v6_mor_avro_bucket",
        "v6_mor_overwrite_non_defaults",
        "v6_mor_partial_update_payload",
        "v9_mor_nonpartitioned_multiorder",
        "v9_mor_overwrite_non_defaults",
        "v9_mor_parquet_bucket",
        "v9_mor_partial_update_payload",
    ],
)
def test_what_does_not_fit_memory_is_merged_alike(name: str, shared_tables: SharedTables) -> None:
    golden = shared_tables[name]
    scan = golden.table.scan()
    forgetful = replace(scan, reader=replace(scan.reader, memory_budget_bytes=1))
    assert sorted_rows(forgetful.to_table()) == sorted_rows(golden.expected("snapshot"))


def test_pruned_columns_hold_the_same_values(golden: GoldenTable) -> None:
    columns = ["note", "id"]
    found = golden.table.scan(columns=columns).to_reader().read_all()
    expected = golden.expected("snapshot").select(columns)
    assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
    with pytest.raises(InvalidConfig, match="no_such"):
        golden.table.scan(columns=["no_such"])


def test_one_partition_at_a_time_makes_the_whole(golden: GoldenTable) -> None:
    expected = golden.expected("snapshot")
    for partition in golden.view.partitions:
        scan = golden.table.scan(columns=["id"], where=pc.field(PARTITION_PATH) == partition)
        assert {s.group.partition_path for s in scan.slices} <= {partition}, "others are not read"
        of_partition = expected.filter(pc.field(PARTITION_PATH) == partition)
        assert sorted(scan.to_table()["id"].to_pylist()) == sorted(of_partition["id"].to_pylist())


def test_a_record_is_found_by_its_key(golden: GoldenTable) -> None:
    expected = {row[RECORD_KEY]: row["id"] for row in golden.expected("snapshot").to_pylist()}
    wanted = sorted(expected)[:2]
    scan = golden.table.scan(columns=["id"], record_keys=[*wanted, "no such key"])
    assert sorted(scan.to_table()["id"].to_pylist()) == sorted(expected[key] for key in wanted)
    if "record_index" in golden.properties.metadata_partitions:
        assert len(scan.slices) <= len(wanted), "the index names the file groups"


def test_keys_and_paths_come_out_as_apache_made_them(golden: GoldenTable) -> None:
    properties = golden.properties
    if not properties.folders_are_values or "slash" in properties.table_name:
        return  # folders that are only read, not made
    rows = golden.expected("snapshot")
    generator = detect_key_generator(properties, stored_rows(golden.table), golden.root.name)
    assert generator.record_keys(rows).to_pylist() == rows[RECORD_KEY].to_pylist()
    assert generator.partition_paths(rows).to_pylist() == rows[PARTITION_PATH].to_pylist()


def test_every_record_lies_in_the_bucket_of_its_key(bucketed: GoldenTable) -> None:
    index = BucketIndex(_BUCKET_COUNT, bucketed.properties.record_key_fields)
    slices = bucketed.view.latest_slices()
    assert len(groups_by_bucket((s.group for s in slices), _BUCKET_COUNT)) == 6
    for file_slice in slices:
        for rows in bucketed.table.scan().reader.read(file_slice, [RECORD_KEY]):
            found = set(index.bucket_ids(rows[RECORD_KEY]).tolist())
            assert found == {bucket_of(file_slice.group.file_id)}


def test_a_cleaned_file_and_a_damaged_one_are_told_apart(bucketed: GoldenTable) -> None:
    file_slice = bucketed.view.latest_slices()[0]
    assert file_slice.base is not None
    log = bucketed.root / file_slice.logs[0].path
    whole = log.read_bytes()
    log.unlink()
    with pytest.raises(SnapshotChanged, match=str(file_slice.logs[0].name)):
        list(bucketed.table.scan().reader.read(file_slice))
    log.write_bytes(whole)
    (bucketed.root / file_slice.base.path).write_bytes(b"PAR1" * 40)
    with pytest.raises(CorruptData, match="Parquet"):
        list(bucketed.table.scan().reader.read(file_slice))
