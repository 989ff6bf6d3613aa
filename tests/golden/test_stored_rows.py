"""lakemark continues tables of Apache Hudi with the keys, paths and buckets of their rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.errors import HudiError, InvalidConfig, Refused
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, without_meta_columns
from lakemark.operations.change_version import change_table_version
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.write_checks import check_stored_rows
from lakemark.storage import StorageLocation
from tests.golden.golden_table import ALL_TABLES, unpack
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable

_BARE = ["v6_mor_complex_bare_keys", "v8_mor_complex_bare_keys"]


def index_of(table: OpenTable, count: int = 2) -> BucketIndex:
    return BucketIndex(count, table.properties.record_key_fields)


@pytest.mark.parametrize("name", [name for name in ALL_TABLES if "_bucket" in name])
def test_table_with_a_bucket_index_of_two_is_accepted(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path).table
    check_stored_rows(table, index_of(table))
    with pytest.raises(InvalidConfig, match=r"does not fit the 3 buckets .* would use bucket"):
        check_stored_rows(table, index_of(table, 3))


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("v9_cow_slash_dates", InvalidConfig, r"partition path '2026/01/.*give it '2026-01-"),
        ("v9_mor_slash_paths", InvalidConfig, r"partition path '2026/r.*would reject it"),
        ("v9_cow_encoded_paths", InvalidConfig, "does not begin with a bucket number"),
        ("v9_cow_simple", InvalidConfig, "does not begin with a bucket number"),
        ("v9_cow_custom_keys", InvalidConfig, "timestamp.type is 'none'; lakemark formats only"),
        ("v9_cow_timestamp_keys_text", InvalidConfig, "timestamp.type is 'DATE_STRING'"),
    ],
)
def test_table_whose_rows_would_get_other_paths_or_buckets_is_refused(
    name: str, error: type[HudiError], message: str, tmp_path: Path
) -> None:
    table = unpack(name, tmp_path).table
    with pytest.raises(error, match=message):
        check_stored_rows(table, index_of(table))


@pytest.mark.parametrize(
    "name",
    [
        "v6_mor_timestamp_keys_millis",
        "v9_mor_timestamp_keys_millis",
        "v9_cow_timestamp_keys_days",
        "v9_cow_timestamp_keys_zoned",
    ],
)
def test_times_are_formatted_as_the_folders_of_the_table(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path).table
    generator = KeyGenerator(KeyGeneratorConfig.of(table.properties, name))
    rows = table.scan().to_reader().read_all()
    assert generator.partition_paths(rows).to_pylist() == rows[PARTITION_PATH].to_pylist()
    assert generator.record_keys(rows).to_pylist() == rows[RECORD_KEY].to_pylist()


@pytest.mark.parametrize("name", _BARE)
def test_update_of_a_bare_complex_key_does_not_duplicate_it(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path).table
    before = table.scan().to_reader().read_all()
    assert before[RECORD_KEY] == before["id"]
    columns = without_meta_columns(before.schema)
    newer = before.select(columns.names).slice(0, 4)
    place = columns.get_field_index("ts")
    newer = newer.set_column(place, columns.field("ts"), pa.array([10**9] * 4, pa.int64()))
    path = Path(table.location.url.removeprefix("file://"))
    twin = ApacheTable(table.properties.table_name, ["id"], ["region"], ["ts"])
    writer = LakemarkWriter.open(path, twin, columns)
    writer.writer.recover()
    assert writer.keys.config.bare_lone_key
    writer.upsert(newer)
    after = open_table(StorageLocation(str(path))).scan().to_reader().read_all()
    assert Counter(after["id"].to_pylist()).most_common(1)[0][1] == 1
    assert after.num_rows == before.num_rows
    assert Counter(after["ts"].to_pylist())[10**9] == 4


@pytest.mark.parametrize("name", _BARE)
def test_version_change_keeps_bare_complex_keys_or_is_refused(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path).table
    with pytest.raises(Refused, match=r"values alone.*'id:<value>' in version 9"):
        change_table_version(table, FormatVersion.V9, LocalRunner(1))
    other = FormatVersion.V8 if table.version is FormatVersion.V6 else FormatVersion.V6
    change_table_version(table, other, LocalRunner(1))
    changed = open_table(StorageLocation(table.location.url))
    assert changed.version is other
    assert check_stored_rows(changed, index_of(changed)).config.bare_lone_key


@pytest.mark.parametrize("name", ["v9_mor_complex_one_key_named", "v9_mor_nonpartitioned_complex"])
def test_keys_that_name_their_fields_are_accepted(name: str, tmp_path: Path) -> None:
    table = unpack(name, tmp_path).table
    assert check_stored_rows(table, index_of(table)).config.names_key_fields
