"""What Apache Hudi wrote reads as Apache Hudi reads it, meta columns included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from table.config.table_properties import KeyGeneratorType
from table.errors import CorruptData, InvalidConfig, SnapshotChanged
from table.index.bucket import BucketIndex, bucket_of, groups_by_bucket
from table.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from table.model.meta_columns import PARTITION_PATH, RECORD_KEY
from table.read import query
from table.read.file_group_reader import FileGroupReader
from table.view.file_system_view import FileSystemView
from tests.golden.golden_table import GoldenTable, unpack

TABLES = [
    "v9_mor_parquet_bucket",
    "v9_mor_nonpartitioned_multiorder",
    "v9_mor_hive_complex_ts",
]
_BUCKET_COUNT = 2

Query = Callable[[FileSystemView, FileGroupReader], Iterator[pa.RecordBatch]]


@pytest.fixture(scope="module", params=TABLES)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GoldenTable:
    return unpack(request.param, tmp_path_factory.mktemp("golden"))


@pytest.fixture
def bucketed(tmp_path: Path) -> GoldenTable:
    return unpack("v9_mor_parquet_bucket", tmp_path)


@pytest.mark.parametrize("memory_budget_bytes", [1, 256 << 20])
@pytest.mark.parametrize("ask", [query.snapshot, query.read_optimized])
def test_query_answers_as_apache_does(
    golden: GoldenTable, ask: Query, memory_budget_bytes: int
) -> None:
    reader = replace(golden.reader, memory_budget_bytes=memory_budget_bytes)
    found = pa.Table.from_batches(ask(golden.view, reader), reader.schema)
    expected = golden.expected(ask.__name__)
    assert found.column_names == expected.column_names
    assert _sorted_rows(found) == _sorted_rows(expected)


def test_pruned_columns_hold_the_same_values(golden: GoldenTable) -> None:
    columns = ["note", "id"]
    batches = query.snapshot(golden.view, golden.reader, columns)
    found = pa.Table.from_batches(batches)
    expected = golden.expected("snapshot").select(columns)
    assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
    with pytest.raises(InvalidConfig, match="no_such"):
        list(query.snapshot(golden.view, golden.reader, ["no_such"]))


def test_one_partition_at_a_time_makes_the_whole(golden: GoldenTable) -> None:
    expected = golden.expected("snapshot")
    for partition in golden.view.partitions:
        batches = query.snapshot(golden.view, golden.reader, [PARTITION_PATH], partition)
        found = pa.Table.from_batches(batches)[PARTITION_PATH].to_pylist()
        assert found == [partition] * expected[PARTITION_PATH].to_pylist().count(partition)


def test_keys_and_paths_come_out_as_apache_made_them(golden: GoldenTable) -> None:
    properties = golden.properties
    config = KeyGeneratorConfig(
        properties.record_key_fields,
        properties.partition_fields,
        KeyGeneratorType(properties.key_generator),
        hive_style=properties.hive_style,
        url_encode=properties.url_encode,
    )
    rows = golden.expected("snapshot")
    generator = KeyGenerator(config)
    assert generator.record_keys(rows).to_pylist() == rows[RECORD_KEY].to_pylist()
    assert generator.partition_paths(rows).to_pylist() == rows[PARTITION_PATH].to_pylist()


def test_every_record_lies_in_the_bucket_of_its_key(bucketed: GoldenTable) -> None:
    index = BucketIndex(_BUCKET_COUNT, bucketed.properties.record_key_fields)
    slices = bucketed.view.latest_slices()
    assert len(groups_by_bucket((s.group for s in slices), _BUCKET_COUNT)) == 6
    for file_slice in slices:
        for rows in bucketed.reader.read(file_slice, [RECORD_KEY]):
            found = set(index.bucket_ids(rows[RECORD_KEY]).tolist())
            assert found == {bucket_of(file_slice.group.file_id)}


def test_a_cleaned_file_and_a_damaged_one_are_told_apart(bucketed: GoldenTable) -> None:
    file_slice = bucketed.view.latest_slices()[0]
    assert file_slice.base is not None
    log = bucketed.root / file_slice.logs[0].path
    whole = log.read_bytes()
    log.unlink()
    with pytest.raises(SnapshotChanged, match=str(file_slice.logs[0].name)):
        list(bucketed.reader.read(file_slice))
    log.write_bytes(whole)
    (bucketed.root / file_slice.base.path).write_bytes(b"PAR1" * 40)
    with pytest.raises(CorruptData, match="Parquet"):
        list(bucketed.reader.read(file_slice))


def _sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows without order, times in microseconds without zone: Spark writes nanoseconds."""
    seen = table.schema.get_field_index("seen")
    local = table["seen"].cast(pa.timestamp("us"))
    rows: list[dict[str, Any]] = table.set_column(seen, "seen", local).to_pylist()
    return sorted(rows, key=lambda row: str((row[PARTITION_PATH], row[RECORD_KEY])))
