"""Tables without record key columns: each inserted row gets a new record key."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.keygen.automatic_keys import PATTERN
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.storage.properties_file import read_properties
from lakemark.write.sorted_runs import SortMode
from tests.depth import examples
from tests.unit.operations.tables import FAST, KINDS, SCHEMA, Kind, rows

each_type = pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])

Row = tuple[str, str, int, int]
ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["n", "s"]), st.just(1), st.integers(0, 2)),
    min_size=1,
    max_size=5,
)


def create(path: str | Path, **given: Any) -> lakemark.Table:
    wanted = {"schema": SCHEMA, "record_key": (), "partition_by": "region", "index": "lookup"}
    return lakemark.create(path, **(wanted | {"multi_writer": FAST} | given))


def stored(table: lakemark.Table) -> dict[str, Row]:
    """Return the rows by record key, as a new process reads them."""
    names = [RECORD_KEY, *SCHEMA.names]
    found = lakemark.open(table.location).snapshot(names).read_all().to_pylist()
    by_key = {row.pop(RECORD_KEY): tuple(row.values()) for row in found}
    assert len(by_key) == len(found), "each row has its own key"
    assert all(re.search(PATTERN, key) for key in by_key)
    return by_key


@pytest.mark.parametrize("kind", [k for k in KINDS if k.store == "memory"], ids=str)
@settings(deadline=None, max_examples=examples(4))
@given(data=st.data())
def test_every_inserted_row_is_stored_until_its_key_is_deleted(
    kind: Kind, data: st.DataObject
) -> None:
    path = f"memory://{uuid4().hex}/events"
    table = create(path, table_type=kind.table_type, version=kind.version)
    model = dict[str, Row]()
    for _ in range(data.draw(st.integers(1, 6))):
        act = data.draw(st.sampled_from(["insert", "bulk_insert", "keys", "where", "compact"]))
        if act in ("insert", "bulk_insert"):
            added = data.draw(ROWS)
            if act == "insert":
                assert table.insert(rows(*added)).inserts == len(added)
            else:
                sort = data.draw(st.sampled_from(SortMode))
                batches = rows(*added).to_batches(max_chunksize=2)
                assert table.bulk_insert(batches, sort=sort).inserts == len(added)
            after = stored(table)
            assert {key: after.get(key) for key in model} == model, "earlier rows are unchanged"
            new = [row for key, row in after.items() if key not in model]
            assert Counter(new) == Counter(added)
            model = after
        elif act == "keys":
            gone = data.draw(st.sets(st.sampled_from(sorted(model)))) if model else set()
            assert table.delete(sorted(gone)).deletes == len(gone)
            model = {key: row for key, row in model.items() if key not in gone}
        elif act == "where":
            table.delete(where="v = 1")
            model = {key: row for key, row in model.items() if row[3] != 1}
        elif kind.table_type == "MERGE_ON_READ":
            table.compact()
        assert stored(table) == model, act
    assert table.metadata_differences() == []


def test_keys_have_the_instant_and_the_order_of_the_rows(tmp_path: Path) -> None:
    table = create(tmp_path / "t", partition_by=())
    added = [("x", "n", 1, number) for number in range(12)]
    first = table.insert(rows(*added[:4])).instant
    second = table.bulk_insert(rows(*added[4:]).to_batches(max_chunksize=3), sort="global").instant
    numbers = {key: row[3] for key, row in stored(table).items()}
    expected = {f"{first}_0_{n}": n for n in range(4)}
    assert numbers == expected | {f"{second}_0_{n}": n + 4 for n in range(8)}


def test_properties_name_no_record_key(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.insert(rows(("x", "n", 1, 1)))
    values = table.properties.values
    assert "hoodie.table.recordkey.fields" not in values
    assert values["hoodie.table.keygenerator.type"] == "SIMPLE"
    assert "record key automatic" in repr(table)


@each_type
def test_rows_of_a_scan_are_deleted_by_their_keys(tmp_path: Path, table_type: str) -> None:
    table = create(tmp_path / "t", table_type=table_type)
    table.insert(rows(*(("x", "n", 1, number) for number in range(5))))
    some = table.scan(where="v < 2").to_table()
    assert table.delete(some).deletes == 2
    assert sorted(row[3] for row in stored(table).values()) == [2, 3, 4]
    with pytest.raises(lakemark.InvalidConfig, match="keys lack column '_hoodie_record_key'"):
        table.delete(pa.table({"id": ["x"]}))


@each_type
def test_operations_that_need_keys_of_columns_are_refused(tmp_path: Path, table_type: str) -> None:
    table = create(tmp_path / "t", table_type=table_type)
    table.insert(rows(("x", "n", 1, 1)))
    with pytest.raises(lakemark.Unsupported, match=r"automatic record keys, so an upsert cannot"):
        table.upsert(rows(("x", "n", 2, 2)))
    for duplicates in ("drop", "fail"):
        with pytest.raises(lakemark.Unsupported, match="automatic record keys, so that no row"):
            table.insert(rows(("x", "n", 2, 2)), duplicates=duplicates)
    moving = lakemark.open(tmp_path / "t", partition_change="move", multi_writer=FAST)
    with pytest.raises(lakemark.InvalidConfig, match="partition_change='move' has no meaning"):
        moving.insert(rows(("x", "n", 2, 2)))
    with pytest.raises(lakemark.InvalidConfig, match="as its automatic record keys show"):
        lakemark.open(tmp_path / "t", buckets=2).insert(rows(("x", "n", 2, 2)))
    assert len(stored(table)) == 1
    assert not lakemark.open(tmp_path / "t").timeline.pending()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"index": "bucket"}, "name the columns of the record key, or pass index='lookup'"),
        ({"index": "consistent_hashing"}, "or pass index='lookup'"),
        ({"meta_columns": False}, "which meta_columns=False does not store"),
    ],
)
def test_tables_that_cannot_have_automatic_keys_are_not_created(
    tmp_path: Path, given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(lakemark.InvalidConfig, match=reason):
        create(tmp_path / "t", **given)
    assert not (tmp_path / "t").exists()


def test_a_table_that_only_lacks_its_key_fields_is_not_continued(tmp_path: Path) -> None:
    """Rows with automatic keys next to the keys of a column would never be updated."""
    table = lakemark.create(
        tmp_path / "t", schema=SCHEMA, record_key="id", index="lookup", multi_writer=FAST
    )
    table.upsert(rows(("x", "n", 1, 1)))
    assert read_properties(table._table.storage).values == table.properties.values
    path = tmp_path / "t/.hoodie/hoodie.properties"
    kept = [line for line in path.read_text().splitlines() if "recordkey.fields" not in line]
    path.write_text("\n".join(kept) + "\n")
    other = lakemark.open(tmp_path / "t", multi_writer=FAST)
    with pytest.raises(lakemark.InvalidConfig, match="record key 'x' is not an automatic one"):
        other.insert(rows(("y", "n", 1, 1)))


def test_rows_that_arrive_while_another_writer_inserts_get_their_own_keys(tmp_path: Path) -> None:
    table, other = create(tmp_path / "t"), lakemark.open(tmp_path / "t", multi_writer=FAST)
    table.insert(rows(("a", "n", 1, 0)))

    def batches() -> Any:
        yield from rows(("b", "n", 1, 1), ("c", "n", 1, 2)).to_batches()
        other.insert(rows(("d", "n", 1, 3)))

    table.bulk_insert(batches())
    assert sorted(row[3] for row in stored(table).values()) == [0, 1, 2, 3]


@each_type
def test_rows_of_an_overwrite_get_new_keys(tmp_path: Path, table_type: str) -> None:
    table = create(tmp_path / "events", table_type=table_type)
    table.insert(rows(("a", "n", 1, 1), ("b", "s", 1, 1)))
    (kept,) = [key for key, row in stored(table).items() if row[1] == "s"]
    table.insert_overwrite(rows(("a", "n", 1, 2), ("a", "n", 1, 2)))
    after = stored(table)
    assert after.pop(kept) == ("b", "s", 1, 1)
    assert list(after.values()) == [("a", "n", 1, 2)] * 2
