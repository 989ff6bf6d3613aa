"""Rows of a batch whose key exists in another partition are found, for any kind of stored key."""

from __future__ import annotations

import json
from collections import UserDict, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.config.merge_settings import merge_settings
from lakemark.config.merger_name import MergerName
from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.index.key_search import SearchedGroup, find_keys_live_after, find_live_keys
from lakemark.index.partition_changes import deciding_columns, find_partition_changes
from lakemark.merge.custom import Records, VectorMerge, VectorMerger
from lakemark.model.changes import ChangeKind
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_columns
from lakemark.operations.create import create_table
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write_context import write_context
from lakemark.operations.writer_settings import WriterSettings
from lakemark.schema import avro
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation, open_storage
from lakemark.write.partitioner import Bucket
from tests.depth import examples
from tests.merging.written_table import WrittenTable, changes_of
from tests.tables import INDEX, SCHEMA, Row, changes, commit, make, spec, writer

KINDS = st.sampled_from([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.COMMIT_TIME_DELETE])
CHANGES = st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y", "z"]), KINDS)
BATCHES = st.lists(st.lists(CHANGES, min_size=1, max_size=6), min_size=1, max_size=4)
_DELETE, _UPSERT = ChangeKind.COMMIT_TIME_DELETE, ChangeKind.UPSERT
DELETED_FIRST = [[("c", "z", _DELETE), ("c", "x", _UPSERT), ("c", "z", _UPSERT)]]


class OldestStays(VectorMerger):
    """Keeps the first row of a key; a delete has no effect on it."""

    merging_strategy = "3d4ab1fc-52a5-4e0f-9e59-0e4f1a5f9f11"

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        return VectorMerge(older.rows, ~older.is_delete)


def _table(table_type: TableType = TableType.MERGE_ON_READ) -> TableWriter:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/lake"))
    make(storage, table_type)
    return writer(storage)


def _found(to: TableWriter, rows: list[Row], budget: int = 1 << 20) -> set[tuple[str, str]]:
    """Return key and partition of the partition changes in a batch; the table is not changed."""
    if to.table.schema is None:
        return set()
    sent = changes(rows)
    batch = sent.select(deciding_columns(sent.schema, merge_settings(to.table.properties)))
    numbers = INDEX.bucket_ids(batch.column(RECORD_KEY))
    text = json.dumps(avro.to_avro(with_meta_columns(to.schema), "orders"))
    merger_class, found = to.settings.merger_class, list[dict[str, object]]()
    context = write_context(to.table, "now", to.schema, text, merger_class=merger_class)
    for number in range(INDEX.bucket_count):
        part = batch.filter(pa.array(numbers == number))
        groups = to.assigner.assign_file_groups().groups_in(number)
        appends = to.table.properties.is_merge_on_read
        found += find_partition_changes(
            context.reader, groups, [part], budget, appends=appends
        ).to_pylist()
    return {(str(row[RECORD_KEY]), str(row[PARTITION_PATH])) for row in found}


def test_the_slices_of_all_buckets_are_found_in_one_pass() -> None:
    to = _table()
    commit(to, [Row(key, region=region) for key in "abcdef" for region in "xyz"])
    to.table.refresh()
    placed = to.assigner.assign_file_groups()

    class Counted(UserDict[Bucket, FileSlice]):
        passes = 0

        def __iter__(self) -> Iterator[Bucket]:
            Counted.passes += 1
            return super().__iter__()

    counted = replace(placed, slices=Counted(placed.slices))
    Counted.passes = 0
    found = [counted.groups_in(number) for number in range(INDEX.bucket_count)]
    readable = [group.readable for group in chain.from_iterable(found)]
    assert sorted(map(str, readable)) == sorted(map(str, placed.slices.values()))
    assert Counted.passes == 1


@settings(max_examples=examples(25), deadline=None)
@given(BATCHES, st.sampled_from(list(TableType)), st.booleans(), st.sampled_from([1, 1 << 20]))
@example(DELETED_FIRST, TableType.MERGE_ON_READ, False, 1)
def test_partition_changes_are_those_of_a_model(
    drawn: list[list[tuple[str, str, ChangeKind]]],
    table_type: TableType,
    compacts: bool,
    budget: int,
) -> None:
    to = _table(table_type)
    live: dict[str, set[str]] = defaultdict(set)
    commit(to, [Row("f", region="z"), Row("e", region="z")])
    live["f"].add("z")
    live["e"].add("z")
    for batch in drawn:
        rows = [Row(key, region=region, kind=kind) for key, region, kind in batch]
        to.table.refresh()
        assert _found(to, rows, budget) == _expected(live, rows)
        commit(to, rows)
        for row in rows:
            keep = live[row.id].add if row.kind is ChangeKind.UPSERT else live[row.id].discard
            keep(row.region)
        if compacts:
            to.compact_if_due(CompactionPolicy(after_commits=1), LocalRunner(1))


def _expected(live: dict[str, set[str]], rows: list[Row]) -> set[tuple[str, str]]:
    """Return the partition changes that the model finds.

    If a key exists in no other partition after the batch, the first of its new partitions is no
    partition change.
    """
    sent: dict[str, dict[str, bool]] = defaultdict(dict)
    upserted: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        sent[row.id][row.region] = row.kind is ChangeKind.UPSERT
        if row.kind is ChangeKind.UPSERT:
            upserted[row.id][row.region] = None
    found: set[tuple[str, str]] = set()
    for key, partitions in sent.items():
        held = live[key] if key in live else set()
        new = [p for p in upserted[key] if partitions[p] and p not in held]
        kept = [p for p in held if partitions.get(p, True)]
        found |= {(key, p) for p in (new if kept else new[1:])}
    return found


