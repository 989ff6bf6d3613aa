"""A pipeline that does not fit its table is refused by name, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from sinks.hudi.settings import SinkSettings
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.table_setup import check_table, find_table, table_spec
from table.config import keys
from table.config.table_properties import TableProperties
from table.errors import HudiError, InvalidConfig, Unsupported
from table.hudi_table import HudiTable, create_table, open_table
from table.index.bucket import BucketIndex
from table.storage import StorageLocation, open_storage
from tests.tables import INDEX, SCHEMA, Row, commit, make, spec, writer


def pipeline(table: Mapping[str, object]) -> PipelineConfig:
    return validated(
        {
            "source": {"bootstrap": "localhost:9092", "topic": "orders"},
            "table": {
                "path": "orders",
                "record_key": ["id"],
                "partition_by": ["region"],
                "ordering": ["ts"],
                "buckets": 2,
                **table,
            },
        }
    )


def existing(changes: Mapping[str, str] | None = None) -> HudiTable:
    """A table with one commit, and with some of its properties changed afterwards."""
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/orders"))
    make(storage)
    commit(to := writer(storage), [Row("a", 1, 1)], to.settings.bucket_metadata())
    values = {**to.table.properties.values, **(changes or {})}
    storage.put(".hoodie/hoodie.properties", TableProperties(values).to_bytes())
    return HudiTable(storage, TableProperties(values))


def check(
    table: HudiTable,
    settings: Mapping[str, object] | None = None,
    index: BucketIndex = INDEX,
    columns: pa.Schema = SCHEMA,
) -> None:
    check_table(table, table_spec(pipeline(settings or {})), index, columns)


def test_the_pipeline_that_made_a_table_fits_it() -> None:
    check(existing())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"record_key": ["id", "ts"]}, "record_key is id in the table and id,ts in the pipeline"),
        ({"partition_by": []}, "partition_by is region in the table and none in the pipeline"),
        ({"ordering": ["v"]}, "ordering is ts in the table and v in the pipeline"),
        ({"ordering": [], "merge_mode": "commit_time"}, "merge_mode is EVENT_TIME_ORDERING"),
        ({"type": "copy_on_write"}, "type is MERGE_ON_READ in the table"),
        ({"hive_style": True}, "hive_style is False in the table"),
    ],
)
def test_other_settings_are_refused_with_both_values(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check(existing(), settings)


def test_another_bucket_count_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"has 2 buckets .* set table.buckets to 2"):
        check(existing(), index=BucketIndex(4, ("id",)))


class OthersSettings(SinkSettings):
    """Of a writer that keeps the bucket count nowhere, as Apache Hudi does."""

    def bucket_metadata(self) -> dict[str, str]:
        return {}


@pytest.mark.parametrize("is_first_ours", [True, False])
def test_another_bucket_count_is_found_where_others_have_written(is_first_ours: bool) -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/orders"))
    make(storage)
    rows = [Row(f"k{n}", 1, 1) for n in range(20)]
    first = writer(storage)
    if not is_first_ours:
        first.settings = OthersSettings(INDEX)
    commit(first, rows)
    other = writer(storage)
    other.settings = OthersSettings(INDEX)
    commit(other, rows[:5])
    table = HudiTable(storage, other.table.properties)
    check(table)
    for count in (1, 4):
        with pytest.raises(InvalidConfig, match=f"does not fit the {count} buckets"):
            check(table, index=BucketIndex(count, ("id",)))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (SCHEMA.remove(SCHEMA.get_field_index("v")), "column v is int64 .* absent"),
        (SCHEMA.set(3, pa.field("v", pa.string())), "column v is int64 .* string"),
    ],
)
def test_columns_that_would_lose_values_are_refused(columns: pa.Schema, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check(existing(), columns=columns)


def test_a_column_may_be_added() -> None:
    check(existing(), columns=SCHEMA.append(pa.field("more", pa.string())))


@pytest.mark.parametrize("version", ["6", "8"])
def test_older_table_versions_are_refused(version: str) -> None:
    with pytest.raises(Unsupported, match=f"is of version {version}"):
        check(existing({keys.TABLE_VERSION: version}))


@pytest.mark.refuses("Bootstrapped tables, some columns of which lie in files of another table")
def test_a_bootstrapped_table_is_refused_when_it_opens() -> None:
    table = existing({keys.BOOTSTRAP_BASE_PATH: "s3://lake/parquet"})
    with pytest.raises(Unsupported, match="bootstrapped from s3://lake/parquet"):
        open_table(table.location)


def test_a_metadata_table_is_refused_until_dropping_it_is_asked_for() -> None:
    table = existing({keys.METADATA_PARTITIONS: "column_stats,files"})
    table.storage.create(".hoodie/metadata/files/some.hfile", b"stale")
    with pytest.raises(Unsupported, match="--drop-metadata-table"):
        check(table)
    dropped = find_table(table.location, drop_metadata_table=True)
    assert dropped is not None
    check(dropped)
    assert not table.storage.list_tree(".hoodie/metadata")
    assert dropped.snapshot(["id"]).read_all().num_rows == 1


def test_a_folder_that_is_no_table_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidConfig, match=r"no Hudi table \(it holds 'notes.txt'\)"):
        create_table(StorageLocation(str(tmp_path)), spec())
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("key", ["", None])
def test_rows_without_a_key_are_never_written(key: str | None) -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/orders"))
    make(storage)
    to = writer(storage)
    with pytest.raises(HudiError):
        commit(to, [Row(key, 1, 1)])  # type: ignore[arg-type]
    to.abandon()
    assert writer(storage).table.snapshot().read_all().num_rows == 0
