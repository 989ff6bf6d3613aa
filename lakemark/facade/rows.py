"""The methods of ``lakemark.Table`` that write and delete rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.facade.base import TableFacade
from lakemark.model.commit_metadata import Operation
from lakemark.operations.create_checks import choose
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.erasure import Erasure, erase_records, plan_erasure
from lakemark.operations.given_keys import Keys
from lakemark.operations.given_rows import Rows
from lakemark.operations.partition_deletion import (
    ChoosePartitions,
    PartitionDeletion,
    match_partitions,
    plan_deletion,
)
from lakemark.operations.partition_expiry import find_expired
from lakemark.operations.share_write import SharedWrite, Shares
from lakemark.operations.stream_batch import StreamBatch
from lakemark.operations.write_result import WriteResult
from lakemark.services.partition_lifetime import ExpireBy, PartitionLifetime
from lakemark.write.sorted_runs import SortMode


class RowMethods(TableFacade):
    """Writes and deletes rows; each method makes one commit, but an erasure several."""

    @contextmanager
    def batch(self, stream: str, number: int) -> Iterator[None]:
        """Write a batch of a stream once, although its writer repeats it after a crash.

        The commit that the block makes records the number of the batch. If a commit of the table
        already records this number or a later one of the stream, the methods that write do nothing,
        and return a result whose ``repeats`` names that commit. The batches of a stream must have
        ascending numbers, and the rows of a batch must be written by one call: a second one in the
        block is refused, because a repetition would skip it, too.

        Args:
            stream: the name of the stream. Streams with different names are independent.
            number: the number of the batch, from 0 on.

        Raises:
            InvalidConfig: an argument is wrong, or the block writes a second time.
        """
        with self._rows.in_batch(StreamBatch.of(stream, number)):
            yield

    def upsert(self, rows: Rows, *, add_columns: bool = False) -> WriteResult:
        """Write rows in one commit; each row inserts a record or is merged with the stored row.

        The table's merge mode decides which row wins. A column that the rows lack is null. A row
        with ``_hoodie_is_deleted: true`` deletes its record, if the table has that column.

        Args:
            rows: an Arrow table, a record batch, a record batch reader, or an iterable of record
                batches. All rows are held in memory.
            add_columns: whether to add columns that the table lacks, and to widen column types.

        Raises:
            InvalidConfig: a column does not fit the table. The message names the column.
            InvalidRecords: a row has no record key, partition or ordering value. Nothing was
                written.
            WriteConflict: every attempt conflicted with writers of the same file groups.
            WriterAlive: another writer is writing, but this table was opened with ``only_writer``.
            OutcomeUnknown: the store did not answer. Check whether the timeline has the commit
                before you write again.
        """
        return self._rows.upsert(rows, add_columns=add_columns)

    def insert(
        self,
        rows: Rows,
        *,
        duplicates: str | Duplicates = Duplicates.ALLOW,
        add_columns: bool = False,
    ) -> WriteResult:
        """Insert rows in one commit.

        Args:
            rows: as for ``upsert``. A row that is marked as deleted is refused.
            duplicates: what happens to a row whose key is already stored in the same partition.
                ``allow`` does not search the keys of a table without a bucket index, so that the
                key is stored twice; in a table with buckets, the row is merged with the stored one.
                ``drop`` skips the row, and merges new rows that have the same key. With ``fail``,
                nothing is written.
            add_columns: as for ``upsert``.

        Raises:
            InvalidConfig, WriteConflict, WriterAlive, OutcomeUnknown: as for ``upsert``.
            InvalidRecords: as for ``upsert``; or a row is marked as deleted; or, with ``fail``, a
                key is stored, or two rows have it. Nothing was written.
        """
        chosen = choose(Duplicates, duplicates, "duplicates")
        return self._rows.insert(rows, chosen, add_columns=add_columns)

    def bulk_insert(
        self, rows: Rows, *, sort: str | SortMode = SortMode.NONE, add_columns: bool = False
    ) -> WriteResult:
        """Insert a stream of rows, which may be larger than memory, in one commit.

        The rows are first divided by partition on the local disk (in the folder ``TMPDIR``). In a
        table with a lookup index, they go to new file groups, and no key is searched. In a table
        with a bucket index or consistent hashing, a bucket that has no rows yet gets a base file,
        and the rows of other buckets are merged as by ``upsert``.

        Args:
            rows: as for ``upsert``; batches are read one after the other.
            sort: order of the rows of a partition, or of a bucket: ``none`` keeps the order of
                arrival; ``partition`` sorts pieces of 128 MiB by record key; ``global`` sorts all
                by record key, so that later lookups of keys skip most files.
            add_columns: as for ``upsert``, with the columns of the first batch.

        Raises:
            InvalidConfig, WriteConflict, WriterAlive, OutcomeUnknown: as for ``upsert``.
            InvalidRecords: as for ``insert``.
            StorageUnavailable: the disk of the temporary folder is full.
        """
        chosen = choose(SortMode, sort, "sort")
        return self._rows.bulk_insert(rows, chosen, add_columns=add_columns)

    def write_shares(
        self,
        columns: pa.Schema,
        shares: Shares,
        wanted: SharedWrite,
        *,
        add_columns: bool = False,
    ) -> WriteResult:
        """Write rows that a cluster holds; users call ``lakemark.spark.write`` instead.

        Args:
            columns: the columns of the rows.
            shares: the rows.
            wanted: what the commit does with the rows.
            add_columns: as for ``upsert``.

        Raises:
            HudiError: as for ``lakemark.spark.write``.
        """
        return self._rows.write_shares(columns, shares, wanted, add_columns=add_columns)

    def insert_overwrite(self, rows: Rows, *, add_columns: bool = False) -> WriteResult:
        """Replace all rows of the partitions that some rows belong to, in one commit.

        Rows that have the same key are merged. Queries as of an earlier commit read the replaced
        rows until they are cleaned.

        Args:
            rows: as for ``upsert``. A row that is marked as deleted is refused.
            add_columns: as for ``upsert``.

        Raises:
            InvalidConfig, WriterAlive, OutcomeUnknown: as for ``upsert``.
            InvalidRecords: as for ``insert``; or keys are unique in the whole table, and a key has
                a row in another partition. Nothing was written.
            WriteConflict: every attempt conflicted with writers of the same partitions.
            Unsupported: the table has consistent hashing.
        """
        return self._rows.overwrite(rows, Operation.INSERT_OVERWRITE, add_columns=add_columns)

    def insert_overwrite_table(self, rows: Rows, *, add_columns: bool = False) -> WriteResult:
        """Replace all rows of the table in one commit; without rows, the table becomes empty.

        The arguments and errors are those of ``insert_overwrite``.
        """
        operation = Operation.INSERT_OVERWRITE_TABLE
        return self._rows.overwrite(rows, operation, add_columns=add_columns)

    def delete_partitions(
        self, patterns: Sequence[str] | str, *, dry_run: bool = False
    ) -> PartitionDeletion:
        """Delete all rows of some partitions in one commit.

        Queries as of an earlier commit read the rows until they are cleaned.

        Args:
            patterns: partition paths, or one path. Each ``*`` stands for any text, with slashes.
            dry_run: whether to return the partitions and delete nothing.

        Raises:
            InvalidConfig: the table is not partitioned, or has no partition with this path.
            WriteConflict, WriterAlive, OutcomeUnknown, Unsupported: as for ``insert_overwrite``.
        """
        listed = [patterns] if isinstance(patterns, str) else patterns
        return self._delete_chosen(match_partitions(self._table, listed), dry_run=dry_run)

    def expire_partitions(
        self,
        older_than: timedelta,
        *,
        by: str | ExpireBy = ExpireBy.COMMIT,
        dry_run: bool = False,
    ) -> PartitionDeletion:
        """Delete all rows of the partitions whose lifetime has ended, in one commit.

        Args:
            older_than: the lifetime of a partition.
            by: when the lifetime begins: ``commit`` for the last commit that wrote to the
                partition, ``creation`` for the commit that created the partition.
            dry_run: whether to return the partitions and delete nothing.

        Raises:
            InvalidConfig: the lifetime is not positive, or the table is not partitioned.
            WriteConflict, WriterAlive, OutcomeUnknown, Unsupported: as for ``insert_overwrite``.
        """
        lifetime = PartitionLifetime(older_than, choose(ExpireBy, by, "by"))
        return self._delete_chosen(find_expired(self._table, lifetime), dry_run=dry_run)

    def _delete_chosen(self, choose: ChoosePartitions, *, dry_run: bool) -> PartitionDeletion:
        if not dry_run:
            return self._rows.delete_partitions(choose)
        self._table.refresh()
        return plan_deletion(self._table, choose)

    def delete(
        self, keys: Keys | None = None, *, where: pc.Expression | str | None = None
    ) -> WriteResult:
        """Delete records in one commit, whatever their ordering values are.

        In a table ordered by event time, the delete has the ordering value of its row. In a
        merge-on-read table, an older event that is upserted later therefore has no effect until a
        compaction drops the delete. A copy-on-write table keeps no deletes, so the event inserts
        the record again.

        Args:
            keys: record keys as text, or rows with the columns of the record key. If the record key
                is a single column, an Arrow array of that column's type is accepted too.
            where: a condition on rows, as for ``scan``. If ``keys`` are given too, only records
                that have one of the keys and match the condition are deleted.

        Raises:
            InvalidConfig: neither ``keys`` nor ``where`` is given, ``keys`` is not a collection of
                keys (for example, a single string), or ``scan`` refuses the condition.
            InvalidRecords: a key is null.
            Refused: a file contains several rows of a key, and only some of them match ``where``.
            WriteConflict, WriterAlive, OutcomeUnknown: as for ``upsert``.
        """
        _check_chooses_rows(keys, where)
        return self._rows.delete(keys, where)

    def erase(
        self,
        keys: Keys | None = None,
        *,
        where: pc.Expression | str | None = None,
        dry_run: bool = False,
    ) -> Erasure:
        """Delete records, and then every stored copy of them; search all files for what is left.

        The records are deleted in a commit. All logs are compacted, all older file slices are
        cleaned, and the metadata table is built again. So the table loses its history: queries as
        of an earlier commit are no longer possible. At last, every file below the table's folder is
        searched for the keys, whether a query reads the file or not.

        No part of this is undone if a later part fails. Call the method again to continue.

        Args:
            keys: record keys, as for ``delete``. Keys that have no row are erased from older files.
            where: a condition on rows, as for ``scan``, which selects the keys to erase; see
                ``delete``. Earlier versions of the rows need not match. After an interruption, the
                deleted rows do not match any more, so that only ``keys`` continues the erasure.
            dry_run: whether to change nothing, and to return where the keys are now.

        Raises:
            InvalidConfig, InvalidRecords: as for ``delete``.
            Unsupported: the rows of the table do not contain their record keys.
            Refused: a savepoint keeps a file with one of the keys, or a restore is pending.
            WriteConflict, WriterAlive, OutcomeUnknown: as for ``upsert``.
        """
        _check_chooses_rows(keys, where)
        rows = self._rows
        if dry_run:
            self._table.refresh()
            return plan_erasure(self._table, rows, rows.chosen_keys(keys, where))
        return erase_records(self._maintained(), rows, rows.chosen_keys(keys, where))


def _check_chooses_rows(keys: Keys | None, where: pc.Expression | str | None) -> None:
    """Check that a deletion is limited to some rows.

    Raises:
        InvalidConfig: it is not.
    """
    if keys is None and where is None:
        message = "delete needs keys=… or where=…; to delete all rows, pass all keys"
        raise InvalidConfig(message)
