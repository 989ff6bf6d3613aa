"""lakemark finds keys in files of Apache Hudi that are sorted as Java sorts text.

Java sorts U+1F600 before U+FFEE, because it compares UTF-16 units. So the metadata table of Apache
Hudi has such keys in another order than that of their bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from tests.depth import sample
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_lookup_index import RECORD_INDEX

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])
LETTERS = ("\uff21", "\uffee", "\U0001f600", "\U00020bb7")
KEYS = [f"{letter}{number}" for number in range(30) for letter in LETTERS]


def _rows(keys: list[str], ts: int) -> pa.Table:
    return pa.table([keys, [key[0] for key in keys], [ts] * len(keys)], schema=SCHEMA)


@pytest.mark.parametrize(
    "table_type", sample(("MERGE_ON_READ", "COPY_ON_WRITE"), one_in=2, name="key order")
)
def test_keys_and_partitions_are_found(
    oracle: Oracle, tmp_path: Path, table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"]
) -> None:
    path = tmp_path / "orders"
    twin = ApacheTable(
        "orders",
        ["id"],
        ["region"],
        ["ts"],
        table_type=table_type,
        has_metadata=True,
        extra={"hoodie.index.type": "RECORD_INDEX", **RECORD_INDEX},
    )
    oracle.write(path, _rows(KEYS[:1], 1), twin)
    oracle.write(path, _rows(KEYS, 2), twin)
    table = lakemark.open(path)
    assert table.metadata_differences() == []
    for letter in LETTERS:
        found = table.snapshot(["id"], f"region = '{letter}'").read_all()["id"].to_pylist()
        assert sorted(found) == sorted(key for key in KEYS if key[0] == letter)
    for key in KEYS[::7]:
        assert table.scan(columns=["id"], record_keys=[key]).to_table()["id"].to_pylist() == [key]
    for ts in range(3, 15):  # until the metadata table is compacted
        table.upsert(_rows(KEYS[ts::2], ts))
    found = table.snapshot(["id"]).read_all()["id"].to_pylist()
    assert sorted(found) == sorted(KEYS), "an update became a second row"
    assert lakemark.open(path).metadata_differences() == []
