"""Base files are written with the settings of the writer, by commits and by compactions."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark import ParquetSettings
from lakemark.config.parquet_settings import MIN_PAGE_BYTES
from tests.unit.operations.tables import FAST, SCHEMA

COUNT = 50_000
CODECS = {"zstd": "ZSTD", "snappy": "SNAPPY", "gzip": "GZIP", "lz4_raw": "LZ4"}
CODECS |= {"uncompressed": "UNCOMPRESSED"}


def _write(path: Path, settings: ParquetSettings | None) -> list[pq.FileMetaData]:
    """Write base files by a commit, and then by a compaction of another process."""
    lakemark.create(
        path, schema=SCHEMA, record_key="id", buckets=1, multi_writer=FAST, base_files=settings
    ).upsert(_rows(0))
    table = lakemark.open(path, multi_writer=FAST, base_files=settings)
    table.upsert(_rows(1))
    assert table.compact().files
    assert table.scan().to_table().num_rows == COUNT
    files = sorted(path.glob("*.parquet"))
    assert len(files) == 2
    return [pq.read_metadata(file) for file in files]


def _rows(v: int) -> pa.Table:
    columns = [[f"k{n:06}" for n in range(COUNT)], ["north"] * COUNT, range(COUNT), [v] * COUNT]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


@pytest.mark.parametrize("codec", ["snappy", "gzip"])
def test_log_blocks_have_the_codec(tmp_path: Path, codec: str) -> None:
    _write(tmp_path / "t", ParquetSettings(compression=codec))
    (log,) = tmp_path.glob("t/.*.log.*")
    content = log.read_bytes()
    first, last = content.index(b"PAR1"), content.rindex(b"PAR1") + 4
    footer = pq.read_metadata(io.BytesIO(content[first:last]))
    assert footer.num_rows == COUNT
    assert footer.row_group(0).column(0).compression == CODECS[codec]


@pytest.mark.parametrize("codec", CODECS)
def test_files_have_the_codec(tmp_path: Path, codec: str) -> None:
    for footer in _write(tmp_path / "t", ParquetSettings(compression=codec)):
        group = footer.row_group(0)
        found = {group.column(n).compression for n in range(group.num_columns)}
        assert found == {CODECS[codec]}


def test_files_have_the_row_groups_and_dictionaries(tmp_path: Path) -> None:
    settings = ParquetSettings(row_group_bytes=1 << 20, dictionary=False)
    for footer in _write(tmp_path / "small", settings):
        assert footer.num_row_groups > 5
        assert not _has_dictionary(footer)
    for footer in _write(tmp_path / "default", None):
        assert footer.num_row_groups == 1
        assert _has_dictionary(footer)


def test_a_higher_level_makes_files_smaller(tmp_path: Path) -> None:
    sizes = [
        sum(footer.row_group(0).column(2).total_compressed_size for footer in footers)
        for level in (1, 19)
        for footers in [_write(tmp_path / f"{level}", ParquetSettings(compression_level=level))]
    ]
    assert sizes[0] > sizes[1]


def test_files_have_a_page_index(tmp_path: Path) -> None:
    for footer in _write(tmp_path / "t", ParquetSettings(page_bytes=8 << 10)):
        chunks = [footer.row_group(0).column(n) for n in range(footer.num_columns)]
        assert all(chunk.has_offset_index and chunk.has_column_index for chunk in chunks)


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_the_smallest_pages_keep_empty_lists(tmp_path: Path, table_type: str) -> None:
    """Arrow loses the lists of smaller pages."""
    kind = pa.struct([("n", pa.int64()), ("list", pa.list_(pa.int64()))])
    schema = pa.schema([("id", pa.string()), ("inner", kind), ("list", pa.list_(pa.int32()))])
    settings = ParquetSettings(page_bytes=MIN_PAGE_BYTES)
    table = lakemark.create(
        tmp_path / "t", schema=schema, record_key="id", table_type=table_type, base_files=settings
    )
    inner: list[dict[str, object] | None]
    inner = [None, {"n": 1, "list": None}, {"n": None, "list": []}, {"n": 2, "list": [3]}]
    rows: list[dict[str, object]]
    rows = [{"id": f"{n}", "inner": one, "list": []} for n, one in enumerate(inner)]
    for row in (*rows, *rows):
        table.upsert(pa.Table.from_pylist([row], schema))
    read = table.snapshot(["id", "inner", "list"]).read_all().sort_by("id")
    assert read.to_pylist() == rows


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"compression": "brotli"},
            "compression is 'brotli'; choose one of zstd, snappy, gzip, lz4_raw, uncompressed",
        ),
        ({"compression_level": 23}, "compression_level is 23; zstd has the levels 1 to 22"),
        ({"compression_level": "3"}, "compression_level is '3'; zstd has the levels 1 to 22"),
        (
            {"compression": "snappy", "compression_level": 1},
            "compression_level is 1; snappy has no levels; remove it, or choose zstd or gzip",
        ),
        ({"row_group_bytes": 1 << 30}, "row_group_bytes is 1073741824; choose a number from 1 to"),
        ({"page_bytes": 63}, "page_bytes is 63; choose a number from 64 to 268435456"),
        ({"max_file_bytes": 0}, "max_file_bytes is 0; choose a number from 1 to 1099511627776"),
        ({"small_file_bytes": -1}, "small_file_bytes is -1; choose a number from 0 to"),
        ({"record_bytes": 1.5}, "record_bytes is 1.5; choose a number from 1 to"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(lakemark.InvalidConfig, match=message):
        ParquetSettings(**given)


def test_settings_of_another_type_are_refused(tmp_path: Path) -> None:
    given: Any = "snappy"
    with pytest.raises(lakemark.InvalidConfig, match="base_files is 'snappy'; pass"):
        lakemark.create(tmp_path / "t", schema=SCHEMA, record_key="id", base_files=given)
    assert not (tmp_path / "t").exists()


def _has_dictionary(footer: pq.FileMetaData) -> bool:
    group = footer.row_group(0)
    return any(group.column(n).has_dictionary_page for n in range(group.num_columns))
