"""A search of keys reads what the metadata table has about files, and few of the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lakemark
from lakemark.config.parquet_settings import ParquetSettings
from lakemark.execution.runner import LocalRunner
from lakemark.index.key_search import SearchedGroup
from lakemark.index.lookup import LookupIndex
from lakemark.index.stored_filters import KeysInOrder, StoredFilters, Wanted
from lakemark.index.stored_keys import StoredKeys
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.file_slice import BaseFile
from lakemark.operations.lookup_assigner import searched_groups
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import StorageLocation, open_storage
from tests.storages import CountingStorage
from tests.tables import Row, commit, lookup_writer, make

FILES = 20
#: Each commit creates one file of at most four rows.
SIZING = ParquetSettings(max_file_bytes=4096, small_file_bytes=0)


def written(*indexes: str, in_order: bool) -> TableWriter:
    """Write files with three keys each, whose ranges are distinct or all the same."""
    storage = CountingStorage(open_storage(StorageLocation(f"memory://{uuid4().hex}/t")))
    make(storage, indexes=indexes)
    to = lookup_writer(storage, SIZING)
    for number in range(FILES):
        of_file = [f"k{number:02d}{n}" for n in "abc"] if in_order else spread(number)
        commit(to, [Row(key, 1, 1) for key in of_file])
    return to


def spread(number: int) -> list[str]:
    return [f"a{number:02d}", f"k{number:02d}", f"z{number:02d}"]


def filters_of(to: TableWriter, *, min_files: int = 2) -> StoredFilters:
    return StoredFilters(to.table.snapshot.metadata_with, min_files, 1_000)


def searched(to: TableWriter, keys: Sequence[str], filters: StoredFilters | None) -> set[str]:
    """Search keys, and return the data files that were opened, after a check of the result."""
    storage = to.table.storage
    assert isinstance(storage, CountingStorage)
    reader = to.begin().reader
    to.cancel()
    groups = searched_groups(to.table.view(), "north")
    wanted = pa.array(keys)
    expected = LookupIndex(reader, LocalRunner(1)).tag(groups, wanted, "north")
    storage.forget()
    found = LookupIndex(reader, LocalRunner(1), filters).tag(groups, wanted, "north")
    assert found.tolist() == expected.tolist()
    return {one.path for one in storage.requests if one.path.endswith(".parquet")}


def test_only_files_whose_range_has_a_key_are_opened() -> None:
    to = written(in_order=True)
    keys = ["k07a", "k11b", "k11c", "k99"]
    assert len(searched(to, keys, None)) == FILES
    assert len(searched(to, keys, filters_of(to))) == 2


def test_only_files_whose_filter_has_a_key_are_opened() -> None:
    to = written("bloom_filters", in_order=False)
    keys = ["k07", "z07", "m99", "zz"]
    assert len(searched(to, keys, filters_of(to))) == 1
    assert not searched(to, ["m99"], filters_of(to))


def test_without_filters_in_the_metadata_table_footers_are_read() -> None:
    to = written(in_order=False)
    assert len(searched(to, ["k07", "m99"], filters_of(to))) == FILES


def test_few_files_are_searched_without_the_metadata_table() -> None:
    to = written("bloom_filters", in_order=True)
    filters = filters_of(to, min_files=FILES + 1)
    assert len(searched(to, ["k07a"], filters)) == FILES


def test_files_that_the_metadata_table_lacks_are_left_to_their_footers() -> None:
    to = written("bloom_filters", in_order=True)
    old = lookup_writer(to.table.storage, SIZING)
    assert old.table.snapshot.metadata_with(PartitionKind.BLOOM_FILTERS) is not None
    commit(to, [Row("new", 1, 1)])
    opened = searched(to, ["new", "k07a", "x"], filters_of(old))
    names = {
        one.readable.base.path for one in searched_groups(to.table.view()) if one.readable.base
    }
    assert opened < names
    assert len(opened) == 2, "the file of k07a, and the new file, whose range is not known"


def test_later_commits_in_the_metadata_table_do_no_harm() -> None:
    """A writer that began before the commit of another one reads the filters of both."""
    to = written("bloom_filters", in_order=True)
    reader = to.begin().reader
    to.cancel()
    groups = searched_groups(to.table.view(), "north")
    other = lookup_writer(to.table.storage, SIZING)
    for _ in range(12):  # until the metadata table is compacted
        commit(other, [Row("k07a", 2, 2)])
    for kind in (PartitionKind.COLUMN_STATS, PartitionKind.BLOOM_FILTERS):
        assert to.table.snapshot.metadata_with(kind) is not None
    filters = filters_of(to)
    found = LookupIndex(reader, LocalRunner(1), filters).tag(groups, pa.array(["k07a"]), "north")
    expected = LookupIndex(reader, LocalRunner(1)).tag(groups, pa.array(["k07a"]), "north")
    assert found.tolist() == expected.tolist()


def test_keys_of_the_whole_table_are_searched_in_all_partitions() -> None:
    storage = CountingStorage(open_storage(StorageLocation("memory://filters/all")))
    make(storage, indexes=["bloom_filters"])
    to = lookup_writer(storage, SIZING)
    for number in range(8):
        region = ("north", "süd ost", "a=b")[number % 3]
        commit(to, [Row(key, 1, 1, region) for key in spread(number)])
    reader = to.begin().reader
    to.cancel()
    groups: list[SearchedGroup] = searched_groups(to.table.view())
    keys = pa.array(["k01", "z05", "m"])
    storage.forget()
    found = StoredKeys.search(reader, groups, keys, LocalRunner(1), filters_of(to))
    opened = {one.path for one in storage.requests if one.path.endswith(".parquet")}
    assert len(opened) == 2
    assert sorted(found.keys.to_pylist()) == ["k01", "z05"]
    assert {groups[n].partition_path for n in found.numbers} == {"süd ost", "a=b"}


def test_query_by_key_reads_ranges_before_filters(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.string())])
    table = lakemark.create(
        tmp_path / "t", schema=schema, record_key=["id", "n"], index="lookup", only_writer=True
    )
    for number in range(6):
        ids = [f"{number}{n}" for n in "abc"]
        table.bulk_insert(pa.table({"id": ids, "n": ids}, schema=schema))
    table.create_index("bloom_filters")
    explanation = lakemark.open(tmp_path / "t").explain(where="_hoodie_record_key = 'id:3b,n:3b'")
    assert len(explanation.read) == 1


#: U+FFEE sorts before U+1F600 in bytes, and after it in Java.
TEXTS = st.text("ab\uffee\U0001f600", min_size=1, max_size=3)


@example(stored=["a", "a\uffee", "b"], others=["c"], as_in_java=True)
@given(stored=st.lists(TEXTS, min_size=1), others=st.lists(TEXTS), as_in_java=st.booleans())
def test_keys_within_a_range_are_kept(
    stored: list[str], others: list[str], as_in_java: bool
) -> None:
    order = (lambda one: one.encode("utf-16-be")) if as_in_java else str.encode
    low, high = min(stored, key=order), max(stored, key=order)
    keys = sorted({*stored, *others})
    kept = KeysInOrder.of(pa.array(keys, pa.string())).within(low, high).to_pylist()
    assert len({*kept}) == len(kept)
    assert {*stored} <= {*kept} <= {*keys}
    if all(one.isascii() for one in keys):
        assert sorted(kept) == [key for key in keys if low <= key <= high]


@pytest.mark.parametrize("count", [0, 1])
def test_no_file_and_no_key_need_no_metadata_table(count: int) -> None:
    def refuse(kind: PartitionKind) -> None:
        raise AssertionError(kind)

    filters = StoredFilters(refuse, 1, 1)
    nothing = pc.cast(pa.array([], pa.string()), pa.string())
    files: list[BaseFile] = []
    if count == 0:
        assert filters.narrow(files, pa.array(["a"])) == []
    else:
        to = written(in_order=True)
        group = searched_groups(to.table.view(), "north")[0]
        assert group.readable.base is not None
        assert filters.narrow([group.readable.base], nothing) == [Wanted(nothing)]
