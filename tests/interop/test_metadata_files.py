"""Apache Hudi reads a metadata table whose files were all written by lakemark."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakemark.codec.hfile import Entries, HFileReader, write_hfile
from lakemark.log.log_block import BlockType
from lakemark.log.log_reader import read_blocks
from lakemark.metadata.metadata_files import BaseContent, changed_base_file, log_file
from lakemark.metadata.record_changes import RecordChanges
from tests.golden.golden_table import GoldenTable, sorted_rows, unpack
from tests.interop import hudi_rs
from tests.interop.oracle import Oracle, OracleError

pytestmark = pytest.mark.oracle

#: Base files and logs of listings and statistics; all queried columns have statistics. Files of
#: metadata tables are the same in all versions, except as tests.interop.test_metadata_table shows.
TABLE = "v9_cow_column_stats"
OPTIONS = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
CREATED_MS = 1_795_000_000_000

#: Changes a stored record.
Change = Callable[[bytes], bytes]


def write_again(
    table: GoldenTable,
    partition: str,
    change: Change = lambda record: record,
    write_base: Callable[[bytes, Change], bytes] | None = None,
) -> int:
    """Write every base file and log of a metadata partition, and return their number."""
    files = [*(table.root / ".hoodie/metadata" / partition).iterdir()]
    written = [path for path in files if _is_written(path)]
    for path in written:
        data = path.read_bytes()
        if path.suffix == ".hfile":
            path.write_bytes((write_base or write_whole)(data, change))
        else:
            (block,) = read_blocks(io.BytesIO(data), len(data), path.name)
            assert block.type is BlockType.HFILE_DATA
            entries = _entries(block.content.read(), change)
            changes = RecordChanges(entries, pa.array([], pa.binary()))
            path.write_bytes(log_file(changes, partition, block.instant_time, CREATED_MS))
        # The checksum by which Hadoop's local file system checked the content of Apache Hudi.
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    return len(written)


def write_whole(hfile: bytes, change: Change) -> bytes:
    """Write a base file from all of its records."""
    return BaseContent.of(_entries(hfile, change), CREATED_MS).content


def copy_blocks(hfile: bytes, change: Change) -> bytes:
    """Divide a base file into many blocks, and copy those without changed records."""
    whole = _reader(hfile)
    own = {name: text for name, text in whole.file_info.items() if not name.startswith(b"hfile.")}
    bloom = whole.meta_block("bloomFilter")
    assert bloom is not None
    before = _entries(hfile, lambda record: record)
    blocks = write_hfile(
        before, own, created_ms=1, meta_blocks={b"bloomFilter": bloom}, block_bytes=500
    )
    after = _entries(hfile, change)
    is_changed = pc.not_equal(before.values, after.values)
    # One record is written again although it has not changed.
    is_changed = pc.or_(is_changed, pa.array([True] + [False] * (len(before.keys) - 1)))
    changed = Entries(after.keys.filter(is_changed), after.values.filter(is_changed))
    changes = RecordChanges(changed, pa.array([], pa.binary()))
    found = changed_base_file(_reader(blocks), changes, CREATED_MS, "an.hfile")
    assert found is not None and found.count == len(before.keys)
    return found.content


def _reader(hfile: bytes) -> HFileReader:
    return HFileReader(io.BytesIO(hfile), len(hfile), "an.hfile")


def _is_written(path: Path) -> bool:
    is_log = ".log.1_" in path.name and not path.name.endswith("_0-0-0")
    return path.suffix == ".hfile" or (is_log and path.suffix != ".crc")


def _entries(hfile: bytes, change: Change) -> Entries:
    blocks = list(_reader(hfile).scan())
    values = [change(value) for block in blocks for value in block.values.to_pylist()]
    keys = pa.concat_arrays([block.keys for block in blocks])
    return Entries(keys, pa.array(values, pa.binary()))


def ask(oracle: Oracle, table: GoldenTable, name: str, condition: str = "true") -> pa.Table:
    """Run a query with the metadata table and data skipping."""
    settings = ", ".join(f"'{key}' = '{value}'" for key, value in OPTIONS.items())
    oracle.execute(
        f"CREATE TABLE {name} USING hudi TBLPROPERTIES ({settings}) LOCATION '{table.root}'"
    )
    try:
        with oracle.settings(OPTIONS):
            return oracle.query(f"SELECT * FROM {name} WHERE {condition}")
    finally:
        oracle.execute(f"DROP TABLE {name}")


@pytest.mark.parametrize("write_base", [write_whole, copy_blocks])
def test_apache_lists_and_skips_by_files_that_lakemark_wrote(
    oracle: Oracle, tmp_path: Path, write_base: Callable[[bytes, Change], bytes]
) -> None:
    table = unpack(TABLE, tmp_path)
    expected = table.expected("snapshot")
    for partition in ("files", "column_stats", "partition_stats"):
        assert write_again(table, partition, write_base=write_base) > 3
    assert sorted_rows(ask(oracle, table, "all_rows")) == sorted_rows(expected)
    largest = pc.max(expected["qty"]).as_py()
    found = ask(oracle, table, "one_row", f"qty = {largest}")
    assert sorted_rows(found) == sorted_rows(expected.filter(pc.equal(expected["qty"], largest)))


@pytest.mark.parametrize("write_base", [write_whole, copy_blocks])
def test_apache_skips_files_by_statistics_that_lakemark_wrote(
    oracle: Oracle, tmp_path: Path, write_base: Callable[[bytes, Change], bytes]
) -> None:
    table = unpack(TABLE, tmp_path)
    expected = table.expected("snapshot")
    largest = pc.max(expected["id"]).as_py().encode()
    # A smaller largest value of the same length: the file that has it is skipped.
    smaller = b"k" + b"0" * (len(largest) - 1)
    for partition in ("column_stats", "partition_stats"):
        write_again(table, partition, lambda record: record.replace(largest, smaller), write_base)
    found = ask(oracle, table, "skipped", f"id = '{largest.decode()}'")
    assert found.num_rows == 0
    assert ask(oracle, table, "unskipped").num_rows == expected.num_rows


def test_apache_reads_only_the_files_that_the_metadata_table_lists(
    oracle: Oracle, tmp_path: Path
) -> None:
    table = unpack(TABLE, tmp_path)
    name, renamed = _renamed_file(table)
    write_again(table, "files", lambda record: record.replace(name, renamed))
    with pytest.raises(OracleError, match=renamed.decode()):
        ask(oracle, table, "renamed", "true")


@pytest.mark.parametrize("write_base", [write_whole, copy_blocks])
def test_hudi_rs_lists_by_files_that_lakemark_wrote(
    tmp_path: Path, write_base: Callable[[bytes, Change], bytes]
) -> None:
    table = unpack(TABLE, tmp_path)
    expected = table.expected("snapshot")
    for partition in ("files", "column_stats", "partition_stats"):
        write_again(table, partition, write_base=write_base)
    found = hudi_rs.read_snapshot(table.root)
    assert sorted(found["id"].to_pylist()) == sorted(expected["id"].to_pylist())
    name, renamed = _renamed_file(table)
    write_again(table, "files", lambda record: record.replace(name, renamed))
    with pytest.raises(Exception, match=renamed.decode()):
        hudi_rs.read_snapshot(table.root)


def _renamed_file(table: GoldenTable) -> tuple[bytes, bytes]:
    """Return a file that has rows, and a name of the same length that no file has."""
    name = table.expected("snapshot")["_hoodie_file_name"][0].as_py().encode()
    return name, b"x" + name[1:]
