"""Apache Hudi reads and compacts tables with each setting of base files and log blocks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakemark.config.parquet_settings import Compression, ParquetSettings
from tests.interop.lakemark import LakemarkWriter, read_snapshot
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

TABLE = ApacheTable("t", ["id"], [], ["ts"], bucket_count=1)
SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("note", pa.string()), ("d", pa.float64())]
)
COUNT = 30_000


@pytest.mark.parametrize(
    "settings",
    [
        *(ParquetSettings(compression=codec) for codec in Compression),
        ParquetSettings(compression_level=19, page_bytes=8 << 10, row_group_bytes=1 << 20),
        ParquetSettings(compression="gzip", compression_level=1, dictionary=False),
    ],
    ids=str,
)
def test_apache_hudi_reads_and_compacts_the_files(
    oracle: Oracle, tmp_path: Path, settings: ParquetSettings
) -> None:
    path = tmp_path / "t"
    ours = LakemarkWriter.open(path, TABLE, SCHEMA)
    ours.writer.table.base_files = settings
    ours.upsert(_rows(0, COUNT, ts=1))
    ours.upsert(_rows(COUNT // 2, COUNT + 10, ts=2))
    ours.compact()
    ours.upsert(_rows(0, 20, ts=3))
    codec = "lz4" if settings.compression == Compression.LZ4_RAW else settings.compression
    assert {_codec(file) for file in path.glob("*.parquet")} == {codec}
    before = read_snapshot(path)
    assert_same_rows(before, oracle.read(path))
    with oracle.named("t", path):
        (row,) = oracle.query("SELECT count(*) AS n FROM t WHERE ts = 2 AND d > 8000").to_pylist()
    assert row["n"] == before.filter((pc.field("ts") == 2) & (pc.field("d") > 8000)).num_rows
    oracle.compact(path)
    assert_same_rows(read_snapshot(path), before, ignoring=["_hoodie_file_name"])
    ours.upsert(_rows(5, 15, ts=4))
    assert_same_rows(read_snapshot(path), oracle.read(path))


def _rows(first: int, end: int, ts: int) -> pa.Table:
    numbers = range(first, end)
    columns = {
        "id": [f"k{n:06}" for n in numbers],
        "ts": [ts] * len(numbers),
        "note": [f"note {n % 7}" for n in numbers],
        "d": [n / 3 for n in numbers],
    }
    return pa.table(columns, SCHEMA)


def _codec(path: Path) -> str:
    return str(pq.read_metadata(path).row_group(0).column(0).compression).lower()
