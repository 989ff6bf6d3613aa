"""Partition columns that the files lack get their values from the partition path."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties, TableType
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.keygen.partition_path import DEFAULT_PARTITION
from lakemark.model.action import Action
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read.path_columns import PathColumns
from lakemark.read.queries import Incremental, Snapshot
from lakemark.spark.plain_slices import plain_slices
from lakemark.storage import StorageLocation, open_storage
from tests.tables import Row, commit, make, writer

ROWS = pa.table({"id": ["a", "b"], "region": pa.nulls(2, pa.string())})


@pytest.mark.parametrize(
    ("path", "is_url_encoded", "value"),
    [
        ("region=n", False, "n"),
        ("n", False, "n"),
        ("region=a%20b", False, "a%20b"),
        ("region=a%20b", True, "a b"),
        ("region=__HIVE_DEFAULT_PARTITION__", True, None),
    ],
)
def test_column_has_the_value_of_its_folder(
    path: str, is_url_encoded: bool, value: str | None
) -> None:
    filled = PathColumns(("region",), is_url_encoded).set_columns(ROWS, path)
    assert filled.schema == ROWS.schema
    assert filled["region"].to_pylist() == [value, value]


def test_path_with_another_number_of_folders_is_refused() -> None:
    with pytest.raises(Unsupported, match="partition 'a/b' does not have one folder for each"):
        PathColumns(("region",)).set_columns(ROWS, "a/b")


@pytest.fixture
def dropped(tmp_path: Path) -> OpenTable:
    """A copy-on-write table whose files were rewritten without their partition column."""
    location = StorageLocation(str(tmp_path))
    storage = open_storage(location)
    make(storage, TableType.COPY_ON_WRITE)
    to = writer(storage)
    commit(to, [Row("a", 1, 1, "north"), Row("b", 1, 1, "south")])
    commit(to, [Row("a", 2, 2, "north"), Row("c", 2, 2, DEFAULT_PARTITION)])
    for path in tmp_path.glob("*/*.parquet"):
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["region"]), path)
    values = {**to.table.properties.values, keys.DROP_PARTITION_COLUMNS: "true"}
    storage.put(".hoodie/hoodie.properties", TableProperties(values).to_bytes())
    return open_table(location)


def test_dropped_column_is_read_after_all_others(dropped: OpenTable) -> None:
    rows = dropped.scan().to_reader().read_all()
    assert rows.column_names[-1] == "region"
    assert {row["id"]: row["region"] for row in rows.to_pylist()} == {
        "a": "north",
        "b": "south",
        "c": None,
    }
    assert dropped.scan(columns=["region"]).to_reader().read_all().num_rows == 3


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("region = 'north'", ["a"]),
        ("region = 'north' and ts = 1", []),
        ("region is null", ["c"]),
        ("region is not null and ts = 1", ["b"]),
    ],
)
def test_condition_applies_to_the_value_of_the_path(
    dropped: OpenTable, condition: str, found: list[str]
) -> None:
    assert (
        dropped.scan(columns=["id"], where=condition).to_reader().read_all()["id"].to_pylist()
        == found
    )


def test_earlier_and_changed_rows_have_their_dropped_column(dropped: OpenTable) -> None:
    first, last = (i.requested_at for i in dropped.timeline.completed(Action.COMMIT))
    past = dropped.scan(Snapshot(first), ["id", "region"]).to_table().to_pylist()
    assert sorted(past, key=str) == [
        {"id": "a", "region": "north"},
        {"id": "b", "region": "south"},
    ]
    newer = dropped.scan(Incremental(first), ["region", "_hoodie_commit_time"]).to_table()
    assert (last, "north") in zip(
        newer["_hoodie_commit_time"].to_pylist(), newer["region"].to_pylist(), strict=True
    )


def test_spark_reader_gets_no_file_of_dropped_columns(dropped: OpenTable) -> None:
    assert plain_slices(dropped, dropped.scan()) == []


def test_cdc_query_of_dropped_columns_is_refused(dropped: OpenTable) -> None:
    with pytest.raises(InvalidConfig, match=r"drop\.partition\.columns.*use an incremental"):
        dropped.changes()


def test_dropped_columns_are_not_written(dropped: OpenTable) -> None:
    with pytest.raises(Unsupported, match=r"drop\.partition\.columns is 'true', "):
        writer(dropped.storage).begin()
