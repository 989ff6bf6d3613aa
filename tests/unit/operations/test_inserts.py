"""Inserts and bulk inserts of a Python program, in tables with buckets and with a lookup index."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.codec.bloom import BLOOM_FILTER
from lakemark.config.parquet_settings import ParquetSettings
from lakemark.model.commit_metadata import Operation
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.open_table import open_table
from lakemark.operations.write import RowWriter
from lakemark.storage import StorageLocation
from lakemark.write.sorted_runs import SortedRuns, SortMode
from tests.depth import examples
from tests.golden.golden_table import unpack
from tests.unit.operations.tables import (
    FAST,
    SCHEMA,
    contents,
    files,
    instants,
    operations,
    reopen,
    rows,
)

TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
INDEXES = ("lookup", "bucket")
VERSIONS = (6, 8, 9)

each_type = pytest.mark.parametrize("table_type", TYPES)
each_index = pytest.mark.parametrize("index", INDEXES)
each_version = pytest.mark.parametrize("version", VERSIONS)

Row = tuple[str, str, int, int]


def new_table(index: str, table_type: str = "MERGE_ON_READ", version: int = 9) -> lakemark.Table:
    return lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["region"],
        ordering=["ts"],
        table_type=table_type,
        version=version,
        index=index,
        multi_writer=FAST,
    )


def stored(table: lakemark.Table) -> list[Row]:
    """Read all rows, as a new process would; a key may be there twice."""
    found = reopen(table.location).snapshot(SCHEMA.names).read_all().to_pylist()
    return sorted((row["id"], row["region"], row["ts"], row["v"]) for row in found)


def region_of(key: str) -> str:
    return ("north", "south")[ord(key) % 2]


@pytest.mark.parametrize(
    ("index", "table_type"),
    [
        *((index, table_type) for index in INDEXES for table_type in TYPES),
        ("consistent_hashing", "MERGE_ON_READ"),
    ],
)
@each_version
@settings(deadline=None, max_examples=examples(4))
@given(data=st.data())
def test_any_sequence_of_writes_leaves_the_rows_of_the_model(
    index: str, table_type: str, version: int, data: st.DataObject
) -> None:
    table, model = new_table(index, table_type, version), dict[str, tuple[str, int, int]]()
    keys = st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=6)
    acts = ["insert", "drop", "fail", "bulk_insert", "upsert", "delete", "compact"]
    for ts in range(data.draw(st.integers(1, 6))):
        act = data.draw(st.sampled_from(acts))
        chosen = data.draw(keys)
        if index == "lookup" and act in ("insert", "bulk_insert"):
            chosen = sorted({*chosen} - {*model})  # each key once, as the user must ensure
        written = {key: (region_of(key), ts, n) for n, key in enumerate(chosen)}
        batch = rows(*((key, region_of(key), ts, n) for n, key in enumerate(chosen)))
        if act == "delete":
            table.delete(chosen)
            model = {key: row for key, row in model.items() if key not in chosen}
        elif act == "compact":
            if table_type == "MERGE_ON_READ":
                table.compact()
        elif act == "drop":
            result = table.insert(batch, duplicates="drop")
            assert result.skipped == sum(key in model for key in chosen)
            assert result.inserts == len(chosen) - result.skipped
            model = {**written, **model}
        elif act == "fail":
            if len(written) < len(chosen) or {*written} & {*model}:
                with pytest.raises(lakemark.InvalidRecords, match="nothing was written"):
                    table.insert(batch, duplicates="fail")
            else:
                table.insert(batch, duplicates="fail")
                model |= written
        else:
            if act == "bulk_insert":
                sort = data.draw(st.sampled_from(SortMode))
                table.bulk_insert(batch.to_batches(max_chunksize=2), sort=sort)
            else:
                getattr(table, act)(batch)
            model |= written
        assert contents(table) == model, act
    assert table.metadata_differences() == []


@each_type
@each_version
def test_insert_stores_a_key_twice_if_keys_are_looked_up(table_type: str, version: int) -> None:
    table = new_table("lookup", table_type, version)
    table.insert(rows(("a", "north", 1, 1), ("a", "north", 1, 2)))
    result = table.insert(rows(("a", "north", 2, 3), ("b", "north", 2, 3)))
    assert (result.inserts, result.skipped, result.upserts) == (2, 0, 0)
    assert len(files(table)) == 1, "the small file received the rows"
    assert operations(table)[1:] == ["INSERT", "INSERT"]
    both = [("a", "north", 1, 1), ("a", "north", 1, 2), ("a", "north", 2, 3), ("b", "north", 2, 3)]
    assert stored(table) == both
    assert table.metadata_differences() == []
    table.upsert(rows(("a", "north", 3, 4)))
    assert stored(table) == [("a", "north", 3, 4)] * 3 + [("b", "north", 2, 3)]


@each_type
@each_version
def test_rows_of_a_key_that_several_file_groups_store_are_deleted(
    table_type: str, version: int
) -> None:
    table = new_table("lookup", table_type, version)
    table.bulk_insert(rows(("a", "north", 1, 1), ("a", "south", 1, 1), ("b", "north", 1, 1)))
    table.bulk_insert(rows(("a", "north", 2, 2)))
    with pytest.raises(lakemark.Refused, match=r"delete the rows .*Table\.delete"):
        table.upsert(rows(("a", "north", 3, 3)))
    table.delete(where="id = 'a' and v = 1 and region = 'north'")
    others = [("a", "south", 1, 1), ("b", "north", 1, 1)]
    assert stored(table) == [("a", "north", 2, 2), *others]
    table.bulk_insert(rows(("a", "north", 4, 4)))
    assert table.delete(["a"]).deletes == 3
    assert stored(table) == others[1:]
    table.upsert(rows(("a", "north", 5, 5)))
    assert stored(table) == [("a", "north", 5, 5), *others[1:]]


@each_type
def test_only_all_rows_of_a_key_in_one_file_are_deleted(table_type: str) -> None:
    table = new_table("lookup", table_type)
    twice = [("a", "north", 1, 1), ("a", "north", 1, 2)]
    table.bulk_insert(rows(*twice, ("b", "north", 1, 1)))
    table.bulk_insert(rows(("a", "north", 1, 3), ("a", "south", 1, 3)))
    with pytest.raises(lakemark.Refused, match=r"1 keys, such as 'a', .* choose all rows"):
        table.delete(where="id = 'a' and v >= 2")
    assert len(stored(table)) == 5
    assert table.delete(where="v = 3").deletes == 2, "these are the only rows in their files"
    assert stored(table) == [*twice, ("b", "north", 1, 1)]
    assert table.delete(where="id = 'a'").deletes == 2
    assert stored(table) == [("b", "north", 1, 1)]


@each_type
def test_insert_merges_a_stored_key_in_a_table_with_buckets(table_type: str) -> None:
    table = new_table("bucket", table_type)
    table.insert(rows(("a", "north", 1, 1), ("a", "north", 2, 2)))
    table.insert(rows(("a", "north", 1, 3)))
    assert stored(table) == [("a", "north", 2, 2)]
    table.bulk_insert(rows(("a", "north", 3, 4), ("b", "north", 3, 4)))
    assert stored(table) == [("a", "north", 3, 4), ("b", "north", 3, 4)]
    assert operations(table)[1:] == ["INSERT", "INSERT", "BULK_INSERT"]


@each_index
def test_rejected_duplicates_leave_no_instant(index: str) -> None:
    table = new_table(index)
    table.insert(rows(("a", "north", 1, 1)), duplicates="fail")
    before = instants(table)
    with pytest.raises(lakemark.InvalidRecords, match=r"1 of 2 rows have record keys.* 'a'; noth"):
        table.insert(rows(("a", "north", 2, 2), ("b", "north", 2, 2)), duplicates="fail")
    with pytest.raises(lakemark.InvalidRecords, match=r"several of the rows .* record key 'b'"):
        table.insert(rows(("b", "north", 2, 2), ("b", "north", 2, 3)), duplicates="fail")
    skipped = table.insert(rows(("a", "north", 2, 2)), duplicates="drop")
    assert (skipped.instant, skipped.inserts, skipped.skipped) == (None, 0, 1)
    assert instants(table) == before
    assert not reopen(table.location).timeline.pending()
    with pytest.raises(lakemark.InvalidConfig, match="duplicates is 'none'; choose one of 'allow'"):
        table.insert(rows(("c", "north", 2, 2)), duplicates="none")


def test_same_key_in_another_partition_is_no_duplicate() -> None:
    table = new_table("lookup")
    table.insert(rows(("a", "north", 1, 1)))
    assert table.insert(rows(("a", "south", 1, 2)), duplicates="fail").inserts == 1


@each_index
def test_deletes_are_refused(index: str) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = lakemark.create(
        f"memory://{uuid4().hex}/t", schema=schema, record_key="id", index=index, multi_writer=FAST
    )
    marked = pa.Table.from_pylist([{"id": "a", "_hoodie_is_deleted": True}], schema)
    for write in (table.insert, table.bulk_insert):
        with pytest.raises(lakemark.InvalidRecords, match="marked as deleted"):
            write(marked)
    assert not reopen(table.location).timeline.pending()


@each_type
@each_version
@pytest.mark.parametrize("sort", SortMode)
def test_bulk_insert_writes_base_files_in_the_order_of_the_sort_mode(
    table_type: str, version: int, sort: SortMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of a few rows, and files of 8 KB, so that there are several of each."""
    monkeypatch.setattr("lakemark.operations.write.SortedRuns", partial(SortedRuns, run_bytes=9000))
    table = new_table("lookup", table_type, version)
    drawn = random.Random(7)
    keys = [f"k{n:05d}" for n in range(3000)]
    drawn.shuffle(keys)
    made = [(key, ("north", "south")[n % 2], 1, n) for n, key in enumerate(keys)]
    writer = RowWriter(table._table)
    table._table.base_files = ParquetSettings(max_file_bytes=8000)
    result = writer.bulk_insert(rows(*made).to_batches(max_chunksize=100), sort)
    assert result.inserts == 3000
    paths = files(table)
    assert all(path.endswith(".parquet") for path in paths)
    assert result.files == len(paths) >= 4
    assert stored(table) == sorted(made)
    assert table.metadata_differences() == []
    storage = table._table.storage
    order = {key: n for n, key in enumerate(keys)}
    contents_of = [
        pq.read_table(pa.BufferReader(storage.read(path)))["_hoodie_record_key"].to_pylist()
        for path in paths
    ]
    if sort is SortMode.NONE:
        assert all(found == sorted(found, key=order.__getitem__) for found in contents_of)
    elif sort is SortMode.GLOBAL:
        assert all(found == sorted(found) for found in contents_of)
        for region in ("north", "south"):
            some = [f for p, f in zip(paths, contents_of, strict=True) if p.startswith(region)]
            some.sort()
            assert all(one[-1] < other[0] for one, other in pairwise(some))
    table.upsert(rows(*((key, region, 2, v) for key, region, _, v in made[:50])))
    assert stored(table) == sorted([(k, r, 2, v) for k, r, _, v in made[:50]] + made[50:])


