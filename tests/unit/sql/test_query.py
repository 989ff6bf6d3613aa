"""A query reads tables with all types of queries, and no more of them than it needs."""

from __future__ import annotations

import gc
import io
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.errors import DiskFull, InvalidConfig, Refused, SnapshotChanged, TableNotFound
from lakemark.model.action import Action
from lakemark.operations.open_table import OpenTable
from lakemark.read.explanation import Explanation
from lakemark.read.queries import Snapshot
from lakemark.sql import engine, explain, query
from lakemark.sql.engine import open_connection
from lakemark.sql.relation import Relation
from lakemark.sql.run import open_query
from lakemark.sql.sql_query import SqlQuery
from lakemark.sql.table_reference import TableReference
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties
from tests.storages.wrapped_storage import WrappedStorage
from tests.unit.operations.tables import create, instants, reopen, rows
from tests.waiting import until

pytest.importorskip("duckdb")


def found(text: str) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = query(text).read_all().to_pylist()
    return listed


def create_orders(path: Path) -> None:
    """Create a table with a base file and a log in the partition ``north``."""
    table = create(str(path), buckets=1)
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 5), ("c", "west", 1, 9)))
    table.upsert(rows(("a", "north", 2, 2), ("d", "north", 2, 7)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    created = tmp_path_factory.mktemp("sql")
    create_orders(created / "lake" / "orders")
    return created


@pytest.fixture
def orders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> lakemark.Table:
    """The table at ``lake/orders`` in the current folder, which no test changes."""
    monkeypatch.chdir(folder)
    return reopen("lake/orders")


def test_query_groups_sorts_and_limits_the_latest_rows(orders: lakemark.Table) -> None:
    grouped = (
        "select region, count(*) as n, sum(v) as total from 'lake/orders' "
        "where id like '%' group by 1 order by total desc, region limit 2"
    )
    table = query(grouped).read_all()
    assert table.to_pylist() == [
        {"region": "north", "n": 2, "total": 9},
        {"region": "west", "n": 1, "total": 9},
    ]
    assert table.schema.field("total").type == pa.int64()


def test_result_keeps_its_order_if_values_are_returned_as_another_type(
    orders: lakemark.Table,
) -> None:
    text = (
        "select i, i::hugeint * 2 as twice, to_days(i::int) as span, i as i "
        "from range(100000) t(i) order by hash(i)"
    )
    table = query(text).read_all()
    assert table.schema.names == ["i", "twice", "span", "i_1"]
    assert table["twice"].type == pa.int64()
    assert table["span"].type == pa.string()
    expected = query("select i from range(100000) t(i) order by hash(i)").read_all()
    assert table["i"].equals(expected["i"])
    spans = dict(zip(table["i"].to_pylist(), table["span"].to_pylist(), strict=True))
    assert (spans[1], spans[2]) == ("1 day", "2 days")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("['a'::enum('a', 'b'), 'b']", ["a", "b"]),
        ("['101'::bit]::bit[1]", ["101"]),
        ("{'At': [interval 1 day], 'n': 1::hugeint}", {"At": ["1 day"], "n": 1}),
        ("map {'a'::enum('a', 'b'): 2::hugeint}", [("a", 2)]),
        (f"{2**128 - 1}::uhugeint", str(2**128 - 1)),
        (f"[{10**40}]", [str(10**40)]),
    ],
)
def test_values_inside_a_value_are_returned_as_another_type(text: str, value: object) -> None:
    assert found(f"select {text} as value") == [{"value": value}]


