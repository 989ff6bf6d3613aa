"""lakemark and Apache Hudi find every partition that the other writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.operations.metadata_table import drop_metadata_table
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.property.test_partition_names import TRAPS

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)
TWIN = ApacheTable("t", ["id"], ["region"], ["ts"], bucket_count=1)


def _rows(at: int) -> pa.Table:
    columns = [[f"of {n}" for n in TRAPS], list(TRAPS), [at] * len(TRAPS), [at] * len(TRAPS)]
    return pa.table(columns, schema=SCHEMA)


def _found(rows: pa.Table) -> list[tuple[str, str, int]]:
    """Return the rows with their stored partition paths.

    In the partition column itself, Apache Hudi decodes ``%41`` and removes ``k=``.
    """
    named = rows.select(["id", "_hoodie_partition_path", "v"]).to_pylist()
    return sorted((row["id"], row["_hoodie_partition_path"], row["v"]) for row in named)


@pytest.mark.parametrize("has_metadata", [False, True])
def test_both_find_every_partition(oracle: Oracle, tmp_path: Path, has_metadata: bool) -> None:
    path, twin = tmp_path / "t", replace(TWIN, has_metadata=has_metadata)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    if not has_metadata:
        drop_metadata_table(writer.writer.table)
    writer.upsert(_rows(1))
    expected = [(f"of {name}", name, 1) for name in TRAPS]
    assert _found(oracle.read(path)) == sorted(expected)
    oracle.write(path, _rows(2), twin)
    expected = [(f"of {name}", name, 2) for name in TRAPS]
    assert _found(oracle.read(path)) == _found(lakemark.read_snapshot(path)) == sorted(expected)
