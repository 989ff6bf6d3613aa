"""lakemark and Apache Hudi continue each other's tables without meta columns."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from tests.interop.lakemark import LakemarkWriter, read_snapshot
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows
from tests.interop.test_conversation import SCHEMA, Stream
from tests.interop.test_lookup_index import SEVERAL_GROUPS, Model, check
from tests.unit.operations.tables import FAST

pytestmark = pytest.mark.oracle

NO_META_COLUMNS = {"hoodie.populate.meta.fields": "false"}


def _agree(oracle: Oracle, path: Path) -> None:
    ours, theirs = read_snapshot(path), oracle.read(path)
    assert ours.column_names == SCHEMA.names
    meta = [name for name in theirs.column_names if name.startswith("_hoodie_")]
    assert all(theirs.column(name).null_count == theirs.num_rows for name in meta)
    assert_same_rows(ours, theirs.drop_columns(meta))


@pytest.mark.parametrize(
    ("version", "table_type", "keys", "has_metadata"),
    [
        (9, "MERGE_ON_READ", ["id"], False),
        (9, "MERGE_ON_READ", ["id"], True),
        (8, "MERGE_ON_READ", ["id"], True),
        (6, "MERGE_ON_READ", ["id"], False),
        (9, "COPY_ON_WRITE", ["id"], True),
        (6, "COPY_ON_WRITE", ["id"], False),
    ],
)
@pytest.mark.parametrize("creator", ["apache", "lakemark"])
def test_both_continue_the_table_for_three_rounds(
    oracle: Oracle,
    tmp_path: Path,
    creator: str,
    version: int,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    keys: list[str],
    has_metadata: bool,
) -> None:
    path, stream = tmp_path / "t", Stream(seed=version)
    twin = ApacheTable(
        "t",
        keys,
        ["region"],
        ["ts"],
        table_type=table_type,
        version=version,
        has_metadata=has_metadata,
        extra=NO_META_COLUMNS,
    )
    if creator == "lakemark":
        LakemarkWriter.open(path, twin, SCHEMA).upsert(stream.rows())
        _agree(oracle, path)
    for number in range(3):
        oracle.write(path, stream.rows(), twin)
        oracle.write(path, stream.rows(5), twin, "delete")
        _agree(oracle, path)
        ours = LakemarkWriter.open(path, twin, SCHEMA)
        ours.writer.recover()
        ours.upsert(stream.rows())
        ours.delete(stream.rows(8))
        _agree(oracle, path)
        if table_type == "MERGE_ON_READ":
            compacts = ours.compact if number % 2 else lambda: oracle.compact(path)
            assert compacts()
            _agree(oracle, path)


LOOKUP_KINDS: list[tuple[int, Literal["MERGE_ON_READ", "COPY_ON_WRITE"], bool]] = [
    (9, "MERGE_ON_READ", True),
    (8, "MERGE_ON_READ", False),
    (6, "MERGE_ON_READ", False),
    (9, "COPY_ON_WRITE", True),
    (8, "COPY_ON_WRITE", False),
    (6, "COPY_ON_WRITE", False),
]


@pytest.mark.parametrize(("version", "table_type", "has_metadata"), LOOKUP_KINDS)
def test_both_look_up_the_keys_of_the_other(
    oracle: Oracle,
    tmp_path: Path,
    version: int,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    has_metadata: bool,
) -> None:
    path, model = tmp_path / "orders", Model()
    twin = ApacheTable(
        "orders",
        ["id"],
        ["region"],
        ["ts"],
        table_type=table_type,
        version=version,
        has_metadata=has_metadata,
        extra={**NO_META_COLUMNS, "hoodie.index.type": "SIMPLE"},
    )
    oracle.write(path, model.upserts(range(60), 10), twin, options=SEVERAL_GROUPS)
    oracle.write(path, model.upserts(range(5, 25), 20), twin)
    table = lakemark.open(path, multi_writer=FAST)
    table.upsert(model.upserts([*range(15, 35), *range(60, 70)], 30))
    table.upsert(model.upserts([*range(20), *range(70, 72)], 15))  # some of them are late
    table.delete(model.deletes([1, 2, 61, 62]))
    check(oracle, path, model)
    oracle.write(path, model.upserts([0, 1, 61, *range(63, 80)], 40), twin)
    check(oracle, path, model)
    table.refresh()
    table.bulk_insert(model.upserts(range(100, 130), 50).to_batches(max_chunksize=7))
    assert table.insert(model.upserts([*range(130, 140)], 50), duplicates="fail").inserts == 10
    if table_type == "MERGE_ON_READ":
        table.compact()
        check(oracle, path, model)
    oracle.write(path, model.upserts(range(90, 140, 3), 60), twin)
    check(oracle, path, model)
    lakemark.open(path, multi_writer=FAST).upsert(model.upserts(range(0, 140, 5), 70))
    check(oracle, path, model)


@pytest.mark.parametrize("index", ["SIMPLE", "BUCKET"])
@pytest.mark.parametrize(
    ("table_type", "keys"),
    [
        ("MERGE_ON_READ", ["id", "n"]),
        ("COPY_ON_WRITE", ["id", "n"]),
        ("COPY_ON_WRITE", ["id", "region"]),
    ],
)
def test_both_continue_a_table_with_complex_keys(
    oracle: Oracle,
    tmp_path: Path,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    keys: list[str],
    index: str,
) -> None:
    path, model = tmp_path / "orders", Model()
    extra = {**NO_META_COLUMNS, "hoodie.index.type": index}
    twin = ApacheTable("orders", keys, ["region"], ["ts"], table_type=table_type, extra=extra)
    oracle.write(path, _numbered(model.upserts(range(40), 10)), twin)
    buckets = 2 if index == "BUCKET" else None
    for ts in (20, 40):
        table = lakemark.open(path, buckets=buckets, multi_writer=FAST)
        table.upsert(_numbered(model.upserts(range(ts - 10, ts + 20, 2), ts)))
        model.deletes([ts])
        assert table.delete(where=f"id = 'k{ts:03d}'").deletes == 1
        check(oracle, path, model)
        oracle.write(path, _numbered(model.upserts(range(0, ts + 30, 3), ts + 10)), twin)
        gone = _numbered(model.upserts([ts - 10], ts + 10))
        model.deletes([ts - 10])
        oracle.write(path, gone, twin, "delete")
        check(oracle, path, model)
    if table_type == "MERGE_ON_READ":
        lakemark.open(path, buckets=buckets, multi_writer=FAST).compact()
        check(oracle, path, model)


def _numbered(rows: pa.Table) -> pa.Table:
    numbers = [int(key[1:]) for key in rows["id"].to_pylist()]
    return rows.append_column("n", pa.array(numbers, pa.int64()))


def test_python_api_deletes_by_condition_from_a_table_of_apache_hudi(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, stream = tmp_path / "t", Stream(seed=3)
    twin = ApacheTable("t", ["id"], ["region"], ["ts"], extra=NO_META_COLUMNS)
    oracle.write(path, stream.rows(), twin)
    table = lakemark.open(path, buckets=2, multi_writer=FAST)
    keys = table.snapshot(["id"]).read_all()["id"].to_pylist()
    assert table.delete(keys[:3]).deletes == 3
    assert table.delete(where=f"id = '{keys[3]}'").deletes == 1
    _agree(oracle, path)
    table.compact()
    _agree(oracle, path)
    found: pa.Table = read_snapshot(path)
    assert sorted(found["id"].to_pylist()) == sorted(keys[4:])
