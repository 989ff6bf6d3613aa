"""Tables without meta columns (``hoodie.populate.meta.fields=false``) are created and continued."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.model.meta_columns import META_COLUMNS
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.depth import examples
from tests.golden.golden_table import unpack
from tests.unit.operations.tables import FAST, KINDS, SCHEMA, Kind, contents, location, rows

#: The settings of a table whose keys are looked up in the files.
LOOKUP = {"index": "lookup", "buckets": 4}

each_type = pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])


def create(path: str | Path, **given: Any) -> lakemark.Table:
    wanted = {
        "schema": SCHEMA,
        "record_key": "id",
        "partition_by": "region",
        "ordering": "ts",
        "buckets": 2,
        "multi_writer": FAST,
        "meta_columns": False,
    }
    return lakemark.create(path, **(wanted | given))


CHANGES = st.tuples(st.sampled_from([f"k{n}" for n in range(6)]), st.integers(0, 9), st.booleans())


@pytest.mark.parametrize("index", [{}, LOOKUP], ids=["bucket", "lookup"])
@pytest.mark.parametrize("kind", [k for k in KINDS if k.store == "memory"], ids=str)
@settings(deadline=None, max_examples=examples(4))
@given(steps=st.lists(st.none() | st.lists(CHANGES, min_size=1, max_size=6), max_size=6))
def test_rows_are_those_of_a_dictionary(
    kind: Kind,
    index: dict[str, Any],
    steps: list[list[tuple[str, int, bool]] | None],
    tmp_path_factory: Any,
) -> None:
    path = location("memory", tmp_path_factory.getbasetemp())
    table = create(path, table_type=kind.table_type, version=kind.version, **index)
    is_merge_on_read, now = kind.table_type == "MERGE_ON_READ", 0
    model: dict[str, tuple[str, int, int]] = {}
    for step in steps:
        now += 10
        if step is None:
            if is_merge_on_read:
                table.compact()
            continue
        deleted = [key for key, _, is_delete in step if is_delete]
        upserted = {key: now + ts for key, ts, is_delete in step if not is_delete}
        if upserted:
            table.upsert(rows(*((key, f"r{key}", ts, ts) for key, ts in upserted.items())))
            model |= {key: (f"r{key}", ts, ts) for key, ts in upserted.items()}
        if deleted:
            result = table.delete(deleted)
            assert result.deletes == len(model.keys() & set(deleted))
            model = {key: row for key, row in model.items() if key not in deleted}
        assert contents(table) == model


@each_type
def test_files_have_null_meta_columns_and_no_bloom_filter(tmp_path: Path, table_type: str) -> None:
    table = create(tmp_path / "t", table_type=table_type)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    table.upsert(rows(("a", "north", 2, 2)))
    table.delete(where="id = 'b'")
    if table_type == "MERGE_ON_READ":
        assert table.compact().files
    files = list((tmp_path / "t").glob("*/*.parquet"))
    assert len(files) >= 3
    for file in files:
        stored = pq.read_table(file, partitioning=None)
        assert all(stored.column(name).null_count == stored.num_rows for name in META_COLUMNS)
        footer = pq.read_metadata(file).metadata
        assert not [key for key in footer if key.startswith((b"hoodie_", b"org.apache.hudi"))]
    assert contents(table) == {"a": ("north", 2, 2)}
    assert table.snapshot().read_all().column_names == SCHEMA.names


@each_type
def test_late_event_does_not_overwrite_a_newer_row(tmp_path: Path, table_type: str) -> None:
    table = create(tmp_path / "t", table_type=table_type)
    table.upsert(rows(("a", "north", 5, 1)))
    table.upsert(rows(("a", "north", 4, 2), ("b", "north", 1, 1)))
    table.delete(["b"])
    assert contents(table) == {"a": ("north", 5, 1)}
    if table_type == "MERGE_ON_READ":
        table.upsert(rows(("b", "north", 0, 7)))
        assert "b" not in contents(table), "the delete has the ordering value of its row"
        table.compact()
    assert contents(table) == {"a": ("north", 5, 1)}


@pytest.mark.parametrize(
    "given",
    [
        {"record_key": ["id"], "partition_by": []},
        {"record_key": ["id", "ts"], "partition_by": []},
        {"partition_by": ["truncate(id, 1)"]},
        {"merge_mode": "commit_time", "ordering": []},
        {"partial_update": "ignore_defaults"},
        {"hive_style": True},
        {"record_key": ["id", "ts"], "partition_by": [], **LOOKUP},
        {"partition_by": ["truncate(id, 1)"], **LOOKUP},
        {"merge_mode": "commit_time", "ordering": [], **LOOKUP},
        {"partial_update": "ignore_defaults", **LOOKUP},
    ],
)
@each_type
def test_keys_of_several_fields_and_other_folders(
    tmp_path: Path, given: dict[str, Any], table_type: str
) -> None:
    table = create(tmp_path / "t", table_type=table_type, **given)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1), ("c", "south", 1, 1)))
    table.upsert(rows(("a", "north", 1, 1), ("c", "south", 1, 1)))
    assert table.delete(where="id = 'b'").deletes == 1
    if table_type == "MERGE_ON_READ":
        assert table.compact().files
    again = lakemark.open(tmp_path / "t", multi_writer=FAST)
    again.upsert(rows(("a", "north", 1, 1)))
    expected = {"a": ("north", 1, 1), "c": ("south", 1, 1)}
    assert contents(table) == expected


@each_type
def test_metadata_table_describes_the_files(tmp_path: Path, table_type: str) -> None:
    table = create(tmp_path / "t", table_type=table_type)
    for ts in range(3):
        table.upsert(rows(("a", "north", ts, ts), ("b", "south", ts, ts)))
    if table_type == "MERGE_ON_READ":
        table.compact()
        table.upsert(rows(("a", "north", 9, 9)))
    opened = open_table(StorageLocation(str(tmp_path / "t")))
    assert not metadata_differences(opened)
    found = table.scan(columns=["id"], where=pc.field("v") == 2).to_table()
    assert "b" in found["id"].to_pylist()


@pytest.mark.parametrize("name", ["v6_mor_virtual_keys", "v9_mor_virtual_keys"])
def test_tables_of_apache_hudi_are_continued(tmp_path: Path, name: str) -> None:
    golden = unpack(name, tmp_path)
    before = {row["id"]: row for row in _rows(golden.root)}
    table = lakemark.open(golden.root, buckets=2, timezone="UTC", multi_writer=FAST)
    changed, deleted, *kept = sorted(before)
    row = before[changed] | {"ts": 10**9, "qty": 4711}
    table.upsert(pa.Table.from_pylist([row], schema=table.schema))
    assert table.delete([deleted]).deletes == 1
    expected = {changed: row} | {key: before[key] for key in kept}
    assert {row["id"]: row for row in _rows(golden.root)} == expected
    assert table.compact().files
    assert {row["id"]: row for row in _rows(golden.root)} == expected


def _rows(root: Path) -> Iterator[dict[str, Any]]:
    yield from lakemark.open(root).snapshot().read_all().to_pylist()


MOVES = st.tuples(st.sampled_from("abcdef"), st.sampled_from(["n", "s", "w"]), st.integers(0, 9))


@pytest.mark.parametrize("kind", [k for k in KINDS if k.store == "memory"], ids=str)
@settings(deadline=None, max_examples=examples(4))
@given(steps=st.lists(st.lists(MOVES, min_size=1, max_size=6) | st.sampled_from("abc"), max_size=6))
def test_rows_move_to_their_partitions_without_meta_columns(
    kind: Kind, steps: list[list[tuple[str, str, int]] | str], tmp_path_factory: Any
) -> None:
    path = location("memory", tmp_path_factory.getbasetemp())
    create(path, table_type=kind.table_type, version=kind.version, **LOOKUP)
    table = lakemark.open(path, partition_change="move", multi_writer=FAST)
    model: dict[str, tuple[str, int, int]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, str):
            table.delete([step])
            model.pop(step, None)
            continue
        table.upsert(rows(*((key, region, ts, number) for key, region, ts in step)))
        for key, region, ts in step:
            if key not in model or ts >= model[key][1]:
                model[key] = (region, ts, number)
        assert contents(table) == model
    if kind.table_type == "MERGE_ON_READ":
        table.compact()
    assert contents(table) == model


@each_type
def test_inserts_find_stored_keys_and_bulk_inserts_do_not(tmp_path: Path, table_type: str) -> None:
    table = create(tmp_path / "t", table_type=table_type, **LOOKUP)
    first = rows(*((f"k{n}", "north", n, n) for n in range(8)))
    assert table.bulk_insert(first.to_batches(max_chunksize=3), sort="global").inserts == 8
    again = rows(("k1", "north", 9, 9), ("k9", "north", 9, 9), ("k1", "south", 9, 9))
    with pytest.raises(lakemark.InvalidRecords, match="1 of 3 rows have record keys that"):
        table.insert(again, duplicates="fail")
    assert table.insert(again.slice(0, 2), duplicates="drop").skipped == 1
    assert contents(table)["k1"] == ("north", 1, 1)
    table.insert(again.slice(0, 1))
    found = table.snapshot(["id", "v"]).read_all().to_pylist()
    assert sorted(row["v"] for row in found if row["id"] == "k1") == [1, 9]


def test_copy_on_write_table_of_apache_hudi_is_continued(tmp_path: Path) -> None:
    golden = unpack("v9_cow_virtual_keys", tmp_path)
    before = {row["id"]: row for row in _rows(golden.root)}
    table = lakemark.open(golden.root, timezone="UTC", multi_writer=FAST)
    changed, deleted, *kept = sorted(before)
    row = before[changed] | {"ts": 10**9, "qty": 4711}
    table.upsert(pa.Table.from_pylist([row], schema=table.schema))
    assert table.delete([deleted]).deletes == 1
    expected = {changed: row} | {key: before[key] for key in kept}
    assert {row["id"]: row for row in _rows(golden.root)} == expected


def test_consistent_hashing_without_meta_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lakemark.Unsupported, match="but no meta columns, which lakemark does not"):
        create(tmp_path / "t", index="consistent_hashing")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"record_key": "id", "partition_by": ["region", "v"]},
        {"record_key": "id", "partition_by": ["region", "v"], "table_type": "copy_on_write"},
        {"record_key": ["id", "region"]},
        {"record_key": "region"},
    ],
)
def test_keys_that_apache_hudi_reads_wrongly_are_refused(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    with pytest.raises(lakemark.Unsupported, match="Apache Hudi reads only keys of the key gen"):
        create(tmp_path / "t", **given)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("index", [{}, LOOKUP], ids=["bucket", "lookup"])
@pytest.mark.parametrize(
    ("table_type", "record_key"),
    [
        ("copy_on_write", ["id", "region"]),
        ("copy_on_write", ["id", "v"]),
        ("merge_on_read", ["id", "v"]),
    ],
)
def test_complex_keys_of_several_columns(
    tmp_path: Path, table_type: str, record_key: list[str], index: dict[str, Any]
) -> None:
    table = create(tmp_path / "t", table_type=table_type, record_key=record_key, **index)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1), ("c", "south", 1, 1)))
    table.upsert(rows(("a", "north", 2, 1), ("c", "south", 2, 1)))
    assert table.delete(where="id = 'b'").deletes == 1
    assert table.delete([f"id:c,{record_key[1]}:{'south' if 'region' in record_key else 1}"])
    assert contents(table) == {"a": ("north", 2, 1)}


def test_version_of_the_table_is_not_changed(tmp_path: Path) -> None:
    table = create(tmp_path / "t", version=8)
    table.upsert(rows(("a", "north", 1, 1)))
    with pytest.raises(lakemark.Unsupported, match="does not change the version of such a table"):
        table.upgrade()


def test_incremental_queries_are_refused(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(rows(("a", "north", 1, 1)))
    with pytest.raises(lakemark.InvalidConfig, match="do not contain their commit"):
        table.scan(lakemark.Incremental("earliest")).to_table()


@pytest.mark.parametrize("index", [{}, LOOKUP], ids=["bucket", "lookup"])
def test_rows_in_the_partitions_of_an_expression_are_deleted(index: dict[str, Any]) -> None:
    table = create(
        f"memory://expressions-{len(index)}/t", partition_by="truncate(region, 1)", **index
    )
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1), ("c", "south", 1, 1)))
    assert table.delete(["a", "c"]).deletes == 2
    assert table.snapshot(["id"]).read_all()["id"].to_pylist() == ["b"]
    assert table.delete(where="region = 'south'").deletes == 1
    assert not table.snapshot(["id"]).read_all().num_rows
