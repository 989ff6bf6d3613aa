"""Indexes that lakemark adds to a table of Apache Hudi, and the reverse; both continue the table.

That Apache Hudi reads an index is shown by ``test_secondary_index``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.valid_instants import INITIAL
from lakemark.model.action import Action
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline_store import TimelineStore
from tests.depth import sample
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_lookup_index import RECORD_INDEX, SEVERAL_GROUPS
from tests.interop.test_secondary_index import NAME, SKIPPING, Model, check, open_at
from tests.protocol.actors import archive_instants, clean_up, compact, maintain_metadata
from tests.tables import SCHEMA as ROWS
from tests.tables import Row, commit, contents, lookup_writer, make

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


@pytest.mark.parametrize("version", sample(WRITTEN, one_in=3))
def test_apache_hudi_continues_a_metadata_table_with_archived_commits_and_a_new_index(
    oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: FormatVersion
) -> None:
    """Apache Hudi still reads base files whose compactions were archived before the new index."""
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    path = tmp_path / "orders"
    storage = open_storage(StorageLocation(str(path)))
    make(storage, indexes=("record_index",), version=version)
    to = lookup_writer(storage)
    expected = dict.fromkeys("abcdefgh", (1, 1))
    commit(to, [Row(key, *one) for key, one in expected.items()])
    for ts in range(10, 22):
        commit(to, [Row("a", ts, ts)])  # most file groups of the record index never change
        for service in (compact, clean_up, archive_instants, maintain_metadata):
            service(to)
        to.table.refresh()
    own = metadata_instants(path).load()
    of_index = {file.name.rpartition("_")[2][:17] for file in _record_index(path)}
    assert any(INITIAL < time < (own.start or "") for time in of_index), "of an archived commit"
    lakemark.open(path).create_index("bloom_filters")
    indexing = open_at(path).timeline.completed(Action.INDEXING)[-1]
    assert metadata_instants(path).load().find(indexing.requested_at) is not None
    twin = replace(INDEXED, version=int(version))
    written = [("b", "north", 30, 30), ("i", "north", 30, 30)]
    oracle.write(path, pa.Table.from_pylist([*map(_row, written)], ROWS), twin)
    expected |= {"a": (21, 21), "b": (30, 30), "i": (30, 30)}
    _check_rows(oracle, path, expected)
    commit(lookup_writer(storage), [Row("c", 40, 40), Row("i", 40, 40)])
    oracle.write(path, pa.Table.from_pylist([_row(("d", "north", 50, 50))], ROWS), twin)
    expected |= {"c": (40, 40), "i": (40, 40), "d": (50, 50)}
    _check_rows(oracle, path, expected)


def _row(values: tuple[str, str, int, int]) -> dict[str, str | int]:
    return dict(zip(ROWS.names, values, strict=True))


def _record_index(path: Path) -> list[Path]:
    return list((path / METADATA_FOLDER / "record_index").glob("*.hfile"))


def metadata_instants(path: Path) -> TimelineStore:
    """Return the timeline of a table's metadata table."""
    own = FolderStorage(open_storage(StorageLocation(str(path))), METADATA_FOLDER)
    return TimelineStore.of_table(own, read_properties(own))


def _check_rows(oracle: Oracle, path: Path, expected: Mapping[str, tuple[int, int]]) -> None:
    """Check that both find these rows, and that the metadata table describes them."""
    table = open_at(path)
    assert contents(table.storage) == expected
    assert metadata_differences(table) == []
    assert keep_metadata_table(table) is None, "it is continued"
    with oracle.named("read", path), oracle.settings(SKIPPING):
        rows = oracle.query("SELECT id, ts, v FROM read").to_pylist()
        found = oracle.query("SELECT id FROM read WHERE id IN ('a', 'h', 'x')")["id"].to_pylist()
    assert {row["id"]: (row["ts"], row["v"]) for row in rows} == expected
    assert len(rows) == len(expected)
    assert sorted(found) == ["a", "h"]
