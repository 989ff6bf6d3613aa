"""Every type, written by one side and read by the other, from base files, logs and compactions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.interop import lakemark
from tests.interop.every_type import SCHEMA, rows_of_every_type
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

LogFormat = Literal["parquet", "avro"]

#: Version 8 has the same types and files as version 9.
each_case = pytest.mark.parametrize(
    ("version", "log_format"), [(9, "parquet"), (9, "avro"), (6, "parquet"), (6, "avro")]
)

BEFORE, AFTER = rows_of_every_type(ts=1), rows_of_every_type(ts=2)


def _table(log_format: LogFormat, version: int = 9) -> ApacheTable:
    columns = ["id"], ["part"], ["ts"]
    return ApacheTable("every_type", *columns, version=version, log_format=log_format)


def _own_columns(rows: pa.Table) -> pa.Table:
    return rows.select(SCHEMA.names)


@pytest.mark.parametrize("log_format", ["parquet", "avro"])
def test_apache_reads_the_values_that_it_wrote(
    oracle: Oracle, tmp_path: Path, log_format: LogFormat
) -> None:
    table = _table(log_format)
    oracle.write(tmp_path / "t", BEFORE, table, "insert")
    assert_same_rows(_own_columns(oracle.read(tmp_path / "t")), BEFORE)
    oracle.write(tmp_path / "t", AFTER, table)
    assert_same_rows(_own_columns(oracle.read(tmp_path / "t")), AFTER)


@each_case
def test_lakemark_reads_and_compacts_values_that_apache_wrote(
    oracle: Oracle, tmp_path: Path, version: int, log_format: LogFormat
) -> None:
    path, table = tmp_path / "t", _table(log_format, version)
    oracle.write(path, BEFORE, table, "insert")
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    oracle.write(path, AFTER, table)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))

    assert LakemarkWriter.open(path, table, SCHEMA).compact()
    assert_same_rows(_own_columns(oracle.read(path, "read_optimized")), AFTER)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))


@each_case
def test_apache_reads_and_compacts_values_that_lakemark_wrote(
    oracle: Oracle, tmp_path: Path, version: int, log_format: LogFormat
) -> None:
    path, table = tmp_path / "t", _table(log_format, version)
    writer = LakemarkWriter.open(path, table, SCHEMA)
    writer.upsert(BEFORE)
    assert_same_rows(_own_columns(oracle.read(path)), BEFORE)
    writer.upsert(AFTER)
    assert_same_rows(_own_columns(oracle.read(path)), AFTER)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))

    assert oracle.compact(path)
    assert_same_rows(_own_columns(oracle.read(path, "read_optimized")), AFTER)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))


@pytest.mark.parametrize("version", [9, 6])
def test_both_write_base_files_of_one_schema(oracle: Oracle, tmp_path: Path, version: int) -> None:
    table = _table("parquet", version)
    oracle.write(tmp_path / "theirs", BEFORE, table, "insert")
    LakemarkWriter.open(tmp_path / "ours", table, SCHEMA).upsert(BEFORE)
    ours, theirs = _base_file(tmp_path / "ours"), _base_file(tmp_path / "theirs")
    assert _leaves(ours) == _leaves(theirs)
    assert _avro_schema(ours) == _avro_schema(theirs)


def _base_file(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(sorted(path.glob("p/*.parquet"))[0])


def _leaves(file: pq.ParquetFile) -> list[str]:
    """Describe each leaf column: its path, physical and logical type, and nesting."""
    columns = [file.schema.column(i) for i in range(len(file.schema))]
    return [
        f"{c.path} {c.physical_type}({c.length}) {c.logical_type} "
        f"definition={c.max_definition_level} repetition={c.max_repetition_level}"
        for c in columns
    ]


def _avro_schema(file: pq.ParquetFile) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(file.metadata.metadata[b"parquet.avro.schema"])
    return schema
