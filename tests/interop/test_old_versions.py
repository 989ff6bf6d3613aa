"""Tables before version 6: Apache Hudi 1.2.0 reads the same rows, and continues after the upgrade.

It does not upgrade such tables itself. Hudi 0.9 wrote the golden tables. The delete blocks of Hudi
0.11 to 0.13 (block version 2) are made from those of version 6; Apache Hudi 1.2.0 reads them, too.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.config import keys
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.execution.runner import LocalRunner
from lakemark.log import log_block
from lakemark.log.delete_block import read_deletes
from lakemark.log.log_block import BlockType
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.change_version import change_table_version
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from tests.golden.golden_table import GoldenTable, unpack
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows
from tests.unit.codec.kryo_output import KryoOutput, Long
from tests.unit.log.blocks import read_all

pytestmark = pytest.mark.oracle

V6 = FormatVersion.V6
NAMES = [
    "v2_cow_simple",
    "v2_mor_simple",
    "v2_mor_compacted",
    "v2_mor_nonpartitioned",
]


def opened(path: Path) -> OpenTable:
    return open_table(StorageLocation(str(path)), timezone="UTC")


def as_apache_writes(golden: GoldenTable) -> ApacheTable:
    """Return the settings with which Apache Hudi continues a golden table in version 6."""
    options = json.loads((golden.root.parent / "meta.json").read_text("utf-8"))["options"]
    own = {"hoodie.write.table.version": "6", "hoodie.index.type": "GLOBAL_SIMPLE"}
    return ApacheTable(golden.properties.table_name, ["id"], version=6, extra={**options, **own})


def newer(golden: GoldenTable, ts: int) -> pa.Table:
    """Return a newer version of one row, without meta columns."""
    rows = golden.expected("snapshot")
    own = without_meta_columns(rows.schema)
    first = rows.select(own.names).sort_by("id").slice(0, 1)
    place = own.get_field_index("ts")
    return first.set_column(place, own.field("ts"), pa.array([ts], own.field("ts").type))


def agree(oracle: Oracle, path: Path) -> None:
    assert_same_rows(opened(path).scan().to_reader().read_all(), oracle.read(path))


@pytest.mark.parametrize("name", NAMES)
def test_apache_hudi_continues_an_upgraded_table(name: str, oracle: Oracle, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    change_table_version(opened(golden.root), V6, LocalRunner(1))
    agree(oracle, golden.root)
    oracle.write(golden.root, newer(golden, 10**6), as_apache_writes(golden))
    agree(oracle, golden.root)
    table = lakemark.open(golden.root, timezone="UTC")
    if golden.properties.is_merge_on_read:
        table.compact()
        agree(oracle, golden.root)
    table.change_version(9)
    agree(oracle, golden.root)


@pytest.mark.parametrize("version", [4, 5])
def test_delete_blocks_of_version_2_are_read_as_by_apache_hudi(
    version: int, oracle: Oracle, tmp_path: Path
) -> None:
    golden = unpack("v6_mor_event_time_payload", tmp_path)
    expected = golden.table.scan().to_reader().read_all()
    make_old(golden, version)
    assert opened(golden.root).version == version
    assert_same_rows(opened(golden.root).scan().to_reader().read_all(), expected)
    agree(oracle, golden.root)


def make_old(golden: GoldenTable, version: int) -> None:
    """Give a table of version 6 an older version, and delete blocks of that version."""
    changed = [path for path in golden.root.rglob(".*.log.*") if _with_java_objects(path)]
    assert changed
    values = {**golden.properties.values, keys.TABLE_VERSION: str(version)}
    (golden.root / PROPERTIES_PATH).write_bytes(TableProperties(values).to_bytes())


def _with_java_objects(log: Path) -> bool:
    """Write the delete blocks of a log again in block version 2; return whether there are any."""
    blocks = read_all(log.read_bytes())
    parts = []
    for block in blocks:
        content = block.content.read()
        if block.type is BlockType.DELETE:
            content = _as_java_objects(block)
        parts.append(log_block.encode(block.type, block.header, content))
    log.write_bytes(b"".join(parts))
    return any(block.type is BlockType.DELETE for block in blocks)


def _as_java_objects(block: log_block.LogBlock) -> bytes:
    deletes = read_deletes(block)
    (ordering,), always = deletes.ordering_as([pa.int64()])
    values = [
        0 if wins else Long(at) for at, wins in zip(ordering.to_pylist(), always, strict=True)
    ]
    records = zip(
        deletes.record_keys.to_pylist(), deletes.partition_paths.to_pylist(), values, strict=True
    )
    body = KryoOutput().records(list(records))
    return struct.pack(">ii", 2, len(body)) + body
