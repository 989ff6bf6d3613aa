"""Every index assigns a change of a stored key to the file group that contains the key."""

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
from lakemark.errors import Refused, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.index.hash_ring import FIRST_INSTANT
from lakemark.index.key_lookup import NEW_KEY
from lakemark.index.key_search import SearchedGroup
from lakemark.index.lookup import LookupIndex
from lakemark.index.partition_buckets import config_path, load_partition_buckets
from lakemark.index.stored_filters import StoredFilters
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.bucket_assigner import BucketAssigner
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.operations.hash_ring_assigner import HashRingAssigner
from lakemark.operations.index import Index
from lakemark.operations.lookup_assigner import LookupAssigner, searched_groups
from lakemark.operations.table_writer import TableWriter
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.write.partitioner import Bucket
from lakemark.write.write_context import WriteContext
from tests.depth import examples
from tests.rings import SPLIT_ALL, ring_writer
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

CHANGES = pa.schema([(RECORD_KEY, pa.string()), (PARTITION_PATH, pa.string()), CHANGE_KIND_FIELD])

#: Java orders the last two as UTF-16, and Arrow as UTF-8, the other way round.
ALL_KEYS = ("a", "b", "cc", "d", "é", "ff", "k:1,n:2", "z", "\uffee", "\U0001f600")
KEYS = st.sampled_from(ALL_KEYS)
ROWS = st.lists(
    st.builds(Row, KEYS, st.just(1), st.integers(0, 9), st.sampled_from(REGIONS)), max_size=12
)


@dataclass(frozen=True)
class KeysInMemory:
    """The model: a lookup of the keys of each file group."""

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
    model = KeysInMemory({one.group.file_id: stored_keys(to, one) for one in slices})
    return to.assigner.lookup_assigner(open_context(to), lambda _: model)


def lookup(to: TableWriter) -> Index:
    return opened(to, LookupAssigner)


def lookup_without_footers(to: TableWriter) -> Index:
    """Remove the Bloom filters and key ranges, as if another writer had not written them."""
    for one in to.table.view().latest_slices():
        if one.base is not None:
            remove_footer(to.table.storage, one.base)
    return lookup(to)


def lookup_in_metadata_table(to: TableWriter) -> Index:
    """Search key ranges and Bloom filters in the metadata table, as for many files."""
    context = open_context(to)
    filters = StoredFilters(to.table.snapshot.metadata_with, min_files=1, max_filters=100)
    index = LookupIndex(context.reader, LocalRunner(2), filters)
    return to.assigner.lookup_assigner(context, lambda _: index)


def partitioned_record_index(to: TableWriter) -> Index:
    index = to.table.metadata_writer.record_index(to.table.timeline)
    assert index is not None and index.is_partitioned
    return lookup(to)


def record_index(to: TableWriter) -> Index:
    index = to.table.metadata_writer.record_index(to.table.timeline)
    assert index is not None and not index.is_partitioned
    return lookup(to)


def global_record_index(to: TableWriter) -> Index:
    return with_stored_keys(to)


def global_lookup(to: TableWriter) -> Index:
    return with_stored_keys(to)


def with_stored_keys(to: TableWriter) -> Index:
    """Open the index of a batch whose rows move: it knows the keys of the whole table."""
    context = open_context(to)
    stored = to.assigner.find_stored(context, pa.array(ALL_KEYS))
    return to.assigner.index(context, stored=stored)


def hashed(to: TableWriter) -> Index:
    return opened(to, BucketAssigner)


def hashed_by_partition(to: TableWriter) -> Index:
    return opened(to, BucketAssigner)


def consistent_hashing(to: TableWriter) -> Index:
    return opened(to, HashRingAssigner)


def opened(to: TableWriter, expected: type) -> Index:
    """Open the index as a commit does."""
    index = to.assigner.index(open_context(to))
    assert isinstance(index, expected)
    return index


OpenIndex = Callable[[TableWriter], Index]
#: Lookups that find a key in each partition that has it.
LOOKUPS: tuple[OpenIndex, ...] = (
    in_memory,
    lookup,
    lookup_without_footers,
    lookup_in_metadata_table,
)
#: Indexes in whose tables a key has one row, in one partition.
GLOBAL: tuple[OpenIndex, ...] = (record_index, global_record_index, global_lookup)
RECORD_INDEXES = (partitioned_record_index, record_index, global_record_index)
#: Indexes that may assign a new key to an existing file group.
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


def open_context(to: TableWriter) -> WriteContext:
    context = to.begin()
    to.cancel()
    return context


def open_reader(to: TableWriter) -> FileGroupReader:
    return open_context(to).reader


def assign(index: Index, keys: Sequence[tuple[str, str]]) -> list[FileGroupId | None]:
    """Return the file group of changes with these paths and keys; None for a new file group.

    Check that all changes of a key get the same file group, also if it is a new one.
    """
    paths, names = ([one[n] for one in keys] for n in (0, 1))
    kinds = pa.array([int(ChangeKind.UPSERT)] * len(keys), pa.int8())
    columns = {RECORD_KEY: names, PARTITION_PATH: paths, CHANGE_KIND: kinds}
    # The changes of a batch arrive in chunks.
    whole = pa.table(columns, CHANGES)
    assigned = index.assign(pa.concat_tables([whole.slice(0, 1), whole.slice(1)]))
    assert len(assigned.numbers) == len(keys)
    buckets = [Bucket(path, n) for path, n in zip(paths, assigned.numbers.tolist(), strict=True)]
    assert len({*zip(keys, buckets, strict=True)}) == len({*keys})
    return current_groups(assigned.assignment, buckets)


