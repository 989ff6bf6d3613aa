"""Every index tags a stored key with the file group that contains it, and with no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from lakemark.index.bucket import BucketIndex
from lakemark.index.hash_ring import FIRST_INSTANT
from lakemark.index.index import NEW_KEY, Index
from lakemark.index.key_search import SearchedGroup
from lakemark.index.lookup import LookupIndex
from lakemark.index.partition_buckets import config_path, load_partition_buckets
from lakemark.index.record_level import PartitionedRecordLevelIndex, RecordLevelIndex
from lakemark.index.stored_keys import StoredKeys
from lakemark.model.changes import ChangeKind
from lakemark.model.file_slice import BaseFile, FileSlice
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.hash_ring_assigner import HashRingAssigner
from lakemark.operations.lookup_assigner import searched_groups
from lakemark.operations.table_writer import TableWriter
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from tests.depth import examples
from tests.rings import FIRST_BUCKETS, SPLIT_ALL, ring_writer
from tests.tables import INDEX, Row, commit, lookup_writer, make, writer

#: A file receives at most four keys, so that partitions have several file groups.
SIZING = ParquetSettings(max_file_bytes=4096, small_file_bytes=0)
REGIONS = ("north", "south")

#: As Apache Hudi stores them: two buckets in the north, and three in the south.
COUNTS = {
    "rule": "regex",
    "version": 1,
    "defaultBucketNumber": 2,
    "instant": FIRST_INSTANT,
    "expressions": "south,3",
}

#: Java orders the last two as UTF-16, and Arrow as UTF-8, the other way round.
ALL_KEYS = ("a", "b", "cc", "d", "é", "ff", "k:1,n:2", "z", "\uffee", "\U0001f600")
KEYS = st.sampled_from(ALL_KEYS)
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


def record_index(to: TableWriter) -> Index:
    index = to.table.metadata_writer.record_index(to.table.timeline)
    assert index is not None and not index.is_partitioned
    return RecordLevelIndex.of(index, pa.array(ALL_KEYS))


def global_record_index(to: TableWriter) -> Index:
    found = record_index(to)
    assert isinstance(found, RecordLevelIndex)
    return found.stored_keys(searched_groups(to.table.view()))


def global_lookup(to: TableWriter) -> Index:
    groups = searched_groups(to.table.view())
    return StoredKeys.search(open_reader(to), groups, pa.array(ALL_KEYS), LocalRunner(2))


def hashed(to: TableWriter) -> Index:
    return INDEX


def hashed_by_partition(to: TableWriter) -> Index:
    assert to.settings.index is not None
    return OfPartitions(to.settings.index)


def consistent_hashing(to: TableWriter) -> Index:
    return Rings(to)


@dataclass(frozen=True)
class OfPartitions:
    """A bucket index whose partitions have different bucket counts."""

    index: BucketIndex

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """See ``Index.tag``."""
        return self.index.in_partition(partition_path).tag(groups, record_keys, partition_path)


@dataclass(frozen=True)
class Rings:
    """The file groups that hash rings give to changes."""

    writer: TableWriter

    def tag(
        self,
        groups: Sequence[SearchedGroup],
        record_keys: pa.Array | pa.ChunkedArray,
        partition_path: str,
    ) -> npt.NDArray[np.int32]:
        """See ``Index.tag``."""
        table = self.writer.table
        assigner = HashRingAssigner(
            table.storage, table.view(), table.timeline, ("id",), FIRST_BUCKETS
        )
        paths = pa.repeat(pa.scalar(partition_path), len(record_keys))
        assigned = assigner.assign(pa.table({RECORD_KEY: record_keys, PARTITION_PATH: paths}))
        slices = assigned.assignment.slices
        ids = [group.current.group for group in groups]
        known = {
            bucket.number: ids.index(one.group)
            for bucket, one in slices.items()
            if one.group in ids
        }
        return np.array([known.get(n, NEW_KEY) for n in assigned.numbers.tolist()], np.int32)


OpenIndex = Callable[[TableWriter], Index]
#: Lookups that find a key in each partition that has it.
LOOKUPS: tuple[OpenIndex, ...] = (in_memory, lookup, lookup_without_footers)
#: Indexes in whose tables a key has one row, in one partition.
GLOBAL: tuple[OpenIndex, ...] = (record_index, global_record_index, global_lookup)
RECORD_INDEXES = (partitioned_record_index, record_index, global_record_index)
#: Indexes that also tag new keys with a file group.
HASHED: tuple[OpenIndex, ...] = (hashed, hashed_by_partition, consistent_hashing)
OPENERS: tuple[OpenIndex, ...] = (*LOOKUPS, partitioned_record_index, *GLOBAL, *HASHED)
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
        indexes = ["record_index"] if open_index in RECORD_INDEXES else []
        is_partitioned = open_index is partitioned_record_index
        make(storage, indexes=indexes, partitioned=is_partitioned)
    if open_index is consistent_hashing:
        return ring_writer(storage)
    if open_index not in HASHED:
        return lookup_writer(storage, SIZING)
    to = writer(storage)
    if open_index is hashed_by_partition:
        storage.put(config_path(FIRST_INSTANT), json.dumps(COUNTS).encode())
        counts = load_partition_buckets(storage, to.table.timeline)
        to.settings = replace(to.settings, index=replace(INDEX, partitions=counts))
    return to


def home_of(key: str) -> str:
    """Return the only partition of a key, in a table with global keys."""
    return REGIONS[ALL_KEYS.index(key) % 2]


def placed(open_index: OpenIndex, rows: list[Row]) -> list[Row]:
    """Return rows that the table may have."""
    if open_index not in GLOBAL:
        return rows
    return [replace(row, region=home_of(row.id)) for row in rows]


@each_index
@settings(deadline=None, max_examples=examples(12))
@given(commits=st.lists(ROWS, min_size=1, max_size=4), others=st.lists(KEYS, max_size=4))
def test_stored_keys_are_tagged_with_their_file_group(
    open_index: OpenIndex, commits: list[list[Row]], others: list[str]
) -> None:
    to = open_writer(open_index)
    commits = [placed(open_index, rows) for rows in commits]
    for rows in commits:
        if rows:
            commit(to, rows)
    index = open_index(to)
    for region in REGIONS:
        groups = searched_groups(to.table.view(), region)
        keys = [row.id for rows in commits for row in rows if row.region == region]
        keys += [key for key in others if open_index not in GLOBAL or home_of(key) == region]
        tags = index.tag(groups, pa.array(keys, pa.string()), region)
        assert len(tags) == len(keys)
        stored = [stored_keys(to, group.readable) for group in groups]
        for key, tag in zip(keys, tags.tolist(), strict=True):
            holding = [n for n, some in enumerate(stored) if key in some]
            assert len(holding) <= 1, "the table stores no key twice"
            assert holding in ([], [tag])
            if open_index not in HASHED:
                assert tag == (holding[0] if holding else NEW_KEY)


@each_index
def test_keys_are_new_in_a_partition_without_file_groups(open_index: OpenIndex) -> None:
    to = open_writer(open_index)
    commit(to, [Row("a", 1, 1)])
    names = ["c", "d"] if open_index is record_index else ["a", "b"]  # "a" may not be elsewhere
    keys = pa.chunked_array([names, [], names[:1]], pa.string())
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


@pytest.mark.parametrize("open_index", GLOBAL, ids=lambda one: one.__name__)
def test_key_of_another_partition_is_refused_or_new(open_index: OpenIndex) -> None:
    to = open_writer(open_index)
    commit(to, [Row("a", 1, 1, "north"), Row("b", 1, 1, "south")])
    groups, keys = searched_groups(to.table.view(), "north"), pa.array(["a", "b", "z"])
    index = open_index(to)
    if open_index is record_index:  # without global keys, rows do not move
        with pytest.raises(Refused, match="'b'"):
            index.tag(groups, keys, "north")
    else:
        assert index.tag(groups, keys, "north").tolist() == [0, NEW_KEY, NEW_KEY]


def test_keys_of_a_split_bucket_are_tagged_with_its_parts() -> None:
    to = open_writer(consistent_hashing)
    commit(to, [Row(key, 1, 1) for key in ALL_KEYS])
    before = searched_groups(to.table.view(), "north")
    assert to.resize_if_due(SPLIT_ALL, LocalRunner(1))
    to = ring_writer(to.table.storage)
    groups = searched_groups(to.table.view(), "north")
    assert len(groups) > len(before)
    tags = consistent_hashing(to).tag(groups, pa.array(ALL_KEYS), "north").tolist()
    stored = [stored_keys(to, group.readable) for group in groups]
    assert all(key in stored[tag] for key, tag in zip(ALL_KEYS, tags, strict=True))


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
