"""Every index tags a stored key with the file group that contains it, and with no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.parquet_settings import ParquetSettings
from lakemark.config.table_properties import TableType
from lakemark.errors import Refused
from lakemark.execution.runner import LocalRunner
from lakemark.index.index import NEW_KEY, Index
from lakemark.index.key_search import SearchedGroup
from lakemark.index.lookup import LookupIndex
from lakemark.index.record_level import PartitionedRecordLevelIndex
from lakemark.model.changes import ChangeKind
from lakemark.model.file_slice import BaseFile, FileSlice
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.lookup_assigner import searched_groups
from lakemark.operations.table_writer import TableWriter
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from tests.depth import examples
from tests.tables import INDEX, Row, commit, lookup_writer, make, writer

#: A file receives at most four keys, so that partitions have several file groups.
SIZING = ParquetSettings(max_file_bytes=4096, small_file_bytes=0)
REGIONS = ("north", "south")

#: Java orders the last two as UTF-16, and Arrow as UTF-8, the other way round.
KEYS = st.sampled_from(["a", "b", "cc", "d", "é", "ff", "k:1,n:2", "z", "\uffee", "\U0001f600"])
ROWS = st.lists(
    st.builds(Row, KEYS, st.just(1), st.integers(0, 9), st.sampled_from(REGIONS)), max_size=12
)


@dataclass(frozen=True)
class KeysInMemory:
    """The model: an index of the keys of each file group."""

    keys: Mapping[str, set[str]]

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """Return the first file group that contains a key."""
        ids = [group.readable.group.file_id for group in groups]
        return np.array(
            [
                next((n for n, name in enumerate(ids) if key in self.keys[name]), NEW_KEY)
                for key in record_keys.to_pylist()
            ],
            np.int32,
        )


def in_memory(to: TableWriter) -> Index:
    slices = to.table.view().latest_slices()
    return KeysInMemory({one.group.file_id: stored_keys(to, one) for one in slices})


def lookup(to: TableWriter) -> Index:
    return LookupIndex(open_reader(to), LocalRunner(2))


def lookup_without_footers(to: TableWriter) -> Index:
    """Remove the Bloom filters and key ranges, as if another writer had not written them."""
    for one in to.table.view().latest_slices():
        if one.base is not None:
            remove_footer(to.table.storage, one.base)
    return lookup(to)


def partitioned_record_index(to: TableWriter) -> Index:
    index = to.table.metadata_writer.record_index(to.table.timeline)
    assert index is not None and index.is_partitioned
    return PartitionedRecordLevelIndex(index, to.table.metadata_writer.refusal_of_record_index)


def hashed(to: TableWriter) -> Index:
    return INDEX


OpenIndex = Callable[[TableWriter], Index]
LOOKUPS: tuple[OpenIndex, ...] = (in_memory, lookup, lookup_without_footers)
OPENERS: tuple[OpenIndex, ...] = (*LOOKUPS, partitioned_record_index, hashed)
each_index = pytest.mark.parametrize("open_index", OPENERS, ids=lambda one: one.__name__)
each_lookup = pytest.mark.parametrize("open_index", LOOKUPS, ids=lambda one: one.__name__)


def remove_footer(storage: Storage, base: BaseFile) -> None:
    rows = pq.read_table(BytesIO(storage.read(base.path)))
    sink = BytesIO()
    pq.write_table(rows.replace_schema_metadata(None), sink, store_schema=False)
    storage.put(base.path, sink.getvalue())


def stored_keys(to: TableWriter, file_slice: FileSlice) -> set[str]:
    """Return all keys in the files of a slice, deleted ones included."""
    reader = open_reader(to)
    found = [*reader.read_changed_keys(file_slice)]
    base = FileSlice(file_slice.group, file_slice.base_instant, file_slice.base)
    found += [*reader.read(base)]
    return {key for rows in found for key in rows[RECORD_KEY].to_pylist()}


def open_reader(to: TableWriter) -> FileGroupReader:
    context = to.begin()
    to.cancel()
    return context.reader


def open_writer(open_index: OpenIndex, storage: Storage | None = None) -> TableWriter:
    if storage is None:
        storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))
        is_indexed = open_index is partitioned_record_index
        indexes = ["record_index"] if is_indexed else []
        make(storage, indexes=indexes, partitioned=is_indexed)
    return writer(storage) if open_index is hashed else lookup_writer(storage, SIZING)


@each_index
@settings(deadline=None, max_examples=examples(12))
@given(commits=st.lists(ROWS, min_size=1, max_size=4), others=st.lists(KEYS, max_size=4))
def test_stored_keys_are_tagged_with_their_file_group(
    open_index: OpenIndex, commits: list[list[Row]], others: list[str]
) -> None:
    to = open_writer(open_index)
    for rows in commits:
        if rows:
            commit(to, rows)
    index = open_index(to)
    for region in REGIONS:
        groups = searched_groups(to.table.view(), region)
        keys = [row.id for rows in commits for row in rows if row.region == region] + others
        tags = index.tag(groups, pa.array(keys, pa.string()), region)
        assert len(tags) == len(keys)
        stored = [stored_keys(to, group.readable) for group in groups]
        for key, tag in zip(keys, tags.tolist(), strict=True):
            holding = [n for n, some in enumerate(stored) if key in some]
            assert len(holding) <= 1, "the table stores no key twice"
            assert holding in ([], [tag])
            if open_index is not hashed:
                assert tag == (holding[0] if holding else NEW_KEY)


@each_index
def test_keys_are_new_in_a_partition_without_file_groups(open_index: OpenIndex) -> None:
    to = open_writer(open_index)
    commit(to, [Row("a", 1, 1)])
    keys = pa.chunked_array([["a", "b"], [], ["a"]], pa.string())
    assert open_index(to).tag([], keys, "west").tolist() == [NEW_KEY] * 3


@each_lookup
def test_deleted_key_belongs_to_its_file_group_until_a_compaction(open_index: OpenIndex) -> None:
    to = open_writer(open_index)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1)])
    commit(to, [Row("a", 2, kind=ChangeKind.DELETE)])
    keys = pa.array(["a", "b", "c"])
    found = open_index(to).tag(searched_groups(to.table.view(), "north"), keys, "north")
    assert found.tolist() == [0, 0, NEW_KEY]
    assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    found = open_index(to).tag(searched_groups(to.table.view(), "north"), keys, "north")
    assert found.tolist() == [NEW_KEY, 0, NEW_KEY]


@pytest.mark.parametrize("table_type", TableType)
def test_key_in_two_file_groups_is_refused_by_name(table_type: TableType) -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))
    make(storage, table_type)
    to = lookup_writer(storage)
    commit(to, [Row("a", 1, 1)])
    (group,) = searched_groups(to.table.view(), "north")
    index = lookup(to)
    with pytest.raises(Refused, match=r"'a' is in two file groups of partition 'north'"):
        index.tag([group, group], pa.array(["a"]), "north")
