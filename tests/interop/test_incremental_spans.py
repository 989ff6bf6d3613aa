"""Incremental queries of lakemark and Apache Hudi agree over late rows and a compaction."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.operations.open_table import open_table
from lakemark.read.queries import Incremental
from lakemark.storage import StorageLocation
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.int64())])
TWIN = ApacheTable("t", ["id"], ordering=["at"], bucket_count=1)


def test_apache_returns_late_rows_that_lost_to_the_compacted_base_file_of_the_span(
    oracle: Oracle, tmp_path: Path
) -> None:
    writer = LakemarkWriter.open(tmp_path / "t", TWIN, SCHEMA)
    writer.upsert(_rows({"a": 5, "b": 5, "c": 5}))
    second = writer.upsert(_rows({"b": 6}))
    (compaction,) = writer.compact()
    last = writer.upsert(_rows({"a": 1, "b": 1, "c": 7}))
    end = str(last.completed_at)

    begin = str(second.completed_at)  # the span includes the compaction
    assert _ours(tmp_path / "t", begin, end) == {("c", 7)}
    assert _apaches(oracle, tmp_path / "t", begin, end) == {("a", 1), ("b", 1), ("c", 7)}
    begin = str(compaction.completed_at)  # the compaction is before the span
    late = {("a", 1), ("b", 1), ("c", 7)}
    assert _ours(tmp_path / "t", begin, end) == _apaches(oracle, tmp_path / "t", begin, end) == late


def _rows(at: dict[str, int]) -> pa.Table:
    return pa.table([list(at), list(at.values())], schema=SCHEMA)


def _ours(path: Path, begin: str, end: str) -> set[tuple[str, int]]:
    scan = open_table(StorageLocation(str(path))).scan(Incremental(begin, end), ["id", "at"])
    return _pairs(scan.to_table())


def _apaches(oracle: Oracle, path: Path, begin: str, end: str) -> set[tuple[str, int]]:
    span = {"begin": begin, "end": end}
    options = {f"hoodie.datasource.read.{name}.instanttime": at for name, at in span.items()}
    return _pairs(oracle.read(path, "incremental", options))


def _pairs(rows: pa.Table) -> set[tuple[str, int]]:
    return set(zip(rows["id"].to_pylist(), rows["at"].to_pylist(), strict=True))