def test_files_of_a_bulk_insert_have_about_the_target_size() -> None:
    """Rows of random text, which hardly shrink, and a column that shrinks to nothing."""
    schema = pa.schema({"id": pa.string(), "text": pa.string(), "zeros": pa.binary()})
    drawn, wide = random.Random(3), 60_000

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, wide, 5000):
            columns = {
                "id": [f"{n:08d}" for n in range(start, start + 5000)],
                "text": [f"{drawn.getrandbits(400):x}" for _ in range(5000)],
                "zeros": [bytes(100)] * 5000,
            }
            yield pa.RecordBatch.from_pydict(columns, schema)

    target = 1_000_000
    table = lakemark.create(
        f"memory://{uuid4().hex}/t",
        schema=schema,
        record_key="id",
        index="lookup",
        base_files=ParquetSettings(row_group_bytes=1 << 20, max_file_bytes=target),
    )
    table.bulk_insert(batches())
    opened = open_table(StorageLocation(table.location))
    sizes = [one.base.size_bytes for one in opened.view().latest_slices() if one.base]
    assert len(sizes) >= 4
    assert sum(0.9 * target < size < 1.15 * target for size in sizes) >= len(sizes) - 1
    assert opened.scan().to_table().num_rows == wide


@each_index
def test_bulk_insert_reads_batches_one_after_the_other_and_writes_none_if_one_is_wrong(
    index: str,
) -> None:
    table = new_table(index)
    read = []

    def batches(last: str | None) -> Iterator[pa.RecordBatch]:
        for n, key in enumerate(("a", "b", last)):
            read.append(key)
            columns = {"id": [key], "region": ["north"], "ts": [1], "v": [n]}
            yield pa.RecordBatch.from_pydict(columns, SCHEMA)

    before = instants(table)
    with pytest.raises(lakemark.InvalidRecords, match=r"record key \(id\) is null"):
        table.bulk_insert(batches(None))
    assert instants(table) == before
    assert not reopen(table.location).timeline.pending()
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches("c"))
    assert table.bulk_insert(reader).inserts == 3
    assert contents(table) == {key: ("north", 1, n) for n, key in enumerate("abc")}
    assert read == ["a", "b", None, "a", "b", "c"]


