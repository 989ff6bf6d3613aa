"""Texts as ordering values: Apache Hudi reads them rightly out of the blocks that we write.

Of Parquet blocks it would not (``default_log_format`` of ``lakemark.write.log_file_writer``). The
test that pins this fails once Apache Hudi is mended; then the rule may go.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

TWIN = ApacheTable("t", ["id"], [], ["at"])
SCHEMA = pa.schema([("id", pa.string()), ("at", pa.string()), ("state", pa.string())])
IDS = [f"order {number}" for number in range(8)]
NEWEST = dict.fromkeys(IDS[:-1], "paid") | {IDS[-1]: "made"}


def _rows(path: Path, log_format: str | None, version: int = 9) -> None:
    """All orders are made; then all but the last are paid, and the last one's event is late."""
    ours = LakemarkWriter.open(path, replace(TWIN, version=version), SCHEMA)
    ours.writer.settings = replace(ours.writer.settings, log_format=log_format)
    made = [{"id": id, "at": "2026-01-02", "state": "made"} for id in IDS]
    paid = [{"id": id, "at": "2026-01-03", "state": "paid"} for id in IDS[:-1]]
    late = {"id": IDS[-1], "at": "2020-01-01", "state": "in the basket"}
    for step in (made, [*paid, late]):
        ours.upsert(pa.Table.from_pylist(step, SCHEMA))


def _states(rows: pa.Table) -> dict[str, str]:
    return {row["id"]: row["state"] for row in rows.to_pylist()}


@pytest.mark.parametrize("version", [9, 6])
def test_apache_finds_the_newest_of_our_rows(oracle: Oracle, tmp_path: Path, version: int) -> None:
    _rows(tmp_path / "t", log_format=None, version=version)
    assert _states(lakemark.read_snapshot(tmp_path / "t")) == NEWEST
    assert _states(oracle.read(tmp_path / "t")) == NEWEST


def test_apache_misreads_texts_of_parquet_blocks(oracle: Oracle, tmp_path: Path) -> None:
    _rows(tmp_path / "t", log_format="parquet")
    assert _states(lakemark.read_snapshot(tmp_path / "t")) == NEWEST
    assert _states(oracle.read(tmp_path / "t")) != NEWEST
