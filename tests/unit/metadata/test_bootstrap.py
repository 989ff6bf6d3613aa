"""A metadata table that is built for an existing table, and the requests that it saves."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.operations.metadata_table import (
    drop_metadata_table,
    keep_metadata_table,
    metadata_differences,
)
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline import clock
from tests.storages import CountingStorage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, contents, make, writer


def requests_of_a_commit(partitions: int) -> Counter[str]:
    """Count the requests of a commit to one partition after the metadata table was built."""
    storage = CountingStorage(new_storage())
    make_plain(storage)
    commit(writer(storage), [Row(f"k{n}", 1, n, region=f"r{n}") for n in range(partitions)])
    assert keep_metadata_table(writer(storage).table) == "there is none"
    to = writer(storage)
    commit(to, [Row("k0", 2, 2, region="r0")])
    storage.forget()
    commit(to, [Row("k0", 3, 3, region="r0")])
    assert storage.count("list_folder", under="r") == storage.count("list_tree", under="r") == 0
    assert storage.count("list_tree") == storage.count("list_tree", under=".hoodie/")
    counted = Counter(request.method for request in storage.requests)
    assert metadata_differences(to.table) == []
    assert len(contents(storage)) == partitions
    return counted


def test_a_commit_costs_no_more_where_there_are_many_files() -> None:
    assert requests_of_a_commit(100) == requests_of_a_commit(3)


def test_a_dropped_metadata_table_leaves_no_folder_on_a_local_disk(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "table")))
    make(storage)
    commit(writer(storage), [Row("a", 1, 1)])
    assert (tmp_path / "table/.hoodie/metadata/.hoodie/.aux/prepared").is_dir()
    drop_metadata_table(writer(storage).table)
    assert not (tmp_path / "table/.hoodie/metadata").exists()


def test_times_beyond_the_year_9999_have_statistics(tmp_path: Path) -> None:
    """Python has no such times, but Spark and Postgres have."""
    rows = pa.table(
        {
            "id": ["a", "b"],
            "at": pa.array([1 << 62, 0]).cast(pa.timestamp("us", "UTC")),
            "day": pa.array([5_000_000, -5_000_000], pa.int32()).cast(pa.date32()),
        }
    )
    path = str(tmp_path / "table")
    table = lakemark.create(path, schema=rows.schema, record_key=["id"])
    table.upsert(rows)
    assert table.metadata_differences() == []
    table.rebuild_metadata_table()
    assert table.metadata_differences() == []


class _Behind(datetime):
    """The clock of a machine that is half a second slow."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) - timedelta(seconds=0.5)


def test_a_merged_file_is_newer_than_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = new_storage()
    make_plain(storage)
    commit(writer(storage), [Row("a", 1, 1)])
    monkeypatch.setattr(clock, "datetime", _Behind)
    to = writer(storage)
    assert keep_metadata_table(to.table) == "there is none"
    commit(to, [Row("a", 2, 2)])
    assert metadata_differences(to.table) == []