@each_index
def test_bulk_insert_of_nothing_commits_nothing(index: str) -> None:
    table = new_table(index)
    before = instants(table)
    empty: list[pa.RecordBatch] = []
    for nothing in (empty, SCHEMA.empty_table(), rows().to_reader()):
        assert table.bulk_insert(nothing) == lakemark.WriteResult()
    assert table.insert(rows()).instant is None
    assert instants(table) == before


@each_index
def test_columns_are_added(index: str) -> None:
    table = new_table(index)
    wider = SCHEMA.append(pa.field("note", pa.string()))
    made = pa.Table.from_pylist([{"id": "a", "region": "north", "ts": 1, "note": "x"}], wider)
    for write in (table.insert, table.bulk_insert):
        with pytest.raises(lakemark.InvalidConfig, match="has no column 'note'"):
            write(made)
    table.insert(made, add_columns=True)
    widest = wider.append(pa.field("n", pa.int64()))
    more = pa.Table.from_pylist([{"id": "b", "region": "north", "ts": 1, "n": 7}], widest)
    table.bulk_insert(more.to_batches(), add_columns=True)
    found = reopen(table.location).snapshot(["id", "note", "n"]).read_all().sort_by("id")
    assert found.to_pylist() == [
        {"id": "a", "note": "x", "n": None},
        {"id": "b", "note": None, "n": 7},
    ]


