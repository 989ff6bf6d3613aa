"""Divides changes by bucket, and so by file group."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.index.bucket import bucket_or_file_id
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import PARTITION_PATH


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """The changes of a commit to one file group, which one task writes.

    With a bucket index, a record always belongs to the same bucket. With a lookup index, a commit
    numbers the file groups to which it writes (as ``UpsertPartitioner`` of Apache Hudi does).

    Attributes:
        partition_path: partition of the records.
        number: number of the bucket in the partition: from the hash of the record key, or the
            position of the file group among those that the commit writes.
    """

    partition_path: str
    number: int

    def __reduce__(self) -> tuple[object, ...]:
        # A dataclass with slots is otherwise pickled by slow Python code.
        return Bucket, (self.partition_path, self.number)


def task_number(group: FileGroupId) -> int:
    """Return the number of a file group for write tokens.

    The number is a hash that fits into a Java ``int``. Two groups may have the same number, because
    the names of their files also contain their file ids. The number depends only on the group, so
    that a second attempt uses the same number.
    """
    text = f"{group.partition_path}/{bucket_or_file_id(group.file_id)}"
    return zlib.crc32(text.encode()) & 0x7FFFFFFF


def series_number(group: FileGroupId) -> int:
    """Return the number of a file group for the sequence numbers of rows.

    The sequence numbers of a commit must be unique, so the number is a hash of 63 bits. With the 31
    bits of ``task_number``, two of 50,000 groups would have the same number in almost every second
    commit. The number depends only on the group, so that a second attempt writes the same rows.
    Apache Hudi uses the number of the Spark partition (``HoodieRecord.generateSequenceId``).
    """
    text = f"{group.partition_path}/{group.file_id}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


@dataclass(frozen=True, slots=True)
class BucketSpans:
    """The rows of each bucket in a table that is sorted by task and bucket. Can be pickled.

    Attributes:
        partition_paths: the distinct partition paths, in ascending order.
        paths: for each bucket, the position of its partition path in ``partition_paths``.
        numbers: the number of each bucket.
        starts: the first row of each bucket, and the number of all rows.
    """

    partition_paths: tuple[str, ...]
    paths: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    @classmethod
    def of_one(cls, bucket: Bucket, rows: int) -> BucketSpans:
        """Return the spans of a table whose rows all belong to one bucket."""
        zero, numbers = np.zeros(1, np.int64), np.array([bucket.number], np.int64)
        return cls((bucket.partition_path,), zero, numbers, np.array([0, rows], np.int64))

    def __len__(self) -> int:
        return len(self.numbers)

    def of_rows(self, start: int, stop: int) -> BucketSpans:
        """Return the spans of a slice of the table, from row ``start`` up to row ``stop``.

        They have only the partition paths of their own buckets, because each payload of the shuffle
        has its spans.
        """
        first = int(np.searchsorted(self.starts, start, "right")) - 1
        end = int(np.searchsorted(self.starts, stop, "left"))
        starts = np.clip(self.starts[first : end + 1], start, stop) - start
        used, positions = np.unique(self.paths[first:end], return_inverse=True)
        paths = tuple(self.partition_paths[n] for n in used.tolist())
        return BucketSpans(paths, positions.astype(np.int64), self.numbers[first:end], starts)

    def bucket(self, position: int) -> Bucket:
        """Return one of the buckets."""
        path = self.partition_paths[self.paths[position]]
        return Bucket(path, int(self.numbers[position]))

    def tasks(self, tasks: int, first_task: int) -> npt.NDArray[np.int64]:
        """Return the task of each bucket; see ``task_of``."""
        hashes = _hashes_of_paths(self.partition_paths)
        return (hashes[self.paths] + self.numbers + first_task) % tasks


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows sorted by task and bucket. The rows of a bucket are in order of arrival.

    Attributes:
        rows: the rows.
        spans: where the rows of each bucket are.
    """

    rows: pa.Table
    spans: BucketSpans

    def divide(self) -> list[tuple[Bucket, pa.Table]]:
        """Return the rows of each bucket."""
        starts = self.spans.starts.tolist()
        return [
            (self.spans.bucket(n), self.rows.slice(start, starts[n + 1] - start))
            for n, start in enumerate(starts[:-1])
        ]


def task_of(bucket: Bucket, tasks: int, first_task: int = 0) -> int:
    """Return the task that writes a bucket. Buckets with adjacent numbers have different tasks.

    Args:
        bucket: the bucket.
        tasks: the number of tasks.
        first_task: is added to the number of the task, so that the first buckets of two tables
            have different tasks.
    """
    return (zlib.crc32(bucket.partition_path.encode()) + bucket.number + first_task) % tasks


def sort_by_bucket(
    partition_paths: pa.ChunkedArray | pa.Array,
    numbers: npt.NDArray[np.int32],
    rows: pa.Table,
    tasks: int = 1,
    first_task: int = 0,
    order: npt.NDArray[np.int64] | None = None,
) -> SortedRows:
    """Sort rows by task and bucket. The costs depend on the number of rows, not of buckets.

    Args:
        partition_paths: the partition path of each row.
        numbers: the bucket number of each row.
        rows: the rows, at least one.
        tasks: the number of tasks.
        first_task: see ``task_of``.
        order: the positions of all rows in the order that they get within their buckets; None to
            keep the order in which they arrived.
    """
    if isinstance(partition_paths, pa.ChunkedArray):
        partition_paths = partition_paths.combine_chunks()
    names, paths = sorted_codes(partition_paths)
    width = int(numbers.max()) + 1
    codes = paths * width + numbers
    if tasks > 1:
        row_tasks = (_hashes_of_paths(names)[paths] + numbers + first_task) % tasks
        codes += row_tasks * (len(names) * width)
    if order is None:
        order = np.argsort(codes, kind="stable")
    else:
        order = order[np.argsort(codes[order], kind="stable")]
    codes = codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
    buckets = codes[starts] % (len(names) * width)
    spans = BucketSpans(names, buckets // width, buckets % width, np.append(starts, len(codes)))
    return SortedRows(rows.take(pa.array(order)), spans)


def divide(changes: pa.Table, numbers: npt.NDArray[np.int32]) -> list[tuple[Bucket, pa.Table]]:
    """Divide changes by bucket, and return the buckets in ascending order.

    Within a bucket, the changes keep the order in which they arrived.

    Args:
        changes: the changes.
        numbers: the bucket number of each change.
    """
    if not changes.num_rows:
        return []
    return sort_by_bucket(changes.column(PARTITION_PATH), numbers, changes).divide()


def sorted_codes(values: pa.Array) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Return the distinct values in ascending order, and the position of each value among them."""
    encoded = pc.dictionary_encode(values)
    found = encoded.dictionary.to_pylist()
    names = tuple(sorted(found))
    positions = {name: position for position, name in enumerate(names)}
    ranks = np.array([positions[name] for name in found], np.int64)
    return names, ranks[encoded.indices.to_numpy()]


def _hashes_of_paths(partition_paths: Sequence[str]) -> npt.NDArray[np.int64]:
    return np.array([zlib.crc32(path.encode()) for path in partition_paths], np.int64)
