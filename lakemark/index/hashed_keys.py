"""Skips the file groups of queries by key, in a table with a bucket index.

The hash of a record key decides the bucket of the record, so the file groups of all other buckets
cannot contain it. Source: ``BucketIndexSupport`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.index.bucket import BucketIndex, bucket_of, groups_by_bucket
from lakemark.model.file_slice import FileSlice


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """Selects file slices by the hashes of record keys; implements ``KeySearch``.

    Attributes:
        index: the bucket index that assigned all records to their file groups.
    """

    index: BucketIndex

    def select(self, slices: Sequence[FileSlice], record_keys: pa.Array) -> Sequence[FileSlice]:
        """See ``KeySearch.select``."""
        if not self._fits(slices):
            return slices
        assert self.index.partitions is None, "no commit records one bucket count"
        buckets = set(self.index.bucket_ids(record_keys).tolist())
        return [one for one in slices if bucket_of(one.group.file_id) in buckets]

    def _fits(self, slices: Sequence[FileSlice]) -> bool:
        """Return whether the file groups are those of this index."""
        try:
            groups_by_bucket((one.group for one in slices), self.index.count_in)
        except InvalidConfig:  # another writer created some of them
            return False
        return True
