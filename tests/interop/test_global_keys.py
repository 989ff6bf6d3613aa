"""lakemark and Apache Hudi continue each other's tables with global indexes, and move rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from lakemark.config.table_properties import TableType
from lakemark.storage import StorageLocation
from sinks.hudi.partition_rule import PartitionChange
from tests.depth import sample
from tests.interop.oracle import ApacheTable, Oracle
from tests.json_stream import JsonStream, Tombstone

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)
REGIONS = ("north", "south", "west")

KINDS: list[tuple[str, Literal["MERGE_ON_READ", "COPY_ON_WRITE"], int]] = [
    ("GLOBAL_SIMPLE", "MERGE_ON_READ", 9),
    ("GLOBAL_BLOOM", "COPY_ON_WRITE", 9),
    ("GLOBAL_BLOOM", "MERGE_ON_READ", 6),
    ("GLOBAL_SIMPLE", "COPY_ON_WRITE", 8),
]


@dataclass
class Model:
    """Region, ordering value and payload of each key, of which the largest ordering value wins."""

    rows: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    def upserts(self, numbers: range, ts: int, shift: int) -> pa.Table:
        """Make rows whose region is that of their number, shifted, and apply them."""
        made = []
        for number in numbers:
            key, region = f"k{number:03d}", REGIONS[(number + shift) % len(REGIONS)]
            made.append((key, region, ts, ts + number))
            if key not in self.rows or self.rows[key][1] <= ts:
                self.rows[key] = region, ts, ts + number
        return pa.table([*map(list, zip(*made, strict=True))], schema=SCHEMA)

    def check(self, oracle: Oracle, path: Path) -> None:
        """Check that both read these rows, and no key twice."""
        for rows in (lakemark.open(path).snapshot(SCHEMA.names).read_all(), oracle.read(path)):
            found = rows.select(SCHEMA.names).to_pylist()
            assert len({row["id"] for row in found}) == len(found), "a key is stored twice"
            assert {r["id"]: (r["region"], r["ts"], r["v"]) for r in found} == self.rows


@pytest.mark.parametrize(("index", "table_type", "version"), sample(KINDS, one_in=2))
def test_both_move_rows(
    oracle: Oracle,
    tmp_path: Path,
    index: str,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    version: int,
) -> None:
    path, model = tmp_path / "orders", Model()
    extra = {"hoodie.index.type": index}
    apache = ApacheTable(
        "orders", ["id"], ["region"], ["ts"], table_type=table_type, version=version, extra=extra
    )
    oracle.write(path, model.upserts(range(30), 10, 0), apache)
    for turn in range(1, 4):
        ts = turn * 100
        table = lakemark.open(path, partition_change="move")
        table.upsert(model.upserts(range(5, 15 + turn), ts, turn))
        table.upsert(model.upserts(range(8, 20), ts - 150, turn + 1))  # many of them are late
        deleted = [f"k{turn:03d}", f"k{turn + 8:03d}"]
        table.delete(deleted)
        for key in deleted:
            model.rows.pop(key, None)
        model.check(oracle, path)
        oracle.write(path, model.upserts(range(10, 34 + turn), ts + 20, turn + 1), apache)
        model.check(oracle, path)
        if turn == 2 and table_type == "MERGE_ON_READ":
            lakemark.open(path).compact()
            model.check(oracle, path)
    assert lakemark.open(path).metadata_differences() == []


#: The indexes with which Apache Hudi continues a table, and the options that they need.
OF_PIPELINES: dict[str, dict[str, str]] = {
    "GLOBAL_SIMPLE": {},
    "GLOBAL_RECORD_LEVEL_INDEX": {
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.record.index.update.partition.path": "true",
    },
}


@pytest.mark.parametrize("index", sample(OF_PIPELINES, one_in=2))
def test_pipeline_and_apache_hudi_move_rows(oracle: Oracle, tmp_path: Path, index: str) -> None:
    path, model = tmp_path / "orders", Model()
    has_index = bool(OF_PIPELINES[index])
    table_type = sample(TableType, one_in=2, name=index)[0]
    apache = ApacheTable(
        "orders",
        ["id"],
        ["region"],
        ["ts"],
        table_type=table_type.value,
        has_metadata=has_index,
        extra={"hoodie.index.type": index, **OF_PIPELINES[index]},
    )
    oracle.write(path, model.upserts(range(30), 10, 0), apache)
    for turn in (1, 2):
        stream = JsonStream(
            StorageLocation(str(path)),
            columns={"id": "string", "region": "string", "ts": "bigint", "v": "int"},
            table_type=table_type,
            partition_by=("region",),
            partition_change=PartitionChange.MOVE,
            index=None,
            metadata_table=has_index,
        )
        ts, deleted = turn * 100, [f"k{turn:03d}", f"k{turn + 8:03d}"]
        rows = model.upserts(range(5, 15 + turn), ts, turn).to_pylist()
        late = model.upserts(range(8, 20), ts - 150, turn + 1).to_pylist()
        result = stream.write([*rows, *late, *(Tombstone(key.encode()) for key in deleted)])
        assert result.moved > 0
        for key in deleted:
            model.rows.pop(key, None)
        model.check(oracle, path)
        oracle.write(path, model.upserts(range(10, 34 + turn), ts + 20, turn + 1), apache)
        model.check(oracle, path)
    assert lakemark.open(path).metadata_differences() == []


def test_bounds_of_a_partition_that_apache_hudi_left_without_rows_are_no_difference(
    oracle: Oracle, tmp_path: Path
) -> None:
    """Its compaction keeps the statistics of a partition of which all rows have moved."""
    path, model = tmp_path / "orders", Model()
    extra = {"hoodie.index.type": "GLOBAL_SIMPLE"}
    apache = ApacheTable("orders", ["id"], ["region"], ["ts"], has_metadata=True, extra=extra)
    oracle.write(path, model.upserts(range(6), 10, 0), apache)
    rows = model.upserts(range(6), 20, 0).to_pylist()
    moved = pa.Table.from_pylist([{**row, "region": REGIONS[0]} for row in rows], SCHEMA)
    model.rows = {row["id"]: (REGIONS[0], row["ts"], row["v"]) for row in moved.to_pylist()}
    lakemark.open(path, partition_change="move").upsert(moved)
    oracle.compact(path, options={**apache.write_options(), "hoodie.metadata.enable": "true"})
    model.check(oracle, path)
    assert lakemark.open(path).metadata_differences() == []
