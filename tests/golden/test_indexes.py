"""Indexes in metadata tables of Apache Hudi agree with the rows that it returns."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakemark.metadata.expressions.expression_index import ExpressionIndex
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import open_metadata_table
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.secondary_index import SecondaryIndex
from lakemark.model.meta_columns import FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakemark.timeline.clock import UTC_CLOCK
from tests.golden.golden_table import GoldenTable
from tests.golden.shared_tables import SharedTables


@pytest.mark.parametrize("name", ["v8_mor_secondary_index", "v9_mor_secondary_index"])
def test_secondary_index_finds_the_records_of_each_value(
    name: str, shared_tables: SharedTables
) -> None:
    golden = shared_tables[name]
    metadata = _metadata_of(golden)
    (partition,) = metadata.partitions_of_kind(PartitionKind.SECONDARY_INDEX)
    index = SecondaryIndex(metadata, partition)
    assert index.column == "note"
    rows = golden.expected("snapshot")
    notes = set(rows["note"].to_pylist())
    assert len(notes) > 3
    for note in notes:
        has_note = pc.field("note").is_null() if note is None else pc.field("note") == note
        expected = rows.filter(has_note)[RECORD_KEY].to_pylist()
        assert sorted(index.lookup([note])["record_key"].to_pylist()) == sorted(expected), note
    assert index.lookup(["no such note"]).num_rows == 0


def test_bounds_of_an_expression_index_are_those_of_the_files(expressions: GoldenTable) -> None:
    index = ExpressionIndex.of(_metadata_of(expressions), "expr_index_idx_ts_day")
    assert (index.column, index.definition.function) == ("ts", "from_unixtime")
    days = {row["file_name"]: row for row in index.of_files(pa.string()).to_pylist()}
    for name, rows in _by_file(expressions.expected("snapshot")).items():
        stamps = rows["ts"].to_pylist()
        seen = [datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d") for ts in stamps]
        assert (days[name]["min"], days[name]["max"]) == (min(seen), max(seen))


def test_bloom_filters_of_an_expression_contain_the_values_of_the_files(
    expressions: GoldenTable,
) -> None:
    index = ExpressionIndex.of(_metadata_of(expressions), "expr_index_idx_id_upper")
    assert (index.column, index.definition.function) == ("id", "upper")
    for name, rows in _by_file(expressions.expected("snapshot")).items():
        place = (rows[PARTITION_PATH][0].as_py(), name)
        (bloom,) = index.bloom_filters([place]).values()
        assert bloom.might_contain(pc.utf8_upper(rows["id"]).combine_chunks()).all()
        assert not bloom.might_contain(rows["id"].combine_chunks()).all(), (
            "the index has no lower-case values"
        )


@pytest.fixture(scope="module")
def expressions(shared_tables: SharedTables) -> GoldenTable:
    return shared_tables["v9_cow_expression_index"]


def _by_file(rows: pa.Table) -> dict[str, pa.Table]:
    names = set(rows[FILE_NAME].to_pylist())
    return {name: rows.filter(pc.field(FILE_NAME) == name) for name in names}


def _metadata_of(golden: GoldenTable) -> MetadataTable:
    metadata = open_metadata_table(
        golden.storage, golden.properties, golden.view.timeline, UTC_CLOCK
    )
    assert metadata is not None
    return metadata