def test_table_functions_return_the_rows_of_each_type_of_query(orders: lakemark.Table) -> None:
    *_, first, _ = instants(orders, "deltacommit")
    ids = {
        "'lake/orders'": {"a": 2, "b": 5, "c": 9, "d": 7},
        "snapshot('lake/orders')": {"a": 2, "b": 5, "c": 9, "d": 7},
        f"snapshot('lake/orders', as_of => '{first}')": {"a": 1, "b": 5, "c": 9},
        f"snapshot('lake/orders', {first})": {"a": 1, "b": 5, "c": 9},
        "snapshot('lake/orders', date '2020-01-01')": {},
        "read_optimized('lake/orders')": {"a": 1, "b": 5, "c": 9},
        "incremental('lake/orders', 'earliest')": {"a": 2, "b": 5, "c": 9, "d": 7},
    }
    for table, expected in ids.items():
        listed = found(f"select id, v from {table}")
        assert {row["id"]: row["v"] for row in listed} == expected, table


def test_incremental_range_selects_the_rows_of_its_commits(orders: lakemark.Table) -> None:
    *_, first, _ = (one.completed_at for one in orders.timeline.completed(Action.DELTA_COMMIT))
    later = f"select id from incremental('lake/orders', '{first}') order by id"
    assert [row["id"] for row in found(later)] == ["a", "d"]
    for end in (f"'{first}'", f"\"end\" => '{first}'"):
        earlier = f"select id from incremental('lake/orders', 'earliest', {end}) order by id"
        assert [row["id"] for row in found(earlier)] == ["a", "b", "c"]


def test_changes_are_filtered_and_joined_with_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = lakemark.create(
        "changes",
        schema=pa.schema([("id", pa.string()), ("v", pa.int64())]),
        record_key="id",
        cdc="data_before_after",
        table_type="copy_on_write",
    )
    table.upsert(pa.table({"id": ["a", "b"], "v": [1, 2]}))
    table.upsert(pa.table({"id": ["a"], "v": [3]}))
    text = (
        "select op, before::json->>'v' as old, t.v from cdc('changes', 'earliest') c "
        "join 'changes' t on t.id = after::json->>'id' where op = 'u'"
    )
    assert found(text) == [{"op": "u", "old": "1", "v": 3}]
    assert explain(text)[0].explanation is None


def test_several_tables_are_joined_in_one_state(orders: lakemark.Table) -> None:
    regions = lakemark.create(
        "lake/regions",
        schema=pa.schema([("name", pa.string()), ("boss", pa.string())]),
        record_key="name",
    )
    regions.upsert(pa.table({"name": ["north", "south"], "boss": ["Ann", "Bob"]}))
    text = (
        "with o as (select * from 'lake/orders' where v > 4) "
        "select boss, o.id, old.v from o join 'lake/regions' on region = regions.name "
        "left join read_optimized('lake/orders') old on old.id = o.id order by o.id"
    )
    assert found(text) == [
        {"boss": "Bob", "id": "b", "v": 5},
        {"boss": "Ann", "id": "d", "v": None},
    ]


def test_query_in_with_hides_a_table_with_its_name_only_outside_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "lake")
    text = "with orders as (select * from orders where v > 5) select id from Orders order by id"
    assert [row["id"] for row in found(text)] == ["c", "d"]
    recursive = (
        "with recursive orders as (select 1 as n union all select n + 1 from orders where n < 3) "
        "select count(*) as n from orders"
    )
    assert found(recursive) == [{"n": 3}]


def test_meta_columns_are_columns_only_if_the_query_names_one(orders: lakemark.Table) -> None:
    assert [*found("select * from 'lake/orders'")[0]] == ["id", "region", "ts", "v"]
    text = "select * exclude (_hoodie_file_name) from 'lake/orders' where _hoodie_record_key = 'b'"
    (row,) = found(text)
    assert (row["_hoodie_record_key"], row["_hoodie_partition_path"]) == ("b", "south")
    assert "_hoodie_file_name" not in row


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("select * from 'lake/orders' where id <> '_hoodie_file_name' -- _hoodie_file_name", 4),
        ("select *, 1 as \"_hoodie_file_name\" from 'lake/orders'", 5),
        ("select * exclude (_hoodie_file_name) from 'lake/orders'", 8),
        ("select * replace ('' as _hoodie_file_name) from 'lake/orders'", 9),
        ("select * rename (_hoodie_file_name as file) from 'lake/orders'", 9),
        ("select columns('^_hoodie') from 'lake/orders'", 5),
        ("select id from 'lake/orders' a join 'lake/orders' b using (id, _HOODIE_FILE_NAME)", 1),
    ],
)
def test_text_is_no_name_of_a_meta_column(text: str, count: int, orders: lakemark.Table) -> None:
    assert len(query(text).schema.names) == count


