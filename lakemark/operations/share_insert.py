"""Inserts rows that a cluster has divided into shares, each by one task.

With a lookup index, a share may have any rows, which go to new file groups. With a bucket index or
consistent hashing, a share has all rows of its buckets, because one task writes each file group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakemark.keygen.automatic_keys import AutomaticKeys
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import Numbers, PlacedBuckets
from lakemark.operations.bulk_insert import insert_into_bucket, insert_partition
from lakemark.operations.incoming_rows import RowChanges, in_table_columns
from lakemark.write.partitioner import Bucket
from lakemark.write.sorted_runs import SortedRuns, SortMode
from lakemark.write.write_context import WriteContext


@dataclass(frozen=True, slots=True)
class WrittenShare:
    """The result of one task.

    Attributes:
        files: the files that the task wrote.
        num_rows: the number of the caller's rows in the share.
    """

    files: list[WriteStat]
    num_rows: int


@dataclass(frozen=True, kw_only=True)
class ShareInsert:
    """Inserts shares of the rows. It can be pickled for workers.

    Attributes:
        context: the context that ``TableWriter.begin`` returned.
        converter: converts rows to changes.
        columns: the columns of the table, without meta columns.
        partitions: the partitions that the table has already.
        max_file_bytes: the size that files approximately have.
        sort: the order of the rows of a partition, or of a bucket, in each share.
        buckets: the buckets of the table; None with a lookup index.
    """

    context: WriteContext
    converter: RowChanges
    columns: pa.Schema
    partitions: frozenset[str]
    max_file_bytes: int
    sort: SortMode
    buckets: PlacedBuckets | None = None

    @property
    def has_automatic_keys(self) -> bool:
        """Whether the rows get new record keys, in the order of a share."""
        return self.converter.generator.config.has_automatic_keys

    def changes(self, rows: pa.Table, new_keys: AutomaticKeys | None = None) -> pa.Table:
        """Return the changes that insert rows, with their record keys and partition paths.

        Args:
            rows: the rows.
            new_keys: generates the record keys, if the table has automatic keys.

        Raises:
            InvalidConfig: a column does not fit the table.
            InvalidRecords: a row has no key, partition or ordering value, or is marked as deleted.
        """
        url = self.context.location.url
        return self.converter.inserts(in_table_columns(rows, self.columns, url), new_keys)

    def bucket_numbers(self, changes: pa.Table) -> Numbers:
        """Return the number of each change's bucket; 0 with a lookup index."""
        if self.buckets is None:
            return np.zeros(changes.num_rows, np.int32)
        keys, paths = changes.column(RECORD_KEY), changes.column(PARTITION_PATH)
        return self.buckets.index.bucket_ids(keys, paths)

    def insert(self, share: int, tables: Iterable[pa.Table]) -> WrittenShare:
        """Write one share. If a task runs again, it must get the same rows.

        With a lookup index and without a global sort, they must have the same order, too.

        Args:
            share: the number of the share.
            tables: the rows.

        Raises:
            InvalidConfig, InvalidRecords: as for ``changes``.
            ContentMismatch: an earlier attempt wrote other rows.
            Refused: a partition has data files, but no metafile.
            StorageUnavailable: the disk of the temporary folder is full.
        """
        new_keys = self.converter.new_keys(self.context.instant, share)
        with SortedRuns(self.sort) as runs:
            for rows in tables:
                changes = self.changes(rows, new_keys)
                runs.add(changes, self.bucket_numbers(changes))
            written = [self._insert(share, bucket, runs) for bucket in runs.finish()]
            return WrittenShare([stat for stats in written for stat in stats], runs.num_rows)

    def _insert(self, share: int, bucket: Bucket, runs: SortedRuns) -> list[WriteStat]:
        if self.buckets is not None:
            return insert_into_bucket(self.context, self.buckets, bucket, runs)
        path, rows = bucket.partition_path, runs.read(bucket)
        return insert_partition(
            self.context, path, rows, self.partitions, self.max_file_bytes, share
        )


class Shares(Protocol):
    """The rows of a bulk insert, which a cluster holds."""

    def check(self, *, has_buckets: bool, has_automatic_keys: bool) -> None:
        """Check that the rows can be divided as the caller asks, before an instant exists.

        Args:
            has_buckets: whether the table has a bucket index or consistent hashing.
            has_automatic_keys: whether the rows have no record keys before they are inserted.

        Raises:
            InvalidConfig: they cannot.
        """
        ...

    def partition_paths(self, insert: ShareInsert) -> Collection[str]:
        """Return the distinct partition paths of all rows."""
        ...

    def insert(self, insert: ShareInsert) -> list[WrittenShare]:
        """Insert all shares. If ``insert`` has buckets, each bucket is in one share only."""
        ...
