"""lakemark reads tables of Apache Hudi as Apache Hudi does, meta columns included."""

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

#: Tables whose rows contain their keys and can be read.
_TABLES = [n for n in ALL_TABLES if "virtual_keys" not in n and "schema_on_read" not in n]


@pytest.fixture(scope="module", params=_TABLES)
def golden(request: pytest.FixtureRequest, shared_tables: SharedTables) -> GoldenTable:
    return shared_tables[request.param]


@pytest.fixture
def bucketed(tmp_path: Path) -> GoldenTable:
    """A table that the test may damage."""
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
def test_merge_that_spills_to_disk_gives_the_same_rows(
    name: str, shared_tables: SharedTables
) -> None:
    golden = shared_tables[name]
    scan = golden.table.scan()
    forgetful = replace(scan, reader=replace(scan.reader, memory_budget_bytes=1))
    assert sorted_rows(forgetful.to_table()) == sorted_rows(golden.expected("snapshot"))


def test_selected_columns_have_the_same_values(golden: GoldenTable) -> None:
    columns = ["note", "id"]
    found = golden.table.scan(columns=columns).to_reader().read_all()
    expected = golden.expected("snapshot").select(columns)
    assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
    with pytest.raises(InvalidConfig, match="no_such"):
        golden.table.scan(columns=["no_such"])


def test_scans_of_each_partition_return_all_rows(golden: GoldenTable) -> None:
    expected = golden.expected("snapshot")
    for partition in golden.view.partitions:
        scan = golden.table.scan(columns=["id"], where=pc.field(PARTITION_PATH) == partition)
        assert {s.group.partition_path for s in scan.slices} <= {partition}, (
            "only the slices of the partition are read"
        )
        of_partition = expected.filter(pc.field(PARTITION_PATH) == partition)
        assert sorted(scan.to_table()["id"].to_pylist()) == sorted(of_partition["id"].to_pylist())


def test_record_is_found_by_its_key(golden: GoldenTable) -> None:
    expected = {row[RECORD_KEY]: row["id"] for row in golden.expected("snapshot").to_pylist()}
    wanted = sorted(expected)[:2]
    scan = golden.table.scan(columns=["id"], record_keys=[*wanted, "no such key"])
    assert sorted(scan.to_table()["id"].to_pylist()) == sorted(expected[key] for key in wanted)
    if "record_index" in golden.properties.metadata_partitions:
        assert len(scan.slices) <= len(wanted), "the index returns the file groups"


def test_generated_keys_and_paths_are_those_of_apache(golden: GoldenTable) -> None:
    properties = golden.properties
    if not properties.folders_are_values or "slash" in properties.table_name:
        return  # lakemark reads such folders, but does not create them
    rows = golden.expected("snapshot")
    generator = detect_key_generator(properties, stored_rows(golden.table), golden.root.name)
    assert generator.record_keys(rows).to_pylist() == rows[RECORD_KEY].to_pylist()
    if golden.table.version.is_written:  # the properties of older versions lack the style of paths
        assert generator.partition_paths(rows).to_pylist() == rows[PARTITION_PATH].to_pylist()


def test_every_record_is_in_the_bucket_of_its_key(bucketed: GoldenTable) -> None:
    index = BucketIndex(_BUCKET_COUNT, bucketed.properties.record_key_fields)
    slices = bucketed.view.latest_slices()
    assert len(groups_by_bucket((s.group for s in slices), lambda _: _BUCKET_COUNT)) == 6
    for file_slice in slices:
        for rows in bucketed.table.scan().reader.read(file_slice, [RECORD_KEY]):
            found = set(index.bucket_ids(rows[RECORD_KEY]).tolist())
            assert found == {bucket_of(file_slice.group.file_id)}


def test_cleaned_file_and_damaged_file_raise_different_errors(bucketed: GoldenTable) -> None:
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