def current_groups(
    assignment: FileGroupAssignment, buckets: Sequence[Bucket]
) -> list[FileGroupId | None]:
    slices = [assignment.task(bucket).current for bucket in buckets]
    return [None if current is None else current.group for current in slices]


def assign_in(index: Index, path: str, names: Sequence[str]) -> list[FileGroupId | None]:
    return assign(index, [(path, name) for name in names])


def open_writer(open_index: OpenIndex, storage: Storage | None = None) -> TableWriter:
    if storage is None:
        storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))
        indexes = ["record_index"] if open_index in RECORD_INDEXES else []
        if open_index is lookup_in_metadata_table:
            indexes.append("bloom_filters")
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
def test_stored_keys_are_assigned_to_their_file_group(
    open_index: OpenIndex, commits: list[list[Row]], others: list[str]
) -> None:
    to = open_writer(open_index)
    commits = [placed(open_index, rows) for rows in commits]
    for rows in commits:
        if rows:
            commit(to, rows)
    keys = [(row.region, row.id) for rows in commits for row in rows]
    keys += [(r, k) for r in REGIONS for k in others if open_index not in GLOBAL or home_of(k) == r]
    if not keys:
        return
    found = assign(open_index(to), keys)
    groups = searched_groups(to.table.view())
    stored = {one.readable.group: stored_keys(to, one.readable) for one in groups}
    for (path, key), group in zip(keys, found, strict=True):
        holding = [g for g, some in stored.items() if g.partition_path == path and key in some]
        assert len(holding) <= 1, "the table stores no key twice"
        assert holding in ([], [group])
        if open_index not in HASHED:
            assert group == (holding[0] if holding else None)


@each_index
def test_keys_are_new_in_a_partition_without_file_groups(open_index: OpenIndex) -> None:
    to = open_writer(open_index)
    commit(to, [Row("a", 1, 1)])
    names = ["c", "d"] if open_index is record_index else ["a", "b"]  # "a" may not be elsewhere
    assert assign_in(open_index(to), "west", [*names, names[0]]) == [None] * 3


@each_index
def test_buckets_are_known_before_the_changes_are_only_with_hashes(open_index: OpenIndex) -> None:
    to = open_writer(open_index)
    commit(to, [Row(key, 1, 1, home_of(key)) for key in ALL_KEYS])
    index = open_index(to)
    placed = index.place(lambda: REGIONS)
    assert (placed is not None) == (open_index in HASHED)
    if placed is not None:
        keys = pa.chunked_array([ALL_KEYS], pa.string())
        paths = pa.chunked_array([[home_of(key) for key in ALL_KEYS]], pa.string())
        numbers = placed.index.bucket_ids(keys, paths).tolist()
        buckets = [Bucket(*one) for one in zip(paths.to_pylist(), numbers, strict=True)]
        pairs = [*zip(paths.to_pylist(), ALL_KEYS, strict=True)]
        assert current_groups(placed.assignment, buckets) == assign(index, pairs)


@each_lookup
def test_deleted_key_belongs_to_its_file_group_until_a_compaction(open_index: OpenIndex) -> None:
    to = open_writer(open_index)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1)])
    commit(to, [Row("a", 2, kind=ChangeKind.DELETE)])
    (group,) = [one.readable.group for one in searched_groups(to.table.view(), "north")]
    assert assign_in(open_index(to), "north", ["a", "b", "c"]) == [group, group, None]
    assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert assign_in(open_index(to), "north", ["a", "b", "c"]) == [None, group, None]


@pytest.mark.parametrize("open_index", GLOBAL, ids=lambda one: one.__name__)
def test_key_of_another_partition_is_refused_or_new(open_index: OpenIndex) -> None:
    to = open_writer(open_index)
    commit(to, [Row("a", 1, 1, "north"), Row("b", 1, 1, "south")])
    (group,) = [one.readable.group for one in searched_groups(to.table.view(), "north")]
    index = open_index(to)
    if open_index is record_index:  # without global keys, rows do not move
        with pytest.raises(Refused, match="'b'"):
            assign_in(index, "north", ["a", "b", "z"])
    else:
        assert assign_in(index, "north", ["a", "b", "z"]) == [group, None, None]


def test_keys_of_a_split_bucket_are_assigned_to_its_parts() -> None:
    to = open_writer(consistent_hashing)
    commit(to, [Row(key, 1, 1) for key in ALL_KEYS])
    before, old_groups = consistent_hashing(to), searched_groups(to.table.view(), "north")
    assign_in(before, "north", ALL_KEYS)
    assert to.resize_if_due(SPLIT_ALL, LocalRunner(1))
    to = ring_writer(to.table.storage)
    with pytest.raises(WriteConflict, match="'north'"):
        before.check_unchanged(to.table.timeline)
    groups = searched_groups(to.table.view(), "north")
    assert len(groups) > len(old_groups)
    stored = {one.readable.group: stored_keys(to, one.readable) for one in groups}
    found = assign_in(consistent_hashing(to), "north", ALL_KEYS)
    assert all(group and key in stored[group] for key, group in zip(ALL_KEYS, found, strict=True))


@pytest.mark.parametrize("table_type", TableType)
def test_key_in_two_file_groups_is_refused_by_name(table_type: TableType) -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))
    make(storage, table_type)
    to = lookup_writer(storage)
    commit(to, [Row("a", 1, 1)])
    (group,) = searched_groups(to.table.view(), "north")
    index = LookupIndex(open_reader(to), LocalRunner(2))
    with pytest.raises(Refused, match=r"'a' is in two file groups of partition 'north'"):
        index.tag([group, group], pa.array(["a"]), "north")
