"""lakemark and Apache Hudi continue each other's tables with bucket counts for each partition."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakemark
from lakemark.errors import WriteConflict
from lakemark.index.bucket import bucket_of
from lakemark.model.meta_columns import FILE_NAME
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_lookup_index import Model, check

pytestmark = pytest.mark.oracle

APACHE = ApacheTable(
    "orders",
    ["id"],
    ["region"],
    ["ts"],
    extra={
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
    },
)
_RESCALE = (
    "CALL partition_bucket_index_manager(table => 'rescaled', overwrite => '^nor(th|d)$,5', "
    "bucket_number => 2, dry_run => false)"
)


def test_both_continue_the_table(oracle: Oracle, tmp_path: Path) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(40), 10), APACHE)
    was_open = lakemark.open(path, buckets=2)
    was_open.upsert(model.upserts(range(5), 15))
    with oracle.named("rescaled", path):
        assert oracle.query(_RESCALE).column("result").to_pylist() == ["SUCCESS"]
    check(oracle, path, model)
    with pytest.raises(WriteConflict, match="bucket counts of partitions"):
        was_open.upsert(model.upserts([1], 15))
    table = lakemark.open(path)
    table.upsert(model.upserts(range(90), 20))
    check(oracle, path, model)
    oracle.write(path, model.upserts(range(0, 120, 3), 30), APACHE)
    check(oracle, path, model)
    table.refresh()
    table.compact()
    table.delete(model.deletes([0, 1, 2, 75]))
    table.upsert(model.upserts(range(85, 130), 40))
    check(oracle, path, model)
    rows = table.scan(columns=["region", FILE_NAME]).to_table().to_pylist()
    buckets = {(row["region"], bucket_of(row[FILE_NAME])) for row in rows}
    assert {number for region, number in buckets if region == "north"} == {0, 1, 2, 3, 4}
    assert {number for region, number in buckets if region == "south"} == {0, 1}
    oracle.write(path, model.upserts(range(0, 130, 7), 50), APACHE)
    check(oracle, path, model)
