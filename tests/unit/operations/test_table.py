"""Everything that a Python program can do with a table works on each kind of table."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.errors import InvalidConfig
from tests.unit.operations.tables import (
    FAST,
    KINDS,
    SCHEMA,
    Kind,
    contents,
    create,
    instants,
    location,
    reopen,
    rows,
    write_many,
)


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    value: Kind = request.param
    return value


@pytest.fixture
def table(kind: Kind, tmp_path: Path) -> lakemark.Table:
    return create(location(kind.store, tmp_path), kind.table_type, kind.version)


def test_upsert_inserts_and_updates(table: lakemark.Table, kind: Kind) -> None:
    result = table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    assert (result.upserts, result.deletes, result.files) == (2, 0, 2)
    table.upsert(rows(("a", "north", 2, 2), ("c", "north", 1, 3)))
    table.upsert(rows(("b", "south", 0, 9)))  # late: an older ordering value
    assert contents(table) == {"a": ("north", 2, 2), "b": ("south", 1, 1), "c": ("north", 1, 3)}
    assert table.version == kind.version
    assert result.instant in instants(table, "commit", "deltacommit")
    assert table.metadata_differences() == []


def test_no_batch_is_empty_after_updates_or_deletes_alone(table: lakemark.Table) -> None:
    table.upsert(rows(*((key, "north", 1, 1) for key in "abcdefgh")))
    table.delete(["a", "b"])
    assert [batch.num_rows for batch in table.scan().batches() if not batch.num_rows] == []
    table.upsert(rows(*((key, "north", 2, 2) for key in "cdefgh")))
    found = [batch.num_rows for batch in table.scan().batches()]
    assert all(found)
    assert sum(found) == 6


def test_delete_by_condition_and_by_keys(table: lakemark.Table) -> None:
    table.upsert(rows(*((key, "north", 5, n) for n, key in enumerate("abcdef"))))
    assert table.delete(where="v >= 4").deletes == 2
    assert table.delete(["a", "never there"]).deletes == 1
    assert table.delete([{"id": "b"}]).deletes == 1
    assert table.delete(pa.table({"id": ["c"]}), where="v > 100").instant is None
    assert contents(table) == {"c": ("north", 5, 2), "d": ("north", 5, 3)}
    assert table.metadata_differences() == []


def test_deleted_record_can_be_inserted_again(table: lakemark.Table) -> None:
    table.upsert(rows(("a", "north", 5, 1)))
    table.delete(["a"])
    assert contents(table) == {}
    table.upsert(rows(("a", "north", 6, 2)))
    assert contents(table) == {"a": ("north", 6, 2)}


def test_event_older_than_a_deleted_row_inserts_it_again_once_the_delete_is_forgotten(
    table: lakemark.Table, kind: Kind
) -> None:
    """A delete has the ordering value of its row.

    Copy-on-write forgets deletes at once, and merge-on-read at a compaction.
    """
    table.upsert(rows(("a", "north", 5, 1), ("b", "north", 5, 1)))
    table.delete(["a"])
    table.upsert(rows(("a", "north", 4, 2)))
    older = {"a": ("north", 4, 2)}
    is_forgotten = kind.table_type == "COPY_ON_WRITE"
    assert contents(table) == {"b": ("north", 5, 1), **(older if is_forgotten else {})}
    if not is_forgotten:
        table.compact()
        table.upsert(rows(("a", "north", 4, 2)))
        assert contents(table) == {"b": ("north", 5, 1), **older}


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
def test_row_whose_ordering_value_no_log_can_store_is_deleted(
    table_type: str, tmp_path: Path
) -> None:
    kind = pa.decimal128(38, 2)
    values = pa.array([Decimal(2) * 10**20, Decimal(1), Decimal(1)], kind)
    given = pa.table({"id": ["wide", "narrow", "kept"], "o": values})
    table = lakemark.create(
        tmp_path / "t", schema=given.schema, record_key="id", ordering="o", table_type=table_type
    )
    table.upsert(given)
    assert table.delete(["wide", "narrow"]).deletes == 2
    assert table.snapshot(["id"]).read_all().to_pylist() == [{"id": "kept"}]


def test_partition_that_was_emptied_row_by_row_has_no_differences(
    table: lakemark.Table, kind: Kind
) -> None:
    keys = "abcdefgh"
    table.upsert(rows(*((key, "north", 1, n) for n, key in enumerate(keys))))
    for key in keys:
        table.delete([key])
        if kind.table_type == "MERGE_ON_READ":
            table.compact()
    assert contents(table) == {}
    assert table.metadata_differences() == []
    table.upsert(rows(("a", "north", 2, 5)))
    assert table.snapshot(["id"], where="v = 5").read_all().num_rows == 1


def test_another_process_continues_the_table(table: lakemark.Table) -> None:
    table.upsert(rows(*((f"k{n}", "north", 1, n) for n in range(20))))
    other = reopen(table.location)
    other.upsert(rows(*((f"k{n}", "north", 2, -n) for n in range(20))))
    table.upsert(rows(("k0", "north", 3, 7)))
    expected = {f"k{n}": ("north", 2, -n) for n in range(20)} | {"k0": ("north", 3, 7)}
    assert contents(table) == expected


def test_compact_merges_logs(table: lakemark.Table, kind: Kind) -> None:
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    table.upsert(rows(("a", "north", 2, 2)))
    if kind.table_type == "COPY_ON_WRITE":
        with pytest.raises(lakemark.Unsupported, match="no logs to compact"):
            table.compact()
        return
    done = table.compact()
    assert len(done.instants) == len(done.files) == 1
    assert table.compact() == lakemark.ServiceResult()
    read_optimized = lakemark.open(table.location).read_optimized(["id", "v"]).read_all()
    assert sorted(read_optimized["v"].to_pylist()) == [1, 2]
    table.upsert(rows(("a", "north", 3, 3)))
    assert contents(table)["a"] == ("north", 3, 3)
    assert table.metadata_differences() == []


def test_clean_deletes_what_retention_does_not_need(table: lakemark.Table, kind: Kind) -> None:
    for ts in range(1, 5):
        table.upsert(rows(("a", "north", ts, ts)))
        if kind.table_type == "MERGE_ON_READ":
            table.compact()
    done = table.clean(retain_commits=1)
    assert done.files
    assert done.instants == tuple(instants(table, "clean"))
    assert contents(table) == {"a": ("north", 4, 4)}
    assert table.metadata_differences() == []


def test_archive_shortens_the_timeline(table: lakemark.Table, kind: Kind) -> None:
    write_many(table, range(1, 9))
    if kind.table_type == "MERGE_ON_READ":
        table.compact()
    write_many(table, range(9, 17))
    done = table.archive(min_commits=2, max_commits=3, retain_commits=1)
    assert done.instants
    assert not set(done.instants) & set(instants(table, "commit", "deltacommit"))
    table.upsert(rows(("b", "south", 1, 1)))
    assert contents(table) == {"a": ("north", 16, 16), "b": ("south", 1, 1)}


def test_rollback_undoes_the_newest_commit(table: lakemark.Table) -> None:
    table.upsert(rows(("a", "north", 1, 1)))
    newest = table.upsert(rows(("a", "north", 2, 2), ("b", "south", 1, 1))).instant
    assert newest is not None
    assert table.rollback(newest).files
    assert contents(table) == {"a": ("north", 1, 1)}
    table.upsert(rows(("b", "south", 3, 3)))
    assert contents(table) == {"a": ("north", 1, 1), "b": ("south", 3, 3)}


def test_savepoint_and_restore(table: lakemark.Table) -> None:
    table.upsert(rows(("a", "north", 1, 1)))
    kept = table.savepoint(comment="before the import")
    assert table.savepoints[kept].comment == "before the import"
    table.upsert(rows(("a", "north", 2, 2)))
    table.delete(where="v = 2")
    assert contents(table) == {}
    assert len(table.restore(kept).instants) == 2
    assert contents(table) == {"a": ("north", 1, 1)}
    table.delete_savepoint(kept)
    assert not table.savepoints
    table.upsert(rows(("b", "south", 1, 1)))
    assert contents(table) == {"a": ("north", 1, 1), "b": ("south", 1, 1)}
    assert table.metadata_differences() == []


def test_restore_to_the_empty_table(table: lakemark.Table) -> None:
    table.upsert(rows(("a", "north", 1, 1)))
    with pytest.raises(InvalidConfig, match="either the instant"):
        table.restore(table.savepoint(), to_empty=True)
    assert table.expire_savepoints(timedelta(days=1)) == ()
    assert table.expire_savepoints(timedelta(days=999_999_999)) == ()
    (kept,) = table.savepoints
    table.delete_savepoint(kept)
    assert table.restore(to_empty=True).instants[0] == kept
    assert contents(table) == {}
    table.upsert(rows(("b", "south", 1, 1)))
    assert contents(table) == {"b": ("south", 1, 1)}
    assert table.metadata_differences() == []
    assert table.remove_orphans().files == ()


def test_change_of_version_keeps_rows_and_goes_on(table: lakemark.Table, kind: Kind) -> None:
    table.upsert(rows(("a", "north", 1, 1)))
    table.upsert(rows(("a", "north", 2, 2), ("b", "south", 1, 1)))
    other = 8 if kind.version == 9 else 9
    table.change_version(other)
    assert table.version == other
    table.upsert(rows(("a", "north", 3, 3)))
    assert contents(table) == {"a": ("north", 3, 3), "b": ("south", 1, 1)}
    assert reopen(table.location).version == other


@pytest.fixture
def plain(tmp_path: Path) -> lakemark.Table:
    return create(str(tmp_path / "orders"))


def test_orphans_are_found_before_they_are_removed(tmp_path: Path) -> None:
    table = create(str(tmp_path / "t"))
    table.upsert(rows(("a", "north", 1, 1)))
    left = tmp_path / "t/.hoodie/.temp/20200101000000000/north/a.parquet.marker.CREATE"
    left.parent.mkdir(parents=True)
    left.touch()
    assert table.find_orphans() == (), "it was just written"
    os.utime(left, (0, 0))
    (orphan,) = table.find_orphans()
    assert orphan.reason.is_clear
    assert left.exists()
    assert table.remove_orphans().files == (orphan.path,)
    assert not left.exists()


def test_upgrade_refuses_an_older_version(plain: lakemark.Table) -> None:
    with pytest.raises(lakemark.InvalidConfig, match="has version 9"):
        plain.upgrade(8)


def test_columns_are_converted_without_loss(plain: lakemark.Table) -> None:
    given = pa.table(
        {
            "v": pa.array([7], pa.int64()),
            "id": pa.array(["a"]).dictionary_encode(),
            "region": pa.array(["north"], pa.large_string()),
            "ts": pa.array([1], pa.int16()),
        }
    )
    plain.upsert(given)
    assert contents(plain) == {"a": ("north", 1, 7)}


@pytest.mark.parametrize(
    ("column", "values", "error", "message"),
    [
        ("v", pa.array([2**40]), lakemark.InvalidRecords, "column 'v'.*does not fit int32"),
        ("v", pa.array(["7"]), lakemark.InvalidConfig, "'v' is string in the rows and int32"),
        ("extra", pa.array([1]), lakemark.InvalidConfig, "no column 'extra'.*add_columns=True"),
        ("id", pa.array([""]), lakemark.InvalidRecords, r"record key \(id\) is null or empty"),
        ("ts", pa.nulls(1, pa.int64()), lakemark.InvalidRecords, r"ordering value \(ts\) is null"),
        ("region", pa.array([".."]), lakemark.InvalidRecords, "region cannot name a folder"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(
    plain: lakemark.Table,
    column: str,
    values: pa.Array,
    error: type[Exception],
    message: str,
) -> None:
    plain.upsert(rows(("a", "north", 1, 1)))
    given = {name: rows(("b", "south", 1, 1)).column(name) for name in SCHEMA.names}
    with pytest.raises(error, match=message):
        plain.upsert(pa.table(given | {column: values}))
    assert contents(plain) == {"a": ("north", 1, 1)}
    assert not reopen(plain.location).timeline.pending()


def test_columns_are_added_only_on_request(plain: lakemark.Table) -> None:
    plain.upsert(rows(("a", "north", 1, 1)))
    more = rows(("b", "south", 1, 1)).append_column("note", pa.array(["new"]))
    plain.upsert(more, add_columns=True)
    found = reopen(plain.location).snapshot(["id", "note"]).read_all().to_pylist()
    assert {row["id"]: row["note"] for row in found} == {"a": None, "b": "new"}
    plain.upsert(rows(("c", "south", 1, 1)))  # fewer columns than the table
    assert plain.schema is not None
    assert "note" in plain.schema.names


def test_rows_of_a_scan_can_be_written_back(plain: lakemark.Table) -> None:
    plain.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    plain.upsert(plain.scan(where="id = 'a'").to_table())
    assert contents(plain) == {"a": ("north", 1, 1), "b": ("south", 1, 1)}


def test_marked_rows_are_deletes(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("_hoodie_is_deleted", pa.bool_())])
    path = str(tmp_path / "orders")
    table = lakemark.create(path, schema=schema, record_key=["id"], only_writer=True)
    table.upsert(pa.table({"id": ["a", "b"]}))
    result = table.upsert(pa.table({"id": ["a"], "_hoodie_is_deleted": [True]}))
    assert (result.upserts, result.deletes) == (0, 1)
    assert lakemark.open(path).snapshot(["id"]).read_all().to_pylist() == [{"id": "b"}]


def test_bucket_count_of_the_table_is_used(tmp_path: Path) -> None:
    table = create(str(tmp_path / "orders"), buckets=7)
    table.upsert(rows(*((f"k{n}", "north", 1, n) for n in range(60))))
    with pytest.raises(lakemark.InvalidConfig, match="has 7 buckets"):
        lakemark.open(table.location, buckets=3).upsert(rows(("k0", "north", 2, 2)))
    assert reopen(table.location).upsert(rows(("k0", "north", 2, 2))).files == 1
    assert len(contents(table)) == 60


@pytest.mark.parametrize("retention", ["retain_commits", "retain_hours", "retain_versions"])
@pytest.mark.parametrize("number", [0, -1])
def test_clean_that_would_retain_nothing_is_refused(
    plain: lakemark.Table, retention: str, number: int
) -> None:
    plain.upsert(rows(("1", "a", 1, 1)))
    with pytest.raises(lakemark.InvalidConfig, match=f"at least 1 .*, not {number}"):
        plain.clean(**{retention: number})
    assert plain.snapshot(["v"]).read_all().to_pylist() == [{"v": 1}]


def test_delete_needs_keys_or_a_condition(plain: lakemark.Table) -> None:
    with pytest.raises(lakemark.InvalidConfig, match="keys=… or where=…"):
        plain.delete()


def test_existing_table_is_not_created_again(plain: lakemark.Table) -> None:
    with pytest.raises(lakemark.InvalidConfig, match=r"use lakemark\.open"):
        create(plain.location)


def test_table_and_scan_show_themselves_in_a_line(plain: lakemark.Table) -> None:
    plain.upsert(rows(("a", "north", 1, 1)))
    assert repr(plain) == (f"Table({plain.location!r}, merge_on_read, version 9, record key id)")
    shown = repr(plain.scan(columns=["id", "v"], where="v = 1"))
    assert shown == "Scan(1 file slice, columns id, v, where (v == 1))"
    assert len(repr(plain.scan())) < 300
    assert not [name for name in dir(plain) if name.startswith("_")]
    assert {"scan", "upsert", "delete", "compact", "restore"} <= set(dir(plain))


def test_opening_for_a_query_opens_no_lock_and_no_writer(plain: lakemark.Table) -> None:
    plain.upsert(rows(("a", "north", 1, 1)))
    table = lakemark.open(plain.location)
    table.scan(where="v = 1").to_table()
    assert not {"context", "metadata_writer"} & vars(table._table).keys()


def test_import_loads_neither_arrow_nor_spark_nor_kafka() -> None:
    program = (
        "import sys, lakemark; print(sorted({'pyarrow', 'pyspark', 'confluent_kafka', 'obstore'} "
        "& set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.stdout == "[]\n", shown.stderr
    program = "import lakemark; [getattr(lakemark, name) for name in lakemark.__all__]"
    program += "; import sys; assert not {'pyspark', 'confluent_kafka'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_only_writer_needs_no_heartbeat(tmp_path: Path) -> None:
    path = str(tmp_path / "orders")
    table = lakemark.create(path, schema=SCHEMA, record_key=["id"], only_writer=True)
    table.upsert(rows(("a", "north", 1, 1)))
    assert not (tmp_path / "orders/.hoodie/.heartbeat").exists()
    assert contents(table) == {"a": ("north", 1, 1)}


def test_lock_provider_is_named_when_it_does_not_work() -> None:
    path = location("memory", Path())
    create(path)
    with pytest.raises(lakemark.InvalidConfig, match="file_system"):
        lakemark.open(path, lock_provider="file_system", multi_writer=FAST)
