"""Text ordering values: Apache Hudi reads them correctly from the blocks that lakemark writes.

It would misread Parquet blocks (``default_log_format`` of ``lakemark.write.log_file_writer``). The
test that shows this fails once Apache Hudi is fixed; then the rule may be removed.
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
    """Commit all orders; then all but the last are paid, and the last one gets a late event."""
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
def test_apache_reads_the_newest_rows_that_lakemark_wrote(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    _rows(tmp_path / "t", log_format=None, version=version)
    assert _states(lakemark.read_snapshot(tmp_path / "t")) == NEWEST
    assert _states(oracle.read(tmp_path / "t")) == NEWEST


def test_apache_misreads_text_ordering_values_of_parquet_blocks(
    oracle: Oracle, tmp_path: Path
) -> None:
    _rows(tmp_path / "t", log_format="parquet")
    assert _states(lakemark.read_snapshot(tmp_path / "t")) == NEWEST
    assert _states(oracle.read(tmp_path / "t")) != NEWEST
