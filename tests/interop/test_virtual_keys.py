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