def test_names_of_columns_name_no_relation_of_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "lake")
    (name,) = query("select (select max(v) from orders)").schema.names
    assert name == '(SELECT max(v) FROM "snapshot of orders" AS orders)'


def test_paths_that_differ_by_case_are_two_tables(tmp_path: Path) -> None:
    for path, value in (("Orders", 1), ("orders", 2)):
        create(str(tmp_path / path)).upsert(rows(("a", "north", 1, value)))
    text = f"select a.v, b.v as w from '{tmp_path}/Orders' a, '{tmp_path}/orders' b"
    assert found(text) == [{"v": 1, "w": 2}]


def test_columns_and_conditions_are_pushed_down_to_each_table(orders: lakemark.Table) -> None:
    text = (
        "select a.id from 'lake/orders' a join 'lake/orders' b on a.region = b.region "
        "where a.region in ('south', 'west') and b.v > 6 and b.id like '%c%'"
    )
    conditions = {str(scan.condition): scan.columns for scan in explain(text)}
    by_region, by_value = sorted(conditions, key=lambda condition: '"south"' not in condition)
    assert len(conditions) == 2
    assert '"west"' in by_region
    assert "v > 6" not in by_region
    assert "v > 6" in by_value
    assert conditions == {by_region: ("id", "region"), by_value: ("id", "region")}


def test_query_by_key_opens_the_bucket_of_the_key(tmp_path: Path) -> None:
    table = create(str(tmp_path / "orders"), buckets=8)
    table.upsert(rows(*((f"k{n}", "north", 1, n) for n in range(64))))
    (scan,) = explain(f"select v from '{table.location}' where id = 'k3'")
    assert str(scan.explanation) == "reads 1 of 8 file groups; skips 7 by bucket"


class BytesRead(WrappedStorage):
    """Counts the bytes that are read from Parquet files, and lists the files."""

    def __init__(self, path: str) -> None:
        super().__init__(open_storage(StorageLocation(path)))
        self.bytes, self.files = 0, set[str]()

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        with self.inner.open(path) as stream:
            if not path.endswith(".parquet"):
                yield stream
                return
            self.files.add(path)
            yield cast("BinaryIO", _Counted(stream, self))


class _Counted(io.RawIOBase):
    def __init__(self, stream: BinaryIO, counts: BytesRead) -> None:
        self._stream, self._counts = stream, counts

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._counts.bytes += len(data)
        return data


def test_only_the_columns_and_row_groups_that_match_are_read(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), ("text", pa.string())])
    settings = lakemark.ParquetSettings(row_group_bytes=100_000, dictionary=False)
    path = str(tmp_path / "orders")
    table = lakemark.create(
        path,
        schema=schema,
        record_key="id",
        buckets=1,
        table_type="copy_on_write",
        base_files=settings,
    )
    count = 20_000
    texts = [random.Random(n).randbytes(100).hex() for n in range(count)]
    ids = [f"{n:08d}" for n in range(count)]
    table.bulk_insert(pa.table({"id": ids, "n": [*range(count)], "text": texts}), sort="global")

    def read_bytes(text: str) -> tuple[int, list[dict[str, object]]]:
        storage = BytesRead(path)
        opened = OpenTable(storage, read_properties(storage))
        listed = open_query(text, lambda _: opened).to_reader().read_all().to_pylist()
        assert len(storage.files) == 1
        return storage.bytes, listed

    whole, everything = read_bytes("select * from 'orders'")
    column, counted = read_bytes("select count(n) as n from 'orders'")
    few, one = read_bytes("select text from 'orders' where n between 9000 and 9002 and text <> ''")
    assert len(everything) == count
    assert counted == [{"n": count}]
    assert [row["text"] for row in one] == texts[9000:9003]
    assert column < whole / 3
    assert few < whole / 3


