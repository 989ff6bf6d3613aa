"""Indexes that lakemark adds to a table of Apache Hudi, and the reverse; both continue the table.

That Apache Hudi reads an index is shown by ``test_secondary_index``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import lakemark
from lakemark.model.action import Action
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_lookup_index import RECORD_INDEX, SEVERAL_GROUPS
from tests.interop.test_secondary_index import NAME, SKIPPING, Model, check, open_at

pytestmark = pytest.mark.oracle

TABLE = ApacheTable(
    "orders",
    ["id"],
    ["region"],
    ["ts"],
    has_metadata=True,
    extra={"hoodie.index.type": "GLOBAL_SIMPLE"},
)
INDEXED = replace(TABLE, extra={"hoodie.index.type": "RECORD_INDEX", **RECORD_INDEX})

#: Apache Hudi creates an index only with a lock.
LOCKED = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
}


def check_all(oracle: Oracle, path: Path, model: Model) -> None:
    """Check all that ``check`` does, the record index, and Apache Hudi's own validation."""
    check(oracle, path, model)
    key, absent = sorted(model.rows)[0], "k999"
    with oracle.named("by_key", path), oracle.settings(SKIPPING):
        found = oracle.query(f"SELECT id FROM by_key WHERE id IN ('{key}', '{absent}')")
    assert found["id"].to_pylist() == [key]
    with oracle.named("validated", path):
        call = "CALL validate_metadata_table_files(table => 'validated', verbose => true)"
        rows = oracle.query(call).to_pylist()
    assert rows
    assert all(row["is_present_in_fs"] == row["is_present_in_metadata"] for row in rows)


def test_apache_hudi_continues_a_table_whose_indexes_lakemark_created(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(40), 10), TABLE, options=SEVERAL_GROUPS)
    oracle.write(path, model.upserts(range(5, 15), 20), TABLE)
    table = lakemark.open(path)
    table.create_index("record_index")
    table.create_index("bloom_filters")
    table.create_index("note", column="note")
    check_all(oracle, path, model)
    oracle.write(path, model.upserts([*range(10, 25), 41, 42], 30), INDEXED)
    check_all(oracle, path, model)
    table.upsert(model.upserts([*range(15, 35), *range(43, 50)], 40))
    table.delete(model.deletes([1, 2, 44]))
    check_all(oracle, path, model)
    table.drop_index("note")
    oracle.write(path, model.upserts([0, 1, 44, *range(45, 55)], 50), INDEXED)
    table.create_index("note", column="note")
    check_all(oracle, path, model)
    oracle.write(path, model.upserts(range(0, 55, 3), 60), INDEXED)
    check_all(oracle, path, model)
    actions = {instant.action for instant in oracle.timeline(path)}
    assert Action.INDEXING.value in actions


def test_lakemark_continues_a_table_whose_indexes_apache_hudi_created(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(40), 10), TABLE, options=SEVERAL_GROUPS)
    lakemark.open(path).upsert(model.upserts(range(5, 15), 20))
    with oracle.named("indexed", path), oracle.settings(LOCKED):
        oracle.execute("CREATE INDEX record_index ON indexed (id)")
        oracle.execute("CREATE INDEX note ON indexed (note)")
    table = lakemark.open(path)
    names = {one.partition for one in table.indexes}
    assert {NAME, "record_index"} <= names
    check_all(oracle, path, model)
    table.upsert(model.upserts([*range(10, 25), 41, 42], 30))
    table.delete(model.deletes([1, 2, 41]))
    check_all(oracle, path, model)
    table.drop_index("note")
    assert NAME not in open_at(path).properties.metadata_partitions
    with oracle.named("indexed", path), oracle.settings(LOCKED):
        oracle.execute("CREATE INDEX note ON indexed (note)")
    check_all(oracle, path, model)
