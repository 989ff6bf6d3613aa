"""The oracle itself: Apache Hudi and hudi-rs read rows of Apache Hudi as a plain model expects.

Without these tests, a failed interop test could mean a bug of lakemark or of the test harness.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.interop import hudi_rs
from tests.interop.oracle import ApacheTable, Oracle, OracleError
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])
META_COLUMNS = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]


#: The timelines of versions 8 and 9 have the same layout.
both_layouts = pytest.mark.parametrize("version", [9, 6])


def _trips(name: str, version: int = 9) -> ApacheTable:
    return ApacheTable(name, ["id"], ["region"], ["ts"], version=version)


def _rows(*rows: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def _own_columns(rows: pa.Table) -> pa.Table:
    return rows.select(SCHEMA.names)


@pytest.mark.parametrize("version", [9, 8, 6])
def test_rows_of_several_commits_merge_by_ordering_value(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, trips = tmp_path / "trips", _trips("trips", version)
    first = oracle.write(path, _rows(("a", "n", 5), ("b", "n", 5), ("c", "s", 5)), trips, "insert")
    oracle.write(path, _rows(("a", "n", 6), ("b", "n", 4)), trips)
    oracle.write(path, _rows(("c", "s", 7)), trips, "delete")

    snapshot = oracle.read(path)
    assert snapshot.column_names == [*META_COLUMNS, *SCHEMA.names]
    assert_same_rows(_own_columns(snapshot), _rows(("a", "n", 6), ("b", "n", 5)))
    assert_same_rows(snapshot, hudi_rs.read_snapshot(path))
    as_first = oracle.read(path, options={"as.of.instant": first.requested_at})
    assert_same_rows(_own_columns(as_first), _rows(("a", "n", 5), ("b", "n", 5), ("c", "s", 5)))
    assert [i.action for i in oracle.timeline(path)] == ["deltacommit"] * 3


@both_layouts
def test_planned_compaction_is_pending_until_it_is_run(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, trips = tmp_path / "trips", _trips("trips", version)
    oracle.write(path, _rows(("a", "n", 1)), trips, "insert")
    oracle.write(path, _rows(("a", "n", 2)), trips)
    before = oracle.read(path)

    (planned,) = oracle.compact(path, "schedule")
    assert [(i.action, i.state) for i in oracle.timeline(path) if i.requested_at == planned] == [
        ("compaction", "requested")
    ]
    assert _own_columns(oracle.read(path, "read_optimized")).to_pylist() == [
        {"id": "a", "region": "n", "ts": 1}
    ]

    assert oracle.compact(path, "run") == [planned]
    assert [(i.action, i.state) for i in oracle.timeline(path) if i.requested_at == planned] == [
        ("commit", "completed")
    ]
    assert oracle.commit_metadata(path, planned)["operationType"] == "COMPACT"
    assert_same_rows(oracle.read(path), before, ignoring=["_hoodie_file_name"])
    assert_same_rows(oracle.read(path, "read_optimized"), oracle.read(path))


@both_layouts
def test_rollback_restores_the_earlier_rows(oracle: Oracle, tmp_path: Path, version: int) -> None:
    path, trips = tmp_path / "trips", _trips("trips", version)
    oracle.write(path, _rows(("a", "n", 1)), trips, "insert")
    before = oracle.read(path)
    undone = oracle.write(path, _rows(("a", "n", 2), ("b", "s", 2)), trips)

    assert oracle.rollback(path, undone.requested_at)
    assert_same_rows(oracle.read(path), before)
    assert undone.requested_at not in {i.requested_at for i in oracle.timeline(path)}


def test_table_created_with_sql_accepts_rows_and_unconditional_deletes(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, trips = tmp_path / "trips", _trips("trips")
    oracle.create_table(path, "id STRING, region STRING, ts BIGINT", trips)
    assert oracle.timeline(path) == []
    assert oracle.table_config(path)["hoodie.table.ordering.fields"] == "ts"

    oracle.write(path, _rows(("a", "n", 9), ("b", "n", 9)), trips)
    oracle.delete_where(path, "id = 'a'", trips)
    assert_same_rows(_own_columns(oracle.read(path)), _rows(("b", "n", 9)))


def test_error_of_apache_is_raised_and_its_process_stays_alive(
    oracle: Oracle, tmp_path: Path
) -> None:
    with pytest.raises(OracleError, match="read"):
        oracle.read(tmp_path / "nothing")
    assert oracle.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]