class Batches:
    """A source of many batches that counts how many were taken."""

    def __init__(self, count: int) -> None:
        self.count, self.taken, self.is_closed = count, 0, False

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("n", pa.int64())])

    def read(self, columns: Sequence[str], condition: pc.Expression | None) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def explain(self, condition: pc.Expression | None) -> Explanation | None:
        return None

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for _ in range(self.count):
                self.taken += 1
                yield pa.record_batch({"n": np.arange(100_000)})
        finally:
            self.is_closed = True


def open_batches(source: Batches, text: str) -> SqlQuery:
    with ExitStack() as resources:
        connection = open_connection(resources)
        relation = Relation(
            TableReference("batches", Snapshot()), source, Lock(), has_meta_columns=False
        )
        return SqlQuery(connection, text, {"batches": relation}, resources.pop_all())


def wait_until_closed(source: Batches) -> None:
    """Wait until nothing refers to the rows: the thread of the query forgets them when it runs."""

    def is_closed() -> bool:
        gc.collect()
        return source.is_closed

    until(is_closed, "the source of the query is closed")


def test_rows_are_read_while_the_result_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "usable_threads", lambda: 2)  # each thread reads ahead
    source = Batches(500)
    reader = open_batches(source, "select n + 1 as n from batches").to_reader()
    assert reader.read_next_batch().num_rows
    assert source.taken < 100
    reader.close()
    del reader
    wait_until_closed(source)


class InterruptedBatches(Batches):
    """Batches during which a user presses Ctrl-C. Those after it would take 20 s."""

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in super()._batches():
            if self.taken == 3:
                os.kill(os.getpid(), signal.SIGINT)
            if self.taken > 3:
                time.sleep(0.001)
            yield batch


@pytest.mark.parametrize("text", ["select count(n) from batches", "select n from batches"])
def test_ctrl_c_ends_a_query(text: str) -> None:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        source = InterruptedBatches(20_000)
        with pytest.raises(KeyboardInterrupt):
            for _ in open_batches(source, text).to_reader():
                pass
    finally:
        signal.signal(signal.SIGINT, previous)
    assert source.taken < source.count
    wait_until_closed(source)


def test_more_rows_than_memory_are_sorted_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(engine, "usable_memory_bytes", lambda: 0)
    monkeypatch.setattr(engine, "usable_threads", lambda: 32)
    monkeypatch.setattr(engine, "_MIN_MEMORY_BYTES", 64 << 20)
    source = Batches(20)
    text = "select n, repeat(n::varchar, 10) as t from batches order by t"
    total = sum(batch.num_rows for batch in open_batches(source, text).to_reader())
    assert total == 2_000_000
    gc.collect()
    assert [*tmp_path.iterdir()] == []


def test_error_of_a_table_is_raised_while_the_result_is_read(tmp_path: Path) -> None:
    create_orders(tmp_path / "orders")
    for file in (tmp_path / "orders" / "south").glob("*.parquet"):
        file.unlink()
    with pytest.raises(SnapshotChanged, match=r"south/.*\.parquet"):
        found(f"select max(v) from '{tmp_path}/orders'")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('IO Error: Could not write file "x": No space left on device', DiskFull),
        ("Out of Memory Error: limit set by the 'max_temp_directory_size' setting", DiskFull),
        ("Out of Memory Error: failed to allocate data", Refused),
        ("INTERNAL Error: assertion failed", pa.ArrowInvalid),
        ("Conversion Error: x", InvalidConfig),
    ],
)
def test_errors_of_duckdb_show_what_the_caller_may_do(
    message: str, expected: type[Exception]
) -> None:
    query_of_nothing = open_batches(Batches(0), "select n from batches")
    with pytest.raises(expected), query_of_nothing._typed_errors():
        raise pa.ArrowInvalid(message)


