"""hudi-rs reads the tables of each index that lakemark wrote, through the metadata table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakemark
from tests.interop import hudi_rs
from tests.interop.same_rows import assert_same_rows
from tests.unit.operations.tables import FAST

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("name", pa.string()), ("ts", pa.int64())]
)

Change = Callable[[lakemark.Table], object]


def _record_index(table: lakemark.Table) -> None:
    table.create_index("record_index")


def _secondary_index(table: lakemark.Table) -> None:
    table.create_index("record_index")
    table.create_index("by_name", column="name")


def _split(table: lakemark.Table) -> None:
    table.resize_buckets(split_above_bytes=1, merge_below_bytes=0)


#: The index of the table, and what adds an index of the metadata table.
CASES: Mapping[str, tuple[str, Change]] = {
    "bucket": ("bucket", lambda table: None),
    "consistent hashing": ("consistent_hashing", _split),
    "lookup": ("lookup", lambda table: None),
    "record index": ("lookup", _record_index),
    "partitioned record index": (
        "lookup",
        lambda table: table.create_index("record_index", partitioned=True),
    ),
    "secondary index": ("lookup", _secondary_index),
    "bloom filters": ("lookup", lambda table: table.create_index("bloom_filters")),
    "expression index": (
        "lookup",
        lambda table: table.create_index("lowered", expression="lower(name)"),
    ),
}


def _rows(numbers: range, ts: int) -> pa.Table:
    made = [
        {"id": f"k{n}", "region": f"r{n % 2}", "name": f"N{n % 3}{ts}", "ts": ts} for n in numbers
    ]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.mark.parametrize(
    ("case", "table_type"),
    [
        (case, table_type)
        for case in CASES
        for table_type in ("merge_on_read", "copy_on_write")
        if (case, table_type) != ("consistent hashing", "copy_on_write")  # there is none
    ],
)
def test_hudi_rs_reads_the_rows_of_a_table_with_each_index(
    case: str, table_type: str, tmp_path: Path
) -> None:
    index, change = CASES[case]
    sized: dict[str, Any] = {} if index == "lookup" else {"buckets": 2}
    table = lakemark.create(
        tmp_path / "t",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        index=index,
        multi_writer=FAST,
        **sized,
    )
    table.upsert(_rows(range(12), 1))
    table.upsert(_rows(range(3, 9), 2))
    change(table)
    assert_same_rows(table.snapshot().read_all(), hudi_rs.read_snapshot(tmp_path / "t"))
    table.upsert(_rows(range(6, 15), 3))
    table.delete(["k0", "k4", "k13"])
    found = hudi_rs.read_snapshot(tmp_path / "t")
    assert sorted(found["id"].to_pylist()) == sorted(
        {f"k{n}" for n in range(15)} - {"k0", "k4", "k13"}
    )
    assert_same_rows(table.snapshot().read_all(), found)
