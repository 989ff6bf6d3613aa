"""A table changes its version between commits of lakemark and of Apache Hudi."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakemark.execution.runner import LocalRunner
from lakemark.model.format_version import FormatVersion
from lakemark.operations.change_version import change_table_version
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows
from tests.interop.test_conversation import SCHEMA, Stream

pytestmark = pytest.mark.oracle

TABLE = ApacheTable("t", ["id"], ["region"], ["ts"], has_metadata=True)


def test_both_continue_to_write_after_each_version_change(oracle: Oracle, tmp_path: Path) -> None:
    path, stream, twin = tmp_path / "t", Stream(seed=7), replace(TABLE, version=6)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    for _ in range(2):
        writer.upsert(stream.rows())
    for version in (9, 6, 8):
        table = open_table(StorageLocation(str(path)))
        change_table_version(table, FormatVersion(version), LocalRunner(2))
        _agree(oracle, path, version)
        twin = replace(TABLE, version=version)
        oracle.write(path, stream.rows(), twin)
        LakemarkWriter.open(path, twin, SCHEMA).upsert(stream.rows())
        _agree(oracle, path, version)


def test_lakemark_continues_after_apache_upgraded_its_table_to_version_9(
    oracle: Oracle, tmp_path: Path
) -> None:
    """After an upgrade by Apache Hudi, lakemark rebuilds the metadata table.

    The upgrade keeps column statistics of the old form.
    """
    path, stream, twin = tmp_path / "t", Stream(seed=8), replace(TABLE, version=6)
    LakemarkWriter.open(path, twin, SCHEMA).upsert(stream.rows())
    oracle.write(path, stream.rows(), TABLE, options={"hoodie.write.auto.upgrade": "true"})
    _agree(oracle, path, 9)
    writer = LakemarkWriter.open(path, TABLE, SCHEMA)
    writer.writer.recover()
    writer.upsert(stream.rows())
    _agree(oracle, path, 9)
    oracle.write(path, stream.rows(), TABLE)
    _agree(oracle, path, 9)


def _agree(oracle: Oracle, path: Path, version: int) -> None:
    table = open_table(StorageLocation(str(path)))
    assert table.version == version
    assert metadata_differences(table) == []
    ours = lakemark.read_snapshot(path)
    assert_same_rows(ours, oracle.read(path))
    assert_same_rows(ours, oracle.read(path, options={"hoodie.metadata.enable": "true"}))
    assert oracle.table_config(path)["hoodie.table.version"] == str(version)
