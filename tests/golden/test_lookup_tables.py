"""lakemark continues golden tables that have no bucket index, and stores no key twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.model.meta_columns import (
    COMMIT_TIME,
    PARTITION_PATH,
    RECORD_KEY,
    without_meta_columns,
)
from lakemark.operations.table_index import has_bucket_index
from tests.golden.golden_table import ALL_TABLES, unpack

LOOKED_UP = [
    "v8_mor_column_stats",
    "v9_cow_clustered",
    "v9_cow_encoded_paths",
    "v9_cow_row_writer",
    "v9_mor_clustered",
    "v9_mor_hive_complex_ts",
    "v9_mor_insert_overwrite",
]


@pytest.mark.parametrize("name", LOOKED_UP)
def test_stored_rows_are_updated_in_place(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    assert not has_bucket_index(golden.table)
    table = lakemark.open(golden.root)
    before = table.scan().to_table()
    columns = without_meta_columns(before.schema).names
    instant = table.upsert(before.select(columns).slice(0, 3)).instant
    after = table.scan().to_table()
    names = [PARTITION_PATH, RECORD_KEY]
    stored = before.select(names).sort_by([(one, "ascending") for one in names])
    assert after.select(names).sort_by([(one, "ascending") for one in names]) == stored
    assert pc.sum(pc.equal(after[COMMIT_TIME], instant)).as_py() == 3


@pytest.mark.parametrize("name", [name for name in ALL_TABLES if "_bucket" in name])
def test_tables_with_a_bucket_index_are_recognised(name: str, tmp_path: Path) -> None:
    assert has_bucket_index(unpack(name, tmp_path).table)