def test_column_of_another_writer_is_kept_by_an_open_writer() -> None:
    table = new_table("lookup")
    table.bulk_insert(rows(("a", "north", 1, 1)))
    wider = SCHEMA.append(pa.field("note", pa.string()))
    made = pa.Table.from_pylist([{"id": "b", "region": "north", "ts": 1, "note": "x"}], wider)
    reopen(table.location).upsert(made, add_columns=True)
    table.bulk_insert(made.set_column(0, "id", pa.array(["c"])))
    assert table.snapshot(["note"]).read_all()["note"].null_count == 1


def test_bulk_insert_is_not_written_again_because_of_other_new_keys() -> None:
    table = new_table("lookup")

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(("a", "north", 1, 1)).to_batches()

    other = reopen(table.location)
    writer = RowWriter(table._table)
    began: list[str] = []
    begin = writer._writer.begin

    def begin_and_be_overtaken(operation: Operation) -> object:
        context = begin(operation)
        began.append(context.instant)
        if len(began) <= 2:
            other.upsert(rows((f"b{len(began)}", "north", 1, 1)))
        return context

    writer._writer.begin = begin_and_be_overtaken  # type: ignore[method-assign, assignment]
    writer.bulk_insert(batches())
    assert len(began) == 1
    assert sorted(contents(table)) == ["a", "b1"]
    writer.upsert(rows(("c", "north", 1, 1)))
    assert len(began) == 3, "the upsert was written again"
    assert sorted(contents(table)) == ["a", "b1", "b2", "c"]


