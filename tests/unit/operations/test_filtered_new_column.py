"""A log that is older than a column has nulls in it, which column statistics count."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import BucketIndex
from lakemark.operations.compact import Compaction, request_compaction
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation

SCHEMA = pa.schema([("id", pa.string()), ("a", pa.int64())])


def keys_of_bucket(bucket: int) -> list[str]:
    keys = pa.array([f"k{n}" for n in range(40)])
    numbers = BucketIndex(2, ("id",)).bucket_ids(keys)
    return [key for key, number in zip(keys.to_pylist(), numbers, strict=True) if number == bucket]


@pytest.mark.parametrize("version", [9, 8, 6])
def test_null_in_a_new_column_is_found_in_an_older_log(tmp_path: Path, version: int) -> None:
    table = lakemark.create(
        tmp_path / "t", schema=SCHEMA, record_key="id", buckets=2, version=version
    )
    first, second = keys_of_bucket(0)[:5], keys_of_bucket(1)[:5]

    def upsert(ids: list[str], a: int) -> None:
        table.upsert(pa.table({"id": ids, "a": [a] * len(ids)}, schema=SCHEMA))

    upsert([*first, *second], 1)
    table.delete(second)
    table.compact()  # the second file group has a base file without rows
    upsert(first, 1)
    location = StorageLocation(str(tmp_path / "t"))
    requested = request_compaction(open_table(location))  # of the first file group
    assert requested is not None
    upsert(second, 2)  # a log without the new column
    wider = SCHEMA.append(pa.field("c", pa.int64()))
    table.upsert(pa.table({"id": first[:1], "a": [3], "c": [5]}, schema=wider), add_columns=True)
    Compaction.begin(open_table(location), requested).run(LocalRunner())
    found = lakemark.open(tmp_path / "t")
    assert found.scan(where="c is null").to_table().num_rows == 9
    assert found.scan(where="c is null and a = 2").to_table().num_rows == 5
    assert found.scan(where="c is not null").to_table().num_rows == 1
