"""No row of a delta commit is lost if it is inflight while a compaction is planned.

It is requested before the plan and completed after it, so that its logs are not in the plan. They
belong to the slice that the plan begins. Their rows stay, whether lakemark or Apache Hudi executes
the compaction. (Version 6 cannot distinguish such logs: tests.interop.test_writers_of_version_6.)
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.int64())])


def _table(version: int = 9) -> ApacheTable:
    return ApacheTable("overlap", ["id"], ordering=["at"], version=version, bucket_count=1)


def _rows(**values: int) -> pa.Table:
    return pa.table([list(values), list(values.values())], schema=SCHEMA)


def _own_columns(rows: pa.Table) -> pa.Table:
    return rows.select(SCHEMA.names)


def test_compaction_keeps_the_rows_of_a_late_delta_commit_of_apache(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, table = tmp_path / "t", _table()
    oracle.write(path, _rows(a=1, b=1, c=1), table, "insert")
    oracle.write(path, _rows(a=2), table)
    late = oracle.write(path, _rows(b=3, c=3), table)
    timeline = path / ".hoodie" / "timeline"
    completed = timeline / f"{late.requested_at}_{late.completed_at}.deltacommit"
    aside = completed.rename(tmp_path / "aside")

    (planned,) = oracle.compact(path, "schedule")
    assert late.requested_at < planned
    aside.rename(timeline / f"{late.requested_at}_{int(planned) + 1}.deltacommit")
    expected = _rows(a=2, b=3, c=3)
    assert_same_rows(_own_columns(oracle.read(path)), expected)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))

    assert oracle.compact(path, "run") == [planned]
    assert_same_rows(_own_columns(oracle.read(path)), expected)
    assert_same_rows(_own_columns(oracle.read(path, "read_optimized")), _rows(a=2, b=1, c=1))
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))


@pytest.mark.parametrize(("version", "runs_it"), [(9, "apache"), (9, "lakemark"), (8, "apache")])
def test_compaction_keeps_the_rows_of_a_late_delta_commit_of_lakemark(
    oracle: Oracle, tmp_path: Path, version: int, runs_it: str
) -> None:
    path, table = tmp_path / "t", _table(version)
    writer = LakemarkWriter.open(path, table, SCHEMA)
    writer.upsert(_rows(a=1, b=1, c=1))
    writer.upsert(_rows(a=2))
    publish = writer.begin_upsert(_rows(b=3, c=3))
    planned = LakemarkWriter.open(path, table, SCHEMA).plan_compaction()
    late = publish()
    assert late.requested_at < planned.requested_at < (late.completed_at or "")
    expected = _rows(a=2, b=3, c=3)
    assert_same_rows(_own_columns(oracle.read(path)), expected)

    if runs_it == "apache":
        assert oracle.compact(path, "run") == [planned.requested_at]
        assert_same_rows(_own_columns(oracle.read(path, "read_optimized")), _rows(a=2, b=1, c=1))
    else:
        done = LakemarkWriter.open(path, table, SCHEMA).compact()
        assert planned.requested_at in [instant.requested_at for instant in done]
    assert_same_rows(_own_columns(oracle.read(path)), expected)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))

    writer.upsert(_rows(a=4))
    oracle.compact(path)
    optimized = _own_columns(oracle.read(path, "read_optimized"))
    assert_same_rows(optimized, _rows(a=4, b=3, c=3))