def test_upsert_that_a_bulk_insert_overtakes_finds_its_keys() -> None:
    table = new_table("lookup")
    other = reopen(table.location)
    writer = RowWriter(table._table)
    begin = writer._writer.begin
    overtaken: list[lakemark.WriteResult] = []

    def begin_and_be_overtaken(operation: Operation) -> object:
        context = begin(operation)
        if not overtaken:
            overtaken.append(other.bulk_insert(rows(("a", "north", 1, 1))))
        return context

    writer._writer.begin = begin_and_be_overtaken  # type: ignore[method-assign, assignment]
    writer.upsert(rows(("a", "north", 2, 2)))
    assert contents(table) == {"a": ("north", 2, 2)}


@each_version
def test_new_table_with_a_lookup_index_keeps_it(version: int) -> None:
    table = new_table("lookup", version=version)
    with pytest.raises(lakemark.InvalidConfig, match="as its commits show, so buckets=2 has no"):
        lakemark.open(table.location, buckets=2).upsert(rows(("a", "north", 1, 1)))
    reopen(table.location).upsert(rows(("a", "north", 1, 1)))
    (path,) = files(table)
    assert not path.rpartition("/")[2][:8].isdigit()
    reopen(table.location).upsert(rows(("a", "north", 2, 2), ("b", "north", 2, 2)))
    assert contents(table) == {"a": ("north", 2, 2), "b": ("north", 2, 2)}


def test_indexes_that_make_no_sense_are_refused() -> None:
    settings = {"schema": SCHEMA, "record_key": "id", "multi_writer": FAST}
    with pytest.raises(lakemark.InvalidConfig, match="index is 'bloom'; choose one of 'bucket'"):
        lakemark.create(f"memory://{uuid4().hex}/t", index="bloom", **settings)
    with pytest.raises(lakemark.InvalidConfig, match="index='lookup' has no buckets; leave"):
        lakemark.create(f"memory://{uuid4().hex}/t", index="lookup", buckets=8, **settings)


@each_type
def test_statistics_and_bloom_filters_of_a_bulk_insert_skip_its_files(table_type: str) -> None:
    table = new_table("lookup", table_type)
    table.bulk_insert(rows(*((f"k{n}", "north", 1, n) for n in range(9))), sort="global")
    table.bulk_insert(rows(*((f"k{n}", "north", 1, n) for n in range(100, 109))), sort="global")
    explained = table.explain(where="v >= 100")
    assert (len(explained.read), len(explained.skipped)) == (1, 1)
    (path, *_) = files(table)
    footer = pq.read_metadata(pa.BufferReader(table._table.storage.read(path))).metadata
    assert BLOOM_FILTER.encode() in footer
    assert pc.max(table.snapshot(["v"]).read_all()["v"]).as_py() == 108


def test_inserts_are_refused_where_keys_are_unique_in_the_whole_table() -> None:
    created = new_table("lookup")
    created.upsert(rows(("a", "north", 1, 1)))
    table = lakemark.open(created.location, partition_change="move", multi_writer=FAST)
    for insert in (table.insert, partial(table.insert, duplicates="drop"), table.bulk_insert):
        with pytest.raises(lakemark.Unsupported, match="unique in the whole table; use upsert"):
            insert(rows(("a", "south", 2, 2)))
    table.upsert(rows(("a", "south", 2, 2)))
    assert stored(table) == [("a", "south", 2, 2)]


def test_inserts_without_a_search_are_refused_with_a_record_index(tmp_path: Path) -> None:
    golden = unpack("v9_mor_recordindex", tmp_path)
    table = lakemark.open(golden.root)
    before = table.snapshot().read_all()
    new = before.slice(0, 1).select(without_meta_columns(before.schema).names)
    for insert in (table.insert, table.bulk_insert):
        with pytest.raises(lakemark.Unsupported, match=r"record index, .* duplicates='drop'"):
            insert(new)
    result = table.insert(new, duplicates="drop")
    assert (result.inserts, result.skipped) == (0, 1)
    assert table.snapshot().read_all().num_rows == before.num_rows
