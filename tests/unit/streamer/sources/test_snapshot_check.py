"""What is checked of a snapshot before anything is written."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from streamer.config.load import validated
from streamer.sources.snapshots.check import check_snapshot
from streamer.sources.snapshots.errors import BadSnapshot

ROWS = pa.table({"id": ["a", "b"], "n": [1, 2]})


def checked(folder: Path, **settings: object) -> str:
    """Check the snapshot in a folder; return its size."""
    tree = {
        "source": {"bootstrap_servers": "broker:9092", "topic": "orders"},
        "snapshot": {"path": str(folder), **settings},
        "decode": {"schema": {"id": "string", "n": "bigint"}},
        "table": {"path": "/lake/orders", "record_key": "id", "ordering": "n"},
    }
    return check_snapshot(validated(tree).of_snapshot())


def parquet() -> bytes:
    stream = pa.BufferOutputStream()
    pq.write_table(ROWS, stream)
    return bytes(stream.getvalue())


def zipped(content: bytes) -> bytes:
    """Compress a content; all processes of a test run get the same bytes, which name the test."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("0.parquet", parquet()),
        ("0.parquet.gz", zipped(parquet())),
        ("0.csv", b"id,n\na,1\n"),
        ("0.csv", b"\xef\xbb\xbfid,n\r\na,1"),
        ("0.csv", b'id,n\n"' + b"x\n" * 50_000 + b'",1\n'),
        ("0.csv", b""),
        ("0.json", b'{"id":"' + b"x" * 200_000 + b'","n":1}\n'),
        ("0.json.gz", zipped(b'{"id":"a","n":1}\n')),
    ],
)
def test_files_that_a_run_can_read_are_accepted(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    kind = name.split(".")[1]
    assert checked(tmp_path, format=kind, header=kind == "csv").startswith("1 file, ")


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("0.parquet", b"", "Parquet file size is 0 bytes"),
        ("0.parquet", parquet()[:-9], "Parquet"),
        ("0.csv", b"n,id\n1,a\n", "its header names the columns n, id"),
        ("0.json.gz", zipped(b"{}\n" * 1_000)[:-9], "it is not a complete gzip file"),
        ("0.avro", b"no header", "cannot read header"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes, fault: str) -> None:
    (tmp_path / name).write_bytes(content)
    kind = name.split(".")[1]
    with pytest.raises(BadSnapshot, match=f"1 file cannot be read: {name}: .*{fault}"):
        checked(tmp_path, format=kind, header=kind == "csv")
    assert checked(tmp_path, format=kind, header=kind == "csv", on_bad_file="dead_letter")


def test_the_files_of_a_table_are_not_a_snapshot(tmp_path: Path) -> None:
    lakemark.create(str(tmp_path / "stored"), schema=ROWS.schema, record_key="id").upsert(ROWS)
    with pytest.raises(BadSnapshot, match=r"this is a Hudi table, .* set snapshot\.kind: table"):
        checked(tmp_path / "stored", format="parquet")
    assert checked(tmp_path / "stored", kind="table") == "2 columns"