@pytest.mark.parametrize("table_type", list(TableType))
def test_deleted_row_in_another_partition_does_not_count(table_type: TableType) -> None:
    to = _table(table_type)
    commit(to, [Row("a", region="x"), Row("b", region="x")])
    commit(to, [Row("a", 1, region="x", kind=ChangeKind.DELETE)])
    to.table.refresh()
    assert _found(to, [Row("a", region="y"), Row("b", region="y")]) == {("b", "y")}


def test_row_that_moves_with_a_delete_in_the_batch_is_no_partition_change() -> None:
    to = _table()
    commit(to, [Row("a", region="x")])
    delete = Row("a", region="x", kind=ChangeKind.COMMIT_TIME_DELETE)
    assert _found(to, [delete, Row("a", region="y")]) == set()
    assert _found(to, [Row("a", region="y"), delete]) == set()


@pytest.mark.parametrize("table_type", list(TableType))
def test_delete_that_loses_by_its_ordering_value_does_not_free_the_key(
    table_type: TableType,
) -> None:
    to = _table(table_type)
    commit(to, [Row("a", 5, region="x")])
    late = Row("a", 4, region="x", kind=ChangeKind.DELETE)
    assert _found(to, [late, Row("a", 6, region="y")]) == {("a", "y")}
    timely = replace(late, ts=5)
    assert _found(to, [late, Row("a", 6, region="y"), timely]) == set()


def test_upsert_that_loses_to_a_remembered_delete_is_no_partition_change() -> None:
    to = _table()
    commit(to, [Row("a", 1, region="x"), Row("a", 1, region="y")])
    commit(to, [Row("a", 5, region="y", kind=ChangeKind.DELETE)])
    assert _found(to, [Row("a", 4, region="y")]) == set()
    assert _found(to, [Row("a", 5, region="y")]) == {("a", "y")}


def test_row_that_appears_after_a_pending_compaction_holds_its_key() -> None:
    to = _table()
    commit(to, [Row("a", 1, region="x")])
    commit(to, [Row("a", 5, region="x", kind=ChangeKind.DELETE)])
    assert to.compactions_to_do(CompactionPolicy(after_commits=1))
    commit(to, [Row("a", 4, region="x")])
    to.table.refresh()
    assert not to.table.scan(columns=["id"]).to_reader().read_all().num_rows
    assert _found(to, [Row("a", 6, region="y")]) == {("a", "y")}


@pytest.mark.parametrize("table_type", list(TableType))
def test_custom_merger_decides_whether_a_delete_frees_the_key(
    table_type: TableType, tmp_path: Path
) -> None:
    name = MergerName(f"{__name__}:OldestStays", OldestStays.merging_strategy)
    made = replace(spec(table_type), merge_mode=None, merger=name)
    table = create_table(StorageLocation(str(tmp_path / "lake")), made)
    table.mergers = (OldestStays(),)
    to = TableWriter(table, SCHEMA, WriterSettings(INDEX, merger_class=name.class_path))
    commit(to, [Row("a", region="x"), Row("b", region="x")])
    to.table.refresh()
    batch = [
        Row("a", 1, region="x", kind=ChangeKind.DELETE),
        Row("a", 1, region="y"),
        Row("c", 1, region="y", kind=ChangeKind.DELETE),
        Row("c", 1, region="y"),
        Row("c", 1, region="x"),
    ]
    assert _found(to, batch) == {("a", "y")}


def test_partial_update_keeps_the_key_and_a_delete_frees_it(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
    made = replace(spec(), partition_by=()).to_properties()
    table = WrittenTable.create(tmp_path / "lake", columns, made)
    table.upsert({"id": "a", "ts": 1, "v": 1})
    table.upsert_parts({"id": "a", "ts": 3})
    opened = table.open()
    (one,) = opened.view().latest_slices()
    reader, group = opened.scan().reader, SearchedGroup(one, one)
    assert find_live_keys(reader, group, pa.array(["a", "b"])).to_pylist() == ["a"]
    for moment, live in ((2, ["a"]), (3, [])):
        delete = changes_of(columns, [({"id": "a", "ts": moment}, ChangeKind.DELETE)])
        assert find_keys_live_after(reader, group, delete).to_pylist() == live


def test_update_of_a_key_that_is_in_two_partitions_already_is_no_partition_change() -> None:
    to = _table()
    commit(to, [Row("a", region="x"), Row("a", region="y")])
    assert _found(to, [Row("a", 1, region="x"), Row("a", 1, region="z")]) == {("a", "z")}


def test_keys_excluded_by_range_and_bloom_filter_are_not_read() -> None:
    to = _table()
    commit(to, [Row(key) for key in ("b", "d", "ü")])
    reader = to.table.scan().reader
    groups = [SearchedGroup(one, one) for one in to.table.view().latest_slices()]
    wanted = pa.array(["a", "b", "c", "e", "ü", "ä"])
    found = [key for one in groups for key in find_live_keys(reader, one, wanted).to_pylist()]
    assert sorted(found) == ["b", "ü"]
