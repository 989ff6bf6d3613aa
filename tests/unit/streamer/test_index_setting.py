"""The setting ``table.index`` creates a table with this index, and no other table is continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import lakemark
from lakemark.errors import HudiError, InvalidConfig
from lakemark.metadata.index_definition import is_partitioned, read_definitions
from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.pipeline import open_sink
from streamer.sources.kafka import KafkaSource
from tests.json_stream import InThisProcess, kafka_batch
from tests.unit.streamer.test_opened_sink import COLUMNS, Topic

MOVE = {"partition_change": "move", "partition_by": "region"}
RECORD_INDEX = {"index": "record_index", **MOVE}
PARTITIONED = {"index": "partitioned_record_index", "partition_by": "region"}


def config(folder: Path, table: dict[str, Any], **sections: Any) -> PipelineConfig:
    return validated(
        {
            "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
            "decode": COLUMNS,
            "table": {"path": str(folder / "rows"), "record_key": "id", **table},
            **sections,
        }
    )


def start(folder: Path, table: dict[str, Any]) -> None:
    """Start a pipeline that receives nothing."""
    sink, _ = open_sink(config(folder, table), cast(KafkaSource, Topic()))
    sink.recover()


def run(folder: Path, table: dict[str, Any], offset: int, keys: range, region: str) -> None:
    """Start a pipeline, and write one batch."""
    sink, _ = open_sink(config(folder, table), cast(KafkaSource, Topic()))
    sink.recover()
    sink.progress()
    rows = [{"id": f"k{key}", "region": region} for key in keys]
    sink.write(kafka_batch("orders", offset, rows), InThisProcess())


def partitions_of(folder: Path, key: str) -> list[str]:
    rows = lakemark.open(folder / "rows").scan(columns=["id", "region"]).to_table().to_pylist()
    return sorted(row["region"] for row in rows if row["id"] == key)


@pytest.mark.parametrize(
    ("table", "indexes", "regions"),
    [
        ({"index": "lookup", "partition_by": "region"}, set[str](), ["north", "south"]),
        ({"index": "lookup", **MOVE}, set[str](), ["south"]),
        (RECORD_INDEX, {"record_index"}, ["south"]),
        (PARTITIONED, {"record_index"}, ["north", "south"]),
        ({**RECORD_INDEX, "type": "copy_on_write", "version": 6}, {"record_index"}, ["south"]),
        ({**PARTITIONED, "version": 6}, {"record_index"}, ["north", "south"]),
        ({"index": "record_index"}, {"record_index"}, ["south"]),
        ({"index": "partitioned_record_index"}, {"record_index"}, ["south"]),
    ],
    ids=str,
)
def test_new_table_gets_the_index(
    tmp_path: Path, table: dict[str, Any], indexes: set[str], regions: list[str]
) -> None:
    run(tmp_path, table, 0, range(10), "north")
    run(tmp_path, table, 10, range(5, 15), "south")
    assert partitions_of(tmp_path, "k7") == regions
    opened = lakemark.open(tmp_path / "rows")
    assert {one.name for one in opened.indexes if one.name == "record_index"} == indexes
    definitions = read_definitions(opened._table.storage)
    assert is_partitioned(definitions) is (table["index"] == "partitioned_record_index")
    assert opened._table.bucket_count is None
    assert not opened.metadata_differences()


def test_record_index_appears_at_the_next_start_after_a_death_before_it(tmp_path: Path) -> None:
    start(tmp_path, {"index": "lookup", **MOVE})
    assert not record_indexes(tmp_path)
    start(tmp_path, RECORD_INDEX)
    assert record_indexes(tmp_path)
    run(tmp_path, RECORD_INDEX, 0, range(10), "north")
    run(tmp_path, RECORD_INDEX, 10, range(10), "south")
    assert partitions_of(tmp_path, "k7") == ["south"]


def record_indexes(folder: Path) -> bool:
    return "record_index" in {one.name for one in lakemark.open(folder / "rows").indexes}


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ({}, {"index": "lookup"}, r"has a bucket index, but table\.index: lookup needs"),
        ({}, {"index": "record_index"}, r"a bucket index, but table\.index: record_index needs"),
        ({"index": "lookup"}, {"index": "bucket"}, r"so table\.index: bucket has no meaning"),
        (
            {"index": "lookup"},
            {"index": "record_index"},
            r"has no record index.*lakemark table index create .*rows record_index --run",
        ),
        (
            {"index": "record_index"},
            {"index": "partitioned_record_index"},
            r"unique in the whole table.*index drop.*index create .* --partitioned --run",
        ),
        (
            {"index": "partitioned_record_index"},
            {"index": "record_index"},
            "unique in a partition.*index drop.*index create .* record_index --run",
        ),
        ({"index": "consistent_hashing"}, {"index": "lookup"}, "has consistent hashing, but"),
        ({"index": "consistent_hashing"}, {"index": "bucket"}, r"so table\.index: bucket has no"),
        ({"index": "lookup"}, {"index": "consistent_hashing"}, "has no consistent hashing"),
    ],
)
def test_table_with_another_index_is_refused_by_name(
    tmp_path: Path, first: dict[str, Any], then: dict[str, Any], message: str
) -> None:
    run(tmp_path, first, 0, range(5), "north")
    with pytest.raises(InvalidConfig, match=message):
        start(tmp_path, then)
    run(tmp_path, {}, 5, range(5, 10), "north")  # without the setting, the table keeps its index
    assert lakemark.open(tmp_path / "rows").scan().to_table().num_rows == 10


def test_lookup_continues_a_table_that_got_a_record_index(tmp_path: Path) -> None:
    run(tmp_path, {"index": "lookup"}, 0, range(5), "north")
    lakemark.open(tmp_path / "rows").create_index("record_index")
    run(tmp_path, {"index": "lookup"}, 5, range(3, 8), "north")
    run(tmp_path, {"index": "record_index"}, 10, range(6, 10), "north")
    assert lakemark.open(tmp_path / "rows").scan().to_table().num_rows == 10


def test_index_that_changes_before_the_first_batch_is_refused_or_used(tmp_path: Path) -> None:
    start(tmp_path, {"index": "lookup"})
    run(tmp_path, {}, 0, range(5), "north")
    assert lakemark.open(tmp_path / "rows").scan().to_table().num_rows == 5
    start(tmp_path / "other", {"index": "record_index"})
    with pytest.raises(HudiError, match="record index"):
        run(tmp_path / "other", {"index": "bucket"}, 0, range(5), "north")


@pytest.mark.parametrize(
    ("table", "setting"),
    [
        ({"index": "bucket", **MOVE}, "table.index"),
        ({"index": "bucket", "operation": "insert"}, "table.index"),
        ({"index": "lookup", "buckets": 4}, "table.buckets"),
        ({"index": "record_index", "buckets": 4}, "table.buckets"),
        (
            {"index": "lookup", "partition_change": "count", "partition_by": "region"},
            "table.index",
        ),
        ({"index": "record_index", "metadata_table": False}, "table.index"),
        ({"index": "record_index", "drop_metadata_table": True}, "table.index"),
        ({"index": "record_index", "meta_columns": False}, "table.index"),
        ({"index": "record_index", "operation": "insert"}, "table.index"),
        ({"index": "record_index", "partition_by": "region"}, "table.index"),
        ({"index": "partitioned_record_index", **MOVE}, "table.index"),
    ],
    ids=str,
)
def test_contradicting_settings_are_refused(
    tmp_path: Path, table: dict[str, Any], setting: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        config(tmp_path, table)
    assert setting in {problem.path for problem in refused.value.problems}


def test_clustering_and_non_blocking_writers_know_the_index(tmp_path: Path) -> None:
    config(tmp_path, {"index": "lookup"}, clustering={"enabled": True})
    with pytest.raises(ConfigError, match=r"table\.index: bucket"):
        config(tmp_path, {"index": "bucket"}, clustering={"enabled": True})
