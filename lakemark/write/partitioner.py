"""Divides changes by bucket, and so by file group."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.index.bucket import BucketIndex, bucket_or_file_id
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """The bucket to which a record always belongs.

    Attributes:
        partition_path: partition of the record.
        number: number of the bucket in the partition, from the hash of the record key.
    """

    partition_path: str
    number: int

    @property
    def task_number(self) -> int:
        """The number of the bucket's file group; see the function ``task_number``."""
        return _task_number(self.partition_path, self.number)


def task_number(group: FileGroupId) -> int:
    """Return the number of a file group for write tokens and sequence numbers.

    The number is a hash that fits into a Java ``int``, so two groups rarely have the same number.
    It depends only on the group, so that a second attempt uses the same number.
    """
    return _task_number(group.partition_path, bucket_or_file_id(group.file_id))


def _task_number(partition_path: str, bucket_or_id: int | str) -> int:
    return zlib.crc32(f"{partition_path}/{bucket_or_id}".encode()) & 0x7FFFFFFF


def divide(changes: pa.Table, index: BucketIndex) -> list[tuple[Bucket, pa.Table]]:
    """Divide changes by bucket, and return the buckets in ascending order.

    Within a bucket, the changes keep the order in which they arrived.
    """
    if not changes.num_rows:
        return []
    changes = changes.combine_chunks()
    partitions = pc.dictionary_encode(changes.column(PARTITION_PATH).combine_chunks())
    numbers = index.bucket_ids(changes.column(RECORD_KEY))
    codes = partitions.indices.to_numpy().astype(np.int64) * index.bucket_count + numbers
    order = np.argsort(codes, kind="stable")
    rows, codes = changes.take(pa.array(order)), codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
    ends = np.append(starts[1:], len(codes))
    names = partitions.dictionary.to_pylist()
    divided = [
        (_bucket(int(codes[start]), names, index.bucket_count), rows.slice(start, end - start))
        for start, end in zip(starts, ends, strict=True)
    ]
    return sorted(divided, key=lambda pair: pair[0])


def _bucket(code: int, partition_paths: list[str], bucket_count: int) -> Bucket:
    return Bucket(partition_paths[code // bucket_count], code % bucket_count)