REFUSED = {
    "": "expected one query, not 0",
    "select 1; select 2": "expected one query, not 2",
    "select regoin from 'lake/orders'": 'column "regoin" not found',
    "select id from where": 'syntax error at or near "where", at character 16',
    "select * from incremental('lake/orders', 'earliest', end => 'x')": "in double quotes",
    "select * from lake/orders limit 3": "path of a table in single quotes: from 'lake/orders'",
    "select * from s3://lake/orders": "path of a table in single quotes",
    "select cast(id as int) from 'lake/orders'": "to INT32 when casting from source column id",
    "select id from 'lake/orders' join 'lake/orders' using (id)": "explicitly alias one of",
    "select * from lake.orders": "write the path of a table in quotes: 'lake/orders'",
    "select * from 'lake/orders' at (timestamp => '2026-01-01')": "write snapshot('lake/orders'",
    "select * from snapshot()": "snapshot(path[, as_of]): the path of the table is missing",
    "select * from snapshot('a', 'b', 'c')": "snapshot(path[, as_of]): it has no argument 3",
    "select * from snapshot('a', until => '1')": "it has no argument until",
    "select * from snapshot('a', path => 'b')": "path is given twice",
    "select * from snapshot('a', as_of => now())": "as_of is not a text",
    "select * from snapshot('lake/orders', 'noon')": "noon",
    "select * from incremental('lake/orders')": "incremental(path, begin[, end]): begin is missing",
    "select * from cdc('lake/orders', 'earliest')": "use an incremental query",
    "insert into 'lake/orders' select * from 'lake/orders'": "expected select",
    "delete from 'lake/orders'": "expected select",
    "create table t as select * from 'lake/orders'": "expected select",
    "copy 'lake/orders' to 'rows.csv'": "expected select",
    "attach 'x.db'": "expected select",
    "set threads = 1": "expected select",
    "pragma enable_verification": "expected select",
    "install httpfs": "expected select",
    "select * from read_csv('secret.csv')": "file system operations are disabled",
    "select * from read_text('secret.csv')": "file system operations are disabled",
    "select * from read_blob('secret.csv')": "file system operations are disabled",
    "select * from read_parquet('http://127.0.0.1:1/x')": "file system operations are disabled",
    "select * from glob('*')": "file system operations are disabled",
    "select * from query('from read_csv(''secret.csv'')')": "file system operations are disabled",
    "select * from query_table('secret.csv')": "file system operations are disabled",
    "select * from sniff_csv('secret.csv')": "file system operations are disabled",
}


@pytest.mark.parametrize("text", REFUSED)
def test_query_is_refused(text: str, orders: lakemark.Table) -> None:
    Path("secret.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidConfig) as refused:
        found(text)
    assert REFUSED[text] in str(refused.value), refused.value
    assert {path.name for path in Path().iterdir()} == {"lake", "secret.csv"}


def test_variables_of_the_program_are_not_tables(orders: lakemark.Table) -> None:
    secret = pa.table({"a": [1]})
    with pytest.raises(TableNotFound):
        found("select * from secret")
    with pytest.raises(InvalidConfig, match="secret"):
        found("select * from query('from secret')")
    assert secret.num_rows


def test_missing_table_and_table_without_commit_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TableNotFound, match="nowhere"):
        found("select * from 'nowhere'")
    create("new")
    assert found("select * from 'new'") == []


def test_missing_duckdb_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InvalidConfig, match=r"pip install '/path/to/lakemark\[sql\]'"):
        query("select 1")
