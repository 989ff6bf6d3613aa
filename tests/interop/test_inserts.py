"""Apache Hudi and lakemark continue each other's tables after inserts and bulk inserts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from lakemark.keygen.automatic_keys import PATTERN
from lakemark.model.meta_columns import RECORD_KEY
from tests.depth import sample
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_lookup_index import SCHEMA, Kind, Model, check, view_of

pytestmark = pytest.mark.oracle

KINDS = [
    Kind("BLOOM", "MERGE_ON_READ", 9, has_metadata=True),
    Kind("SIMPLE", "COPY_ON_WRITE", 9, has_metadata=True),
    Kind("BLOOM", "COPY_ON_WRITE", 6),
    Kind("SIMPLE", "MERGE_ON_READ", 8),
    Kind("BLOOM", "COPY_ON_WRITE", 8, has_metadata=True),
    Kind("SIMPLE", "MERGE_ON_READ", 6),
]
BUCKETS = ApacheTable("orders", ["id"], ["region"], ["ts"])


@pytest.mark.parametrize("kind", sample(KINDS, one_in=2), ids=str)
def test_apache_hudi_continues_a_table_that_was_bulk_inserted(
    oracle: Oracle, tmp_path: Path, kind: Kind
) -> None:
    path, model = tmp_path / "orders", Model()
    table = lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=kind.table_type,
        version=kind.version,
        metadata_table=kind.has_metadata,
        index="lookup",
    )
    sorts = ("global", "none", "partition")
    for number, sort in enumerate(sorts):
        first, ts = 100 * number, 10 * number + 1
        batches = model.upserts(range(first, first + 60), ts).to_batches(max_chunksize=7)
        table.bulk_insert(batches, sort=sort)
        check(oracle, path, model)
        # Apache Hudi finds the keys that were bulk inserted, and adds others.
        oracle.write(path, model.upserts(range(first + 30, first + 70), ts + 1), kind.table())
        check(oracle, path, model)
        table = lakemark.open(path)
        table.insert(model.upserts(range(first + 70, first + 80), ts + 2))
        skipped = table.insert(_rows_of(model, range(first, first + 5)), duplicates="drop")
        assert skipped.skipped == 5
        table.upsert(model.upserts(range(first + 55, first + 85, 3), ts + 3))
        table.delete(model.deletes([first, first + 79]))
        check(oracle, path, model)
        if kind.table_type == "MERGE_ON_READ":
            table.compact()
            check(oracle, path, model)
    assert table.metadata_differences() == []
    oracle.write(path, model.upserts(range(500, 540), 90), kind.table(), operation="bulk_insert")
    lakemark.open(path).upsert(model.upserts(range(530, 550), 91))
    check(oracle, path, model)


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_apache_hudi_continues_buckets_that_were_bulk_inserted(
    oracle: Oracle, tmp_path: Path, table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"]
) -> None:
    path, model = tmp_path / "orders", Model()
    table = lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        buckets=2,
    )
    table.bulk_insert(model.upserts(range(40), 1), sort="global")
    groups = len(view_of(path).file_groups())
    check(oracle, path, model)
    twin = replace(BUCKETS, table_type=table_type)
    oracle.write(path, model.upserts(range(20, 60), 2), twin)
    table.refresh()
    table.bulk_insert(model.upserts(range(50, 80), 3))
    table.insert(model.upserts(range(70, 90), 4))
    assert len(view_of(path).file_groups()) == groups
    check(oracle, path, model)


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_insert_of_a_stored_key_adds_a_row_in_both(
    oracle: Oracle, tmp_path: Path, table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"]
) -> None:
    """Without a bucket index, neither searches the key, and both fill the small file."""
    kind, found = Kind("SIMPLE", table_type, 9), []
    for writer in ("lakemark", "apache"):
        path = tmp_path / writer
        oracle.write(path, _row(1, 1), kind.table())
        if writer == "lakemark":
            lakemark.open(path).insert(_row(2, 2))
        else:
            oracle.write(path, _row(2, 2), kind.table(), operation="insert")
        ours = lakemark.open(path).snapshot(SCHEMA.names).read_all().sort_by("ts")
        theirs = oracle.read(path).select(SCHEMA.names).sort_by("ts")
        assert ours.to_pylist() == theirs.to_pylist()
        found.append((ours.to_pylist(), len(view_of(path).file_groups())))
    assert found[0] == found[1]
    assert [row["v"] for row in found[0][0]] == [1, 2]


@pytest.mark.parametrize(
    ("version", "table_type", "partition"),
    [
        (9, "MERGE_ON_READ", ["region"]),
        (9, "COPY_ON_WRITE", ["region", "id"]),
        (8, "MERGE_ON_READ", []),
        (6, "COPY_ON_WRITE", ["region"]),
        (6, "MERGE_ON_READ", ["region"]),
    ],
)
@pytest.mark.parametrize("creator", ["apache", "lakemark"])
def test_both_append_rows_with_automatic_keys(
    oracle: Oracle,
    tmp_path: Path,
    creator: str,
    version: int,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    partition: list[str],
) -> None:
    path, rows = tmp_path / "events", list[tuple[str, int]]()
    extra = {"hoodie.index.type": "SIMPLE"}
    twin = ApacheTable("events", [], partition, table_type=table_type, version=version, extra=extra)
    if creator == "lakemark":
        lakemark.create(
            path,
            schema=SCHEMA,
            record_key=[],
            partition_by=partition,
            table_type=table_type,
            version=version,
            index="lookup",
            metadata_table=False,
        ).insert(_events(rows, 3))
        _check_events(oracle, path, rows)
    for operation in ("insert", "bulk_insert"):
        oracle.write(path, _events(rows, 5), twin, operation)
        table = lakemark.open(path)
        table.insert(_events(rows, 4))
        _check_events(oracle, path, rows)
        table.bulk_insert(_events(rows, 6).to_batches(max_chunksize=4))
        keys = _check_events(oracle, path, rows)
        gone = keys[len(keys) // 2]
        assert table.delete([gone]).deletes == 1
        found = table.snapshot(["id", "v"]).read_all().to_pylist()
        rows[:] = [(row["id"], row["v"]) for row in found]
        _check_events(oracle, path, rows)
        if table_type == "MERGE_ON_READ":
            table.compact()
            _check_events(oracle, path, rows)
    if version == 9:
        oracle.delete_where(path, "v % 2 = 0", twin)
        rows[:] = [row for row in rows if row[1] % 2]
        _check_events(oracle, path, rows)


def _events(rows: list[tuple[str, int]], count: int) -> pa.Table:
    """Create rows some of which have equal values, and add them to the list."""
    added = [(f"k{n % 2}", len(rows) + n) for n in range(count - 1)]
    added.append(added[-1])
    rows += added
    ids, values = map(list, zip(*added, strict=True))
    regions = ["north" if v % 3 else "south" for v in values]
    return pa.table([ids, regions, [1] * count, values], schema=SCHEMA)


def _check_events(oracle: Oracle, path: Path, rows: list[tuple[str, int]]) -> list[str]:
    """Check that both read the rows, each with a key of its own, and return the keys."""
    ours, theirs = lakemark.open(path).snapshot().read_all(), oracle.read(path)
    for found in (ours, theirs):
        listed = zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)
        assert sorted(listed) == sorted(rows)
    keys = sorted(ours[RECORD_KEY].to_pylist())
    assert keys == sorted(theirs[RECORD_KEY].to_pylist())
    assert len(set(keys)) == len(keys)
    assert all(re.search(PATTERN, key) for key in keys)
    return keys


def _row(ts: int, v: int) -> pa.Table:
    return pa.table([["k001"], ["north"], [ts], [v]], schema=SCHEMA)


def _rows_of(model: Model, numbers: range) -> pa.Table:
    """Create rows with stored keys, and other values."""
    keys = [f"k{n:03d}" for n in numbers]
    assert all(key in model.rows for key in keys)
    columns = {
        "id": keys,
        "region": [("north", "south")[n % 2] for n in numbers],
        "ts": [99] * len(keys),
        "v": [-1] * len(keys),
    }
    return pa.table(columns, schema=SCHEMA)
