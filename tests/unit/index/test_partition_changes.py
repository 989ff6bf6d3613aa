"""Rows of a batch whose key exists in another partition are found, whatever holds the key there."""

from __future__ import annotations

from collections import UserDict, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.hudi.table_writer import TableWriter
from table.config.table_properties import TableType
from table.execution.runner import LocalRunner
from table.index.key_search import live_keys
from table.index.partition_changes import DECIDING_COLUMNS, find_partition_changes
from table.model.changes import ChangeKind
from table.model.file_slice import FileSlice
from table.model.meta_columns import PARTITION_PATH, RECORD_KEY
from table.services.compaction import CompactionPolicy
from table.storage import StorageLocation, open_storage
from table.write.partitioner import Bucket
from tests.tables import INDEX, Row, changes, commit, make, writer

KINDS = st.sampled_from([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.COMMIT_TIME_DELETE])
CHANGES = st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y", "z"]), KINDS)
BATCHES = st.lists(st.lists(CHANGES, min_size=1, max_size=6), min_size=1, max_size=4)


def _table(table_type: TableType = TableType.MERGE_ON_READ) -> TableWriter:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/lake"))
    make(storage, table_type)
    return writer(storage)


def _found(to: TableWriter, rows: list[Row], budget: int = 1 << 20) -> set[tuple[str, str]]:
    """Key and partition of the changes that a batch holds; the table stays as it is."""
    if to.table.schema is None:
        return set()
    batch = changes(rows).select(DECIDING_COLUMNS)
    numbers = INDEX.bucket_ids(batch.column(RECORD_KEY))
    reader, found = to.table.scan().reader, []
    for number in range(INDEX.bucket_count):
        part = batch.filter(pa.array(numbers == number))
        slices = to.placement().slices_in(number)
        found += find_partition_changes(reader, slices, [part], budget).to_pylist()
    return {(row[RECORD_KEY], row[PARTITION_PATH]) for row in found}


def test_the_slices_of_all_buckets_are_found_in_one_pass() -> None:
    to = _table()
    commit(to, [Row(key, region=region) for key in "abcdef" for region in "xyz"])
    to.table.refresh()
    placed = to.placement()

    class Counted(UserDict[Bucket, FileSlice]):
        passes = 0

        def __iter__(self) -> Iterator[Bucket]:
            Counted.passes += 1
            return super().__iter__()

    counted = replace(placed, slices=Counted(placed.slices))
    Counted.passes = 0
    found = [counted.slices_in(number) for number in range(INDEX.bucket_count)]
    assert sorted(map(str, chain.from_iterable(found))) == sorted(map(str, placed.slices.values()))
    assert Counted.passes == 1


@settings(max_examples=25, deadline=None)
@given(BATCHES, st.sampled_from(list(TableType)), st.booleans(), st.sampled_from([1, 1 << 20]))
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
            to.compact_if_due(CompactionPolicy(every_delta_commits=1), LocalRunner(1))


def _expected(live: dict[str, set[str]], rows: list[Row]) -> set[tuple[str, str]]:
    sent: dict[str, dict[str, bool]] = defaultdict(dict)
    for row in rows:
        sent[row.id][row.region] = row.kind is ChangeKind.UPSERT
    found: set[tuple[str, str]] = set()
    for key, partitions in sent.items():
        held = live[key] if key in live else set()
        new = [p for p, is_live in partitions.items() if is_live and p not in held]
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


def test_update_of_a_key_that_is_in_two_partitions_already_is_no_partition_change() -> None:
    to = _table()
    commit(to, [Row("a", region="x"), Row("a", region="y")])
    assert _found(to, [Row("a", 1, region="x"), Row("a", 1, region="z")]) == {("a", "z")}


def test_keys_that_range_and_bloom_filter_rule_out_are_not_read() -> None:
    to = _table()
    commit(to, [Row(key) for key in ("b", "d", "ü")])
    reader = to.table.scan().reader
    slices = to.table.view().latest_slices()
    wanted = pa.array(["a", "b", "c", "e", "ü", "ä"])
    found = [key for one in slices for key in live_keys(reader, one, wanted).to_pylist()]
    assert sorted(found) == ["b", "ü"]
