"""Counts record keys that exist in more than one partition.

A record key is unique only within its partition. Without a global index, a row whose partition
value changes exists in its old partition and in its new one. Apache Hudi's bucket index has the
same rule (``HoodieBucketIndex.isGlobal`` is false).

The bucket index uses the same bucket for a key in every partition. So only the file groups of one
bucket must be compared with each other, one bucket after another. If the bucket count is unknown,
all file groups are compared at once. Keys that exceed the memory budget are written to disk,
divided by their hash.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.index.bucket import bucket_of, groups_by_bucket
from lakemark.merge.spill import divide_by_key
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.scan import Scan
from lakemark.read.virtual_keys import VirtualKeys

#: Memory for the keys of one bucket; further keys are written to disk.
DEFAULT_MEMORY_BUDGET_BYTES = 128 << 20

#: Largest number of keys that a result contains as examples.
_EXAMPLES = 5

_PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class RepeatedKey:
    """A record key that exists in several partitions.

    Attributes:
        record_key: the key.
        partitions: paths of the partitions that have a row with the key, in ascending order.
    """

    record_key: str
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepeatedKeys:
    """Record keys that exist in more than one partition.

    Attributes:
        keys: number of these keys.
        rows: number of rows with these keys. One row of each key is legitimate, so the surplus is
            ``rows - keys``.
        examples: the first few of these keys, in ascending order.
    """

    keys: int = 0
    rows: int = 0
    examples: tuple[RepeatedKey, ...] = ()

    def __add__(self, other: RepeatedKeys) -> RepeatedKeys:
        examples = sorted(self.examples + other.examples, key=lambda one: one.record_key)
        return RepeatedKeys(
            self.keys + other.keys, self.rows + other.rows, tuple(examples[:_EXAMPLES])
        )


def find_repeated_keys(
    scan: Scan,
    bucket_count: int | None,
    virtual_keys: VirtualKeys | None = None,
    memory_budget_bytes: int = DEFAULT_MEMORY_BUDGET_BYTES,
) -> RepeatedKeys:
    """Find the record keys that have a live row in more than one partition.

    Only key columns are read. If the table has no partitions, nothing is read.

    Args:
        scan: a scan of the latest rows, without a condition.
        bucket_count: number of buckets in each partition; None if it is unknown, or if the table
            has another index.
        virtual_keys: computes the keys of rows without meta columns.
        memory_budget_bytes: number of bytes of keys in memory; further keys are written to disk.

    Raises:
        SnapshotChanged: a file was deleted; plan the query again.
        CorruptData: a file is damaged.
        Unsupported: a file has a kind that lakemark does not read.
    """
    found = RepeatedKeys()
    for slices in _group_by_bucket(scan.slices, bucket_count):
        partitions = sorted({one.group.partition_path for one in slices})
        if len(partitions) > 1:
            keys = _keys_of(scan, slices, partitions, virtual_keys)
            for some in divide_by_key(keys, memory_budget_bytes):
                found += _count(some, partitions)
    return found


def _group_by_bucket(
    slices: Sequence[FileSlice], bucket_count: int | None
) -> Iterable[list[FileSlice]]:
    if bucket_count is None:
        return [list(slices)]
    by_bucket: dict[int, list[FileSlice]] = defaultdict(list)
    try:
        groups_by_bucket([one.group for one in slices], lambda _: bucket_count)
        for one in slices:
            by_bucket[bucket_of(one.group.file_id)].append(one)
    except InvalidConfig:
        return [list(slices)]  # another index created some of the file groups
    return by_bucket.values()


def _keys_of(
    scan: Scan, slices: Sequence[FileSlice], partitions: Sequence[str], made: VirtualKeys | None
) -> Iterator[pa.Table]:
    """Yield the record keys of all rows, each with the index of its partition."""
    part = scan.with_columns((RECORD_KEY,) if made is None else made.columns)
    for one in slices:
        number = pa.scalar(partitions.index(one.group.partition_path), pa.int32())
        for batch in part.with_slices([one]).batches(threads=1):
            rows = pa.Table.from_batches([batch])
            keys = rows.column(RECORD_KEY) if made is None else made.of_rows(rows)
            yield pa.table({RECORD_KEY: keys, _PARTITION: pa.repeat(number, rows.num_rows)})


def _count(keys: pa.Table, partitions: Sequence[str]) -> RepeatedKeys:
    counted = keys.group_by(RECORD_KEY).aggregate([(_PARTITION, "count_distinct")])
    column = f"{_PARTITION}_count_distinct"
    repeated = counted.filter(pc.field(column) > 1)
    if not repeated.num_rows:
        return RepeatedKeys()
    first = repeated.sort_by(RECORD_KEY).slice(0, _EXAMPLES).column(RECORD_KEY)
    rows = pc.sum(repeated.column(column)).as_py()
    return RepeatedKeys(repeated.num_rows, rows, _examples(keys, first, partitions))


def _examples(
    keys: pa.Table, shown: pa.ChunkedArray, partitions: Sequence[str]
) -> tuple[RepeatedKey, ...]:
    held = keys.filter(pc.is_in(keys.column(RECORD_KEY), value_set=shown.combine_chunks()))
    paths: dict[str, set[str]] = defaultdict(set)
    numbered = zip(*(held.column(name).to_pylist() for name in held.column_names), strict=True)
    for key, number in numbered:
        paths[key].add(partitions[number])
    return tuple(RepeatedKey(key, tuple(sorted(paths[key]))) for key in shown.to_pylist())
