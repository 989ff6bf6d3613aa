"""Apache Hudi reads a metadata table whose files were all written by lakemark."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakemark.codec.hfile import Entries, HFileReader
from lakemark.log.log_block import BlockType
from lakemark.log.log_reader import read_blocks
from lakemark.metadata.metadata_files import base_file, log_file
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


def write_again(table: GoldenTable, partition: str, change: Change = lambda record: record) -> int:
    """Write every base file and log of a metadata partition, and return their number."""
    files = [*(table.root / ".hoodie/metadata" / partition).iterdir()]
    written = [path for path in files if _is_written(path)]
    for path in written:
        data = path.read_bytes()
        if path.suffix == ".hfile":
            path.write_bytes(base_file(_entries(data, change), CREATED_MS))
        else:
            (block,) = read_blocks(io.BytesIO(data), len(data), path.name)
            assert block.type is BlockType.HFILE_DATA
            entries = _entries(block.content.read(), change)
            changes = RecordChanges(entries, pa.array([], pa.binary()))
            path.write_bytes(log_file(changes, partition, block.instant_time, CREATED_MS))
        # The checksum by which Hadoop's local file system checked the content of Apache Hudi.
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    return len(written)


def _is_written(path: Path) -> bool:
    is_log = ".log.1_" in path.name and not path.name.endswith("_0-0-0")
    return path.suffix == ".hfile" or (is_log and path.suffix != ".crc")


def _entries(hfile: bytes, change: Change) -> Entries:
    blocks = list(HFileReader(io.BytesIO(hfile), len(hfile), "an.hfile").scan())
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


def test_apache_lists_and_skips_by_files_that_lakemark_wrote(
    oracle: Oracle, tmp_path: Path
) -> None:
    table = unpack(TABLE, tmp_path)
    expected = table.expected("snapshot")
    for partition in ("files", "column_stats", "partition_stats"):
        assert write_again(table, partition) > 3
    assert sorted_rows(ask(oracle, table, "all_rows")) == sorted_rows(expected)
    largest = pc.max(expected["qty"]).as_py()
    found = ask(oracle, table, "one_row", f"qty = {largest}")
    assert sorted_rows(found) == sorted_rows(expected.filter(pc.equal(expected["qty"], largest)))


def test_apache_skips_files_by_statistics_that_lakemark_wrote(
    oracle: Oracle, tmp_path: Path
) -> None:
    table = unpack(TABLE, tmp_path)
    expected = table.expected("snapshot")
    largest = pc.max(expected["id"]).as_py().encode()
    # A smaller largest value of the same length: the file that has it is skipped.
    smaller = b"k" + b"0" * (len(largest) - 1)
    for partition in ("column_stats", "partition_stats"):
        write_again(table, partition, lambda record: record.replace(largest, smaller))
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


def test_hudi_rs_lists_by_files_that_lakemark_wrote(tmp_path: Path) -> None:
    table = unpack(TABLE, tmp_path)
    expected = table.expected("snapshot")
    for partition in ("files", "column_stats", "partition_stats"):
        write_again(table, partition)
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
