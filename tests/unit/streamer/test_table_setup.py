"""A pipeline that does not fit its table is refused, by a named setting, before any write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast
from uuid import uuid4

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.key_generators import KeyGeneratorType
from lakemark.config.table_properties import TableProperties
from lakemark.errors import HudiError, InvalidConfig, Unsupported
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.operations.create import create_table
from lakemark.operations.metadata_table import (
    drop_metadata_table,
    keep_metadata_table,
    metadata_differences,
)
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.writer_settings import WriterSettings
from lakemark.storage import StorageLocation, open_storage
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.table_setup import (
    check_partial_rows,
    check_table,
    columns_with,
    table_spec,
)
from tests.tables import INDEX, SCHEMA, Row, commit, make, spec, writer
from tests.unit.merge.custom.mergers import ByEventTime
from transforms.decode.schema_policy import SchemaPolicy


def pipeline(table: Mapping[str, object]) -> PipelineConfig:
    return validated(
        {
            "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
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


def existing(changes: Mapping[str, str] | None = None) -> OpenTable:
    """Create a table with one commit, and then change some of its properties."""
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/orders"))
    make(storage)
    commit(to := writer(storage), [Row("a", 1, 1)], to.settings.index_metadata())
    values = {**to.table.properties.values, **(changes or {})}
    storage.put(".hoodie/hoodie.properties", TableProperties(values).to_bytes())
    return OpenTable(storage, TableProperties(values))


def check(
    table: OpenTable,
    settings: Mapping[str, object] | None = None,
    index: BucketIndex = INDEX,
    columns: pa.Schema = SCHEMA,
    policy: SchemaPolicy | None = None,
    *,
    drops_metadata_table: bool = False,
) -> KeyGenerator:
    spec = table_spec(pipeline(settings or {}))
    policy = policy or SchemaPolicy()
    dropping = drops_metadata_table
    return check_table(table, spec, index, columns, policy, drops_metadata_table=dropping)


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
        ({"partial_update": "ignore_defaults"}, "partial_update is none in the table"),
        ({"delete_when": {"field": "v", "value": "9"}}, "delete_marker is none in the table"),
        (
            {"payload": "PartialUpdateAvroPayload"},
            "partial_update is none in the table and IGNORE_DEFAULTS in the pipeline",
        ),
        ({"hive_style": True}, "hive_style is False in the table"),
    ],
)
def test_other_settings_are_refused_with_both_values(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check(existing(), settings)


def test_only_an_empty_table_with_other_settings_may_be_deleted() -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/orders"))
    make(storage)
    empty = open_table(StorageLocation(storage.location.url))
    remedy = f"its folder {storage.location.url} can be deleted, and the next run creates it"
    with pytest.raises(InvalidConfig, match="url_encode is False in the table") as refused:
        check(empty, {"url_encode": True})
    assert remedy in str(refused.value)
    with pytest.raises(InvalidConfig, match="url_encode is False in the table") as refused:
        check(existing(), {"url_encode": True})
    assert "can be deleted" not in str(refused.value)


def test_a_merger_is_kept_by_its_strategy_and_found_before_anything_is_written() -> None:
    own = table_spec(pipeline({"merger": "tests.unit.merge.custom.mergers:ByEventTime"}))
    stored = own.to_properties().values
    assert stored[keys.MERGE_MODE] == "CUSTOM"
    assert stored[keys.MERGE_STRATEGY_ID] == ByEventTime.merging_strategy
    with pytest.raises(InvalidConfig, match=r"mergers\.py\) has no Missing"):
        table_spec(pipeline({"merger": "tests.unit.merge.custom.mergers:Missing"}))


def test_another_bucket_count_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"has 2 buckets .* set table.buckets to 2"):
        check(existing(), index=BucketIndex(4, ("id",)))


def test_key_generator_of_the_table_is_reused() -> None:
    keys_of = check(existing({keys.KEY_GENERATOR_TYPE: "COMPLEX"}))
    assert keys_of.config.kind is KeyGeneratorType.COMPLEX
    assert keys_of.record_keys(pa.table({"id": ["a"]})).to_pylist() == ["a"], "as the rows have it"


@pytest.mark.parametrize("word", ["SPARK_SQL", "AUTO_RECORD", "USER_PROVIDED"])
def test_a_key_generator_that_is_not_implemented_is_refused_without_asking_for_a_setting(
    word: str,
) -> None:
    message = rf"keygenerator.type is '{word}', but lakemark does not .* write with Apache Hudi"
    with pytest.raises(Unsupported, match=message):
        check(existing({keys.KEY_GENERATOR_TYPE: word}))


def test_unknown_files_of_a_bucket_index_are_refused() -> None:
    path, table = "other_bucket_index_meta/0.hashing_config", existing()
    table.storage.put(f".hoodie/.bucket_index/{path}", b"{}")
    with pytest.raises(Unsupported, match=rf"\.bucket_index/{path}.*write to another path"):
        check(table)


class OthersSettings(WriterSettings):
    """Settings of a writer that, like Apache Hudi, does not record the bucket count."""

    def index_metadata(self) -> dict[str, str]:
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
    table = OpenTable(storage, other.table.properties)
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


def test_a_default_that_would_be_lost_is_refused_where_defaults_are_filled() -> None:
    table = existing({keys.PARTIAL_UPDATE_MODE: "IGNORE_DEFAULTS"})
    partial = {"partial_update": "ignore_defaults"}
    check(table, partial)
    newest = table.newest_metadata()
    assert newest is not None
    schema = json.loads(newest.extra_metadata[keys.SCHEMA])
    schema["fields"][-1] |= {"type": ["long", "null"], "default": 7}
    cast(dict[str, str], newest.extra_metadata)[keys.SCHEMA] = json.dumps(schema)
    with pytest.raises(Unsupported, match=r"column v of table .* has the default 7"):
        check(table, partial)


def with_type(name: str, data_type: pa.DataType) -> pa.Schema:
    place = SCHEMA.get_field_index(name)
    return SCHEMA.set(place, pa.field(name, data_type))


WITHOUT_V = SCHEMA.remove(SCHEMA.get_field_index("v"))


@pytest.mark.parametrize(
    ("columns", "policy", "after"),
    [
        (WITHOUT_V, SchemaPolicy("evolve"), pa.int64()),
        (with_type("v", pa.int32()), SchemaPolicy("ignore", "evolve"), pa.int64()),
    ],
)
def test_the_table_keeps_what_an_earlier_run_evolved(
    columns: pa.Schema, policy: SchemaPolicy, after: pa.DataType
) -> None:
    table = existing()
    check(table, columns=columns, policy=policy)
    assert columns_with(table, columns).names == SCHEMA.names
    assert columns_with(table, columns).field("v").type == after
    with pytest.raises(InvalidConfig, match="column v is int64"):
        check(table, columns=columns, policy=SchemaPolicy("rescue", "rescue"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (with_type("v", pa.float64()), "column v is int64 .* double"),
        (with_type("v", pa.string()), "column v is int64 .* string"),
        (with_type("ts", pa.int32()), "column ts is int64 .* record key, partition and ordering"),
    ],
)
def test_no_policy_changes_types_with_loss_nor_those_of_keys(
    columns: pa.Schema, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check(existing(), columns=columns, policy=SchemaPolicy("evolve", "evolve"))


@pytest.mark.parametrize(
    ("columns", "setting"),
    [
        (with_type("v", pa.int32()), "or set decode.wider_values: evolve"),
        (with_type("v", pa.string()), None),
        (WITHOUT_V, "or set decode.unknown_fields: evolve"),
    ],
)
def test_the_error_names_the_policy_that_allows_the_columns(
    columns: pa.Schema, setting: str | None
) -> None:
    with pytest.raises(InvalidConfig, match="declare it as it is in the table") as refused:
        check(existing(), columns=columns)
    assert str(refused.value).endswith(setting or "declare it as it is in the table")


def test_a_column_may_be_added() -> None:
    check(existing(), columns=SCHEMA.append(pa.field("more", pa.string())))


@pytest.mark.parametrize("version", WRITTEN)
def test_a_table_is_continued_in_its_version(version: FormatVersion) -> None:
    location = StorageLocation(f"memory://{uuid4()}")
    table = create_table(location, spec(version=version))
    check_table(table, spec(), INDEX, SCHEMA)
    commit(writer(table.storage), [Row("a", 1, 1)])
    assert writer(table.storage).table.version is version


def test_version_6_has_no_partial_rows() -> None:
    location = StorageLocation(f"memory://{uuid4()}")
    table = create_table(location, spec(version=FormatVersion.V6))
    check_partial_rows(table, "none")
    with pytest.raises(Unsupported, match="which does not support partial rows; remove"):
        check_partial_rows(table, "absent_fields")


@pytest.mark.refuses("Bootstrapped tables, which read some columns from files of another table")
def test_a_bootstrapped_table_is_refused_when_it_opens() -> None:
    table = existing({keys.BOOTSTRAP_BASE_PATH: "s3://lake/parquet"})
    with pytest.raises(Unsupported, match=r"hoodie\.bootstrap\.base\.path is 's3://lake/parquet'"):
        open_table(table.location)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ("secondary_index_note", "metadata.partitions is .*', .*--drop-metadata-table"),
        ("expr_index_day", "expr_index_day .* is undefined in .*; drop the index"),
    ],
)
def test_an_index_that_is_not_kept_is_refused_until_dropping_it_is_asked_for(
    index: str, text: str
) -> None:
    table = existing({keys.METADATA_PARTITIONS: f"column_stats,files,{index}"})
    table.storage.create(f".hoodie/metadata/{index}/some.hfile", b"stale")
    with pytest.raises(Unsupported, match=text):
        check(table)
    check(table, drops_metadata_table=True)
    drop_metadata_table(table)
    dropped = open_table(table.location)
    check(dropped)
    assert dropped.scan(columns=["id"]).to_reader().read_all().num_rows == 1
    assert keep_metadata_table(dropped) == "there is none"
    assert dropped.properties.metadata_partitions == ("column_stats", "files", "partition_stats")
    assert metadata_differences(dropped) == []


def test_folder_without_a_table_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidConfig, match=r"not a Hudi table \(it contains 'notes.txt'\)"):
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
    assert writer(storage).table.scan().to_reader().read_all().num_rows == 0
