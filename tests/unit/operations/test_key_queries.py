"""A query that demands record keys opens only the files that may contain them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark import Incremental, ReadOptimized, SkipReason, Snapshot
from lakemark.codec.bloom import TYPE_CODE
from lakemark.errors import Unsupported
from lakemark.index import key_filters
from lakemark.operations.open_table import OpenTable
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties
from tests.storages import CountingStorage

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
FILES = 6


def make(path: Path, **options: Any) -> lakemark.Table:
    """Create a table of files whose key ranges overlap: file n has the keys n, n + 6 and so on."""
    settings = {"index": "lookup", "record_key": "id", **options}
    table = lakemark.create(
        path, schema=SCHEMA, partition_by="day", ordering="v", only_writer=True, **settings
    )
    for number in range(FILES):
        table.bulk_insert(rows(range(number, 10 * FILES, FILES)))
    return table


def rows(numbers: Any, v: int = 1) -> pa.Table:
    listed = [{"id": f"{number:03d}", "day": "1", "v": v} for number in numbers]
    return pa.Table.from_pylist(listed, schema=SCHEMA)


def skipped(table: lakemark.Table, where: str, query: Any = Snapshot()) -> list[str]:  # noqa: B008
    """Return the reasons of a query, after a check of its rows; "" for a file that is read."""
    found = table.scan(query, ["id", "v"], where).to_table().to_pylist()
    schema = table.schema
    assert schema is not None
    condition = pc.field("id").isin(["007", "008", "700"]) & pc.field("v").is_valid()
    every = table.scan(query, ["id", "v"]).to_table().filter(condition).to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, every))
    explanation = table.explain(query, where)
    return sorted(["" for _ in explanation.read] + [str(one.reason) for one in explanation.skipped])


DEMANDING = "id in ('007', '008', '700')"


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize(
    ("metadata_table", "index"),
    [(False, None), (True, None), (True, "bloom_filters"), (True, "record_index")],
)
def test_only_files_with_the_keys_are_read(
    tmp_path: Path, table_type: str, metadata_table: bool, index: str | None
) -> None:
    table = make(tmp_path / "t", table_type=table_type, metadata_table=metadata_table)
    if index is not None:
        table.create_index(index)
    reason = "record_index" if index == "record_index" else "bloom_filter"
    table = lakemark.open(tmp_path / "t")
    assert skipped(table, DEMANDING) == ["", "", *[reason] * 4]
    assert skipped(table, f"{DEMANDING} and v >= 1") == ["", "", *[reason] * 4]
    assert skipped(table, f"v = 5 or {DEMANDING}") == [""] * FILES
    for past in (Snapshot(as_of=table.timeline.instants[-1].requested_at), ReadOptimized()):
        assert skipped(table, DEMANDING, past) == ["", "", *["bloom_filter"] * 4]
    assert skipped(table, DEMANDING, Incremental("earliest")) == ["", "", *["bloom_filter"] * 4]
    keys = table.explain(record_keys=["007"])
    assert {one.reason for one in keys.skipped} == {SkipReason(reason)}
    assert len(keys.read) == 1


def test_condition_on_the_record_key_itself_demands_it(tmp_path: Path) -> None:
    table = make(tmp_path / "t", record_key=["id", "day"])
    explanation = table.explain(where="_hoodie_record_key = 'id:007,day:1'")
    assert str(explanation) == "reads 1 of 6 file groups; skips 5 by bloom filter"
    assert str(table.explain(where="id = '007' and day = '1'")) == str(explanation)
    assert str(table.explain(where="id = '007'")) == "reads 6 of 6 file groups"


def test_slice_with_logs_is_read_even_if_its_base_file_lacks_the_key(tmp_path: Path) -> None:
    table = make(tmp_path / "t", table_type="merge_on_read")
    table.upsert(rows([9], v=2))
    logged = [one.group for one in table.scan().slices if one.logs]
    explanation = table.explain(where=DEMANDING)
    assert set(logged) < {one.group for one in explanation.read}
    assert len(explanation.read) == 3
    # A read-optimized query does not read the log.
    assert len(table.explain(ReadOptimized(), DEMANDING).read) == 2
    table.compact()
    assert len(lakemark.open(tmp_path / "t").explain(where=DEMANDING).read) == 2


def test_key_that_only_a_log_has_is_found(tmp_path: Path) -> None:
    table = lakemark.create(
        tmp_path / "t", schema=SCHEMA, record_key="id", buckets=1, only_writer=True
    )
    for number in range(3):
        table.upsert(rows([number]))
    assert table.scan(where="id = '002'").to_table().num_rows == 1
    assert table.scan(ReadOptimized(), where="id = '002'").to_table().num_rows == 0


def test_record_index_is_not_used_for_earlier_rows(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.create_index("record_index")
    before = table.timeline.completed()[-1].requested_at
    table.delete(["007"])
    table = lakemark.open(tmp_path / "t")
    assert table.scan(where="id = '007'").to_table().num_rows == 0
    assert str(table.explain(where="id = '007'")).endswith("skips 6 by record index")
    assert table.scan(Snapshot(as_of=before), where="id = '007'").to_table().num_rows == 1


def test_table_that_was_opened_before_a_row_moved_finds_it(tmp_path: Path) -> None:
    make(tmp_path / "t").create_index("record_index")
    old = lakemark.open(tmp_path / "t")
    assert old.scan().to_table().num_rows == 10 * FILES
    writer = lakemark.open(tmp_path / "t", partition_change="move", only_writer=True)
    moved = pa.Table.from_pylist([{"id": "007", "day": "2", "v": 2}], schema=SCHEMA)
    for _ in range(12):  # until the metadata table is compacted
        writer.upsert(moved)
    assert old.scan(where="id = '007'").to_table()["day"].to_pylist() == ["1"]
    assert old.scan(record_keys=["007"]).to_table()["day"].to_pylist() == ["1"]
    old.refresh()
    assert old.scan(where="id = '007'").to_table()["day"].to_pylist() == ["2"]


def test_footers_of_many_files_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t")
    monkeypatch.setattr(key_filters, "MAX_FOOTERS", FILES - 1)
    assert skipped(table, DEMANDING) == [""] * FILES
    table.create_index("bloom_filters")  # whose filters are in few files
    assert len(table.explain(where=DEMANDING).read) == 2
    monkeypatch.setattr(key_filters, "MAX_FILTERS", FILES - 1)
    assert skipped(lakemark.open(tmp_path / "t"), DEMANDING) == [""] * FILES


def test_file_whose_filter_has_an_unknown_type_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t")

    def refuse(text: str, type_code: str, path: str) -> None:
        message = f"{path}: bloom filter of type {type_code!r} ({TYPE_CODE})"
        raise Unsupported(message)

    monkeypatch.setattr("lakemark.index.key_search.BloomFilter.parse", refuse)
    assert skipped(table, DEMANDING) == [""] * FILES


def test_only_the_files_of_the_keys_are_opened(tmp_path: Path) -> None:
    make(tmp_path / "t").create_index("record_index")
    storage = CountingStorage(open_storage(StorageLocation(str(tmp_path / "t"))))
    table = OpenTable(storage, read_properties(storage))
    assert table.scan(where="id = '007'").to_table().num_rows == 1
    opened = {one.path for one in storage.requests if one.path.startswith("1/")}
    assert len(opened) == 1
    assert table.snapshot.loaded_view is None


@pytest.mark.parametrize("meta_columns", [True, False])
def test_table_without_meta_columns_skips_buckets_only(tmp_path: Path, meta_columns: bool) -> None:
    table = lakemark.create(
        tmp_path / "t",
        schema=SCHEMA,
        record_key=["id", "v"],
        buckets=8,
        meta_columns=meta_columns,
        only_writer=True,
    )
    table.bulk_insert(rows(range(60)))
    explanation = table.explain(where="id in ('007', '008') and v = 1")
    assert {one.reason for one in explanation.skipped} >= {SkipReason.BUCKET}
    assert 1 <= len(explanation.read) <= 2
    assert table.scan(where="id in ('007', '008') and v = 1").to_table().num_rows == 2
