"""A pipeline copies a table that Apache Hudi writes, and Apache Hudi reads the copy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from streamer import pipeline
from streamer.config.load import validated
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
    listed = [dict(zip(SCHEMA.names, row, strict=True)) for row in values]
    return pa.Table.from_pylist(listed, SCHEMA)


def copy(source: Path, target: Path, query: str) -> None:
    """Read what is unread, in small batches."""
    tree = {
        "source": {
            "kind": "table",
            "path": str(source),
            "query": query,
            "max_commits_per_batch": 1,
        },
        "table": {
            "path": str(target),
            "record_key": "id",
            "partition_by": "region",
            "buckets": 1,
        },
        "run": {"mode": "once"},
    }
    with pipeline.build(validated(tree), lambda _: None) as built:
        built.loop.run()


def read(oracle: Oracle, path: Path) -> list[dict[str, object]]:
    found = oracle.read(path, "snapshot").select(SCHEMA.names).to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_copy_of_a_table_of_apache_hudi_has_its_rows(
    oracle: Oracle, tmp_path: Path, table_type: Literal["COPY_ON_WRITE", "MERGE_ON_READ"]
) -> None:
    source, target = tmp_path / "trips", tmp_path / "copy"
    table = replace(TRIPS, table_type=table_type)
    oracle.write(source, rows(("a", "n", 1), ("b", "n", 1), ("c", "s", 1)), table)
    oracle.write(source, rows(("a", "n", 2)), table)
    copy(source, target, "cdc")
    assert read(oracle, target) == read(oracle, source)
    oracle.delete_where(source, "id = 'b'", table)
    oracle.write(source, rows(("d", "s", 3), ("c", "s", 3)), table)
    oracle.write(source, rows(("b", "n", 4)), table)
    copy(source, target, "cdc")
    assert read(oracle, target) == read(oracle, source)
    assert [row["id"] for row in read(oracle, target)] == ["a", "b", "c", "d"]
    incremental = tmp_path / "incremental"
    copy(source, incremental, "incremental")
    oracle.write(source, rows(("a", "n", 5)), table)
    copy(source, incremental, "incremental")
    assert read(oracle, incremental) == read(oracle, source)
