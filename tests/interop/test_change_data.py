"""CDC queries of Apache Hudi and of lakemark agree on tables that both write."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.config.table_properties import LoggingMode
from lakemark.model.changes import ChangeKind
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.depth import SEED, sample
from tests.interop.change_rows import CDC, Change, list_changes
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])
TRIPS = ApacheTable(
    "trips",
    ["id"],
    ["region"],
    ["ts"],
    log_format="avro",
    extra={"hoodie.table.cdc.enabled": "true"},
)


def rows(*values: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in values], SCHEMA
    )


def test_apache_returns_each_change_that_lakemark_wrote(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "trips"
    oracle.write(path, rows(("a", "n", 1), ("b", "n", 1), ("c", "n", 1)), TRIPS)
    own = LakemarkWriter.open(path, TRIPS, SCHEMA)
    own.upsert(rows(("a", "n", 2), ("d", "n", 2)))
    own.delete(rows(("b", "n", 3)))
    planned = own.plan_compaction()
    own.upsert(rows(("a", "n", 4), ("c", "n", 4)))
    own.delete(rows(("d", "n", 5)))
    assert own.compact()[0].requested_at == planned.requested_at
    absent = rows(*((f"z{number}", "s", 4) for number in range(8)))
    new = own.changes(rows(("x", "s", 4), ("y", "s", 4)), ChangeKind.UPSERT)
    gone = own.changes(absent, ChangeKind.DELETE)
    own.begin(pa.concat_tables([new, gone]))()
    own.upsert(rows(("a", "n", 6), ("b", "n", 6)))
    own.upsert(rows(("a", "n", 5)))
    oracle.write(path, rows(("a", "n", 7), ("q", "n", 7)), TRIPS)
    LakemarkWriter.open(path, TRIPS, SCHEMA).upsert(rows(("a", "n", 8), ("q", "n", 8)))

    expected: list[Change] = [
        *(("i", key, None, 1) for key in "abc"),
        ("u", "a", 1, 2),
        ("i", "d", None, 2),
        ("d", "b", 1, None),
        ("u", "a", 2, 4),
        ("u", "c", 1, 4),
        ("d", "d", 2, None),
        *(("i", key, None, 4) for key in "xy"),
        ("u", "a", 4, 6),
        ("i", "b", None, 6),
        ("u", "a", 6, 7),
        ("i", "q", None, 7),
        ("u", "a", 7, 8),
        ("u", "q", 7, 8),
    ]
    assert list_changes(oracle.read(path, "incremental", CDC), "ts") == sorted(expected, key=str)
    ours = open_table(StorageLocation(str(path))).changes("000").to_reader().read_all()
    assert list_changes(ours, "ts") == sorted(expected, key=str)


@pytest.mark.parametrize("mode", ["op_key_only", "data_before", "data_before_after"])
def test_apache_returns_the_changes_that_lakemark_logged(
    oracle: Oracle, tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "trips"
    table = lakemark.create(
        path,
        name="trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type="copy_on_write",
        buckets=1,
        cdc=mode,
    )
    table.upsert(rows(("a", "n", 1), ("b", "n", 1), ("c", "s", 1)))
    table.upsert(rows(("a", "n", 2), ("d", "n", 2), ("c", "s", 0)))
    table.delete(["b"])
    same = replace(TRIPS, table_type="COPY_ON_WRITE", bucket_count=1, has_metadata=True)
    oracle.write(path, rows(("a", "n", 3), ("e", "n", 3)), same)
    lakemark.open(path).upsert(rows(("a", "n", 4)))
    expected: list[Change] = [
        *(("i", key, None, 1) for key in "abc"),
        ("u", "a", 1, 2),
        ("i", "d", None, 2),
        ("d", "b", 1, None),
        ("u", "a", 2, 3),
        ("i", "e", None, 3),
        ("u", "a", 3, 4),
    ]
    assert list_changes(oracle.read(path, "incremental", CDC), "ts") == sorted(expected, key=str)
    ours = open_table(StorageLocation(str(path))).changes("000").to_reader().read_all()
    assert list_changes(ours, "ts") == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("table_type", "mode"),
    sample(product(("copy_on_write", "merge_on_read"), LoggingMode), one_in=2, name="change data"),
)
def test_random_history_has_the_changes_that_apache_returns(
    oracle: Oracle, tmp_path: Path, table_type: str, mode: LoggingMode
) -> None:
    path, drawn = tmp_path / "trips", random.Random(f"{SEED} {table_type} {mode}")
    table = lakemark.create(
        path,
        name="trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        buckets=1,
        cdc=mode,
    )
    twin = replace(TRIPS, bucket_count=1, has_metadata=True)
    if table_type == "copy_on_write":
        twin = replace(twin, table_type="COPY_ON_WRITE")

    def drawn_rows() -> pa.Table:
        keys = drawn.sample("abcdef", drawn.randint(1, 4))
        return rows(*((key, "n" if key < "d" else "s", drawn.randint(1, 9)) for key in keys))

    table.upsert(drawn_rows())
    steps = ["upsert", "delete", "upsert", "apache", "upsert", "delete", "service"]
    drawn.shuffle(steps)
    for step in [*steps, "upsert"]:
        if step == "apache":
            oracle.write(path, drawn_rows(), twin)
            table = lakemark.open(path)
        elif step == "delete":
            table.delete(drawn.sample("abcdef", 2))
        elif step == "service":
            if table_type == "merge_on_read":
                table.compact()
        else:
            table.upsert(drawn_rows())
    ours = open_table(StorageLocation(str(path))).changes("000").to_table()
    assert list_changes(ours, "ts") == list_changes(oracle.read(path, "incremental", CDC), "ts"), (
        steps
    )


def test_late_changes_in_logs_are_changes_for_both_even_if_they_have_no_effect(
    oracle: Oracle, tmp_path: Path
) -> None:
    path = tmp_path / "trips"
    oracle.write(path, rows(("a", "n", 1), ("b", "n", 4)), TRIPS)
    own = LakemarkWriter.open(path, TRIPS, SCHEMA)
    own.delete(rows(("a", "n", 5)))
    own.upsert(rows(("a", "n", 3)))
    own.delete(rows(("b", "n", 2)))
    expected: list[Change] = [
        ("i", "a", None, 1),
        ("i", "b", None, 4),
        ("d", "a", 1, None),
        ("i", "a", None, 3),
        ("d", "b", 4, None),
    ]
    assert list_changes(oracle.read(path, "incremental", CDC), "ts") == sorted(expected, key=str)
    table = open_table(StorageLocation(str(path)))
    ours = table.changes("000").to_reader().read_all()
    assert list_changes(ours, "ts") == sorted(expected, key=str)
    assert table.scan(columns=["id"]).to_table()["id"].to_pylist() == ["b"]
