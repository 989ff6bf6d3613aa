"""The public class ``Table``: queries, writes and table services of one Hudi table.

``Table`` is a thin facade for ``lakemark.operations``. A query opens neither the lock nor the
writer of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.difference import Difference
from lakemark.model.action import Action
from lakemark.model.commit_metadata import Operation
from lakemark.model.file_slice import join
from lakemark.model.partition_pattern import PartitionPattern
from lakemark.model.restore_plan import EMPTY_TABLE
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.model.row_order import Curve, RowOrder
from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.operations.archive import archive
from lakemark.operations.change_version import change_table_version
from lakemark.operations.clean import clean
from lakemark.operations.cluster import cluster_table
from lakemark.operations.compact import compact_table
from lakemark.operations.compact_logs import compact_logs
from lakemark.operations.create_checks import choose, choose_version
from lakemark.operations.create_index import create_index
from lakemark.operations.drop_index import drop_index
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.erasure import Erasure, erase_records, plan_erasure
from lakemark.operations.given_keys import Keys
from lakemark.operations.given_rows import Rows
from lakemark.operations.metadata_table import (
    compact_and_maintain_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.orphan_removal import DEFAULT_AGE, find_orphans, remove_orphans
from lakemark.operations.partition_deletion import (
    ChoosePartitions,
    PartitionDeletion,
    match_partitions,
    plan_deletion,
)
from lakemark.operations.partition_expiry import find_expired
from lakemark.operations.resize_buckets import resize_table
from lakemark.operations.restore import restore_table
from lakemark.operations.rollback import roll_back_instant
from lakemark.operations.savepoint import (
    create_savepoint,
    delete_savepoint,
    expire_savepoints,
    list_savepoints,
)
from lakemark.operations.scan_arguments import check_scan_arguments
from lakemark.operations.share_insert import Shares
from lakemark.operations.table_index import PartitionChange
from lakemark.operations.table_indexes import TableIndex, list_indexes
from lakemark.operations.table_queries import LATEST
from lakemark.operations.write import RowWriter
from lakemark.operations.write_checks import check_convertible, check_maintainable
from lakemark.operations.write_context import merger_class
from lakemark.operations.write_result import WriteResult
from lakemark.read.cdc.scan import CdcScan
from lakemark.read.explanation import Explanation
from lakemark.read.instant_range import EARLIEST
from lakemark.read.queries import Query, ReadOptimized
from lakemark.read.query_instant import GivenTime
from lakemark.read.scan import Scan
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.clustering_plan import (
    MAX_GROUP_BYTES,
    MAX_GROUPS,
    SMALL_FILE_BYTES,
    TARGET_FILE_BYTES,
    ClusteringPolicy,
)
from lakemark.services.compaction_plan import CompactionPolicy, DueWhen
from lakemark.services.log_compaction import MIN_LOGS
from lakemark.services.metadata_table_services import MetadataPolicies
from lakemark.services.orphans import Orphan
from lakemark.services.partition_lifetime import ExpireBy, PartitionLifetime
from lakemark.services.resize_plan import MERGE_BELOW_BYTES, SPLIT_ABOVE_BYTES, ResizePolicy
from lakemark.services.slice_choice import SliceChoice, SliceOrder
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.instant_files import names_of
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.write.sorted_runs import SortMode


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """The result of a table service, a rollback or a restore.

    Attributes:
        instants: requested times of the instants that were completed, archived or undone.
        files: paths of the files that a compaction, a clustering or a resize of buckets wrote, or
            that any other operation deleted.
    """

    instants: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class Table:
    """An open table, as of the last ``refresh`` or the last change through this object.

    The object must not be used by several threads at the same time.
    """

    def __init__(
        self,
        table: OpenTable,
        buckets: int | None = None,
        partition_change: PartitionChange | None = None,
        event_time_column: str | None = None,
    ) -> None:
        """Wrap an open table; users call ``lakemark.open`` or ``lakemark.create`` instead.

        Args:
            table: the open table.
            buckets: number of buckets in each partition, for a table whose commits do not record
                the number.
            partition_change: what happens to a row whose key exists in another partition.
            event_time_column: the column whose earliest and latest values the commits contain.
        """
        self._table = table
        self._buckets = buckets
        self._partition_change = partition_change
        self._event_time_column = event_time_column

    def __repr__(self) -> str:
        properties = self._table.properties
        keys = ", ".join(properties.record_key_fields) or "automatic"
        return (
            f"Table({self.location!r}, {properties.table_type.value.lower()}, "
            f"version {self.version}, record key {keys})"
        )

    def __dir__(self) -> list[str]:
        """Return only the public names."""
        return sorted(name for name in vars(type(self)) if not name.startswith("_"))

    @property
    def location(self) -> str:
        """The path or URL of the table."""
        return self._table.location.url

    @property
    def version(self) -> int:
        """The table version: 2 to 6, 8 or 9. Only versions from 6 on are written."""
        return int(self._table.version)

    @property
    def properties(self) -> TableProperties:
        """The table's properties, as they were last read."""
        return self._table.properties

    @property
    def schema(self) -> pa.Schema | None:
        """The table's columns, meta columns first; None if no columns are known yet."""
        return self._table.known_schema

    @property
    def timeline(self) -> Timeline:
        """The active timeline."""
        return self._table.timeline

    def refresh(self) -> None:
        """Load the timeline again.

        Raises:
            Refused: the table has another version now; open the table again.
        """
        self._table.refresh()

    def scan(
        self,
        query: Query = LATEST,
        columns: Sequence[str] | None = None,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Scan:
        """Plan a query. No row is read yet.

        Args:
            query: type and time of the query: latest rows, time travel, incremental or read
                optimized.
            columns: columns of the result, in this order; None for all columns, Hudi's meta columns
                first.
            where: a condition on rows, as an Arrow expression or as text (docs/reading.md). The
                scan skips partitions, files and row groups that cannot contain matching rows.
            record_keys: record keys of the rows to read; None for all rows. The scan skips files
                that cannot contain these keys, by the record index or by Bloom filters, as for a
                condition on the record key.

        Raises:
            InvalidConfig: a column is unknown, or a condition, time or range is not valid.
            SnapshotChanged: other writers deleted files by a clean or rollback while the query was
                planned.
            CorruptData, Unsupported: the table cannot be read.
        """
        check_scan_arguments(query, columns, record_keys)
        return self._table.scan(query, columns, where, record_keys)

    def explain(
        self,
        query: Query = LATEST,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Explanation:
        """Explain which file groups ``scan`` reads, and why it skips the others. No row is read.

        Args:
            query: as for ``scan``.
            where: as for ``scan``.
            record_keys: as for ``scan``.

        Raises:
            InvalidConfig, SnapshotChanged, CorruptData, Unsupported: as for ``scan``.
        """
        check_scan_arguments(query, None, record_keys)
        return self._table.explain(query, where, record_keys)

    def changes(self, begin: GivenTime = EARLIEST, end: GivenTime | None = None) -> CdcScan:
        """Plan a CDC query, which returns the changes that each commit of a range made to records.

        The method raises the same errors as ``scan``.

        Args:
            begin: requested time after which the range begins.
            end: the last requested time in the range; None for a range without an end.
        """
        return self._table.changes(begin, end)

    def snapshot(
        self, columns: Sequence[str] | None = None, where: pc.Expression | str | None = None
    ) -> pa.RecordBatchReader:
        """Read the latest rows, which are base files merged with their logs."""
        return self.scan(LATEST, columns, where).to_reader()

    def read_optimized(
        self, columns: Sequence[str] | None = None, where: pc.Expression | str | None = None
    ) -> pa.RecordBatchReader:
        """Read only the base files.

        This is cheaper than a snapshot query, but the rows are as old as the last compaction.
        """
        return self.scan(ReadOptimized(), columns, where).to_reader()

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

    def bulk_insert_shares(
        self,
        columns: pa.Schema,
        shares: Shares,
        sort: SortMode = SortMode.NONE,
        *,
        add_columns: bool = False,
    ) -> WriteResult:
        """Insert rows that a cluster holds; users call ``lakemark.spark.bulk_insert`` instead.

        Args:
            columns: the columns of the rows.
            shares: the rows.
            sort: the order of the rows of a partition in each share.
            add_columns: as for ``upsert``.

        Raises:
            InvalidConfig, InvalidRecords, Unsupported, WriteConflict, WriterAlive, OutcomeUnknown:
                as for ``lakemark.spark.bulk_insert``.
        """
        return self._rows.bulk_insert_shares(columns, shares, sort, add_columns=add_columns)

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
            return plan_erasure(self._table, rows.chosen_keys(keys, where))
        return erase_records(self._maintained(), rows, rows.chosen_keys(keys, where))

    def compact(
        self,
        partitions: Sequence[str] = (),
        *,
        after_commits: int | None = None,
        after: timedelta | None = None,
        after_log_bytes: int | None = None,
        when: DueWhen | str = DueWhen.ANY,
        order: SliceOrder | str = SliceOrder.MOST_LOG_BYTES,
        max_partitions: int | None = None,
        max_io_bytes: int | None = None,
    ) -> ServiceResult:
        """Merge log files into base files.

        All pending compactions are executed. If no compaction is pending, a new one is planned and
        executed, of all file groups with logs by default. A compaction that another writer is
        executing is skipped.

        Args:
            partitions: compact only partitions whose paths match one of these patterns, in which
                each ``*`` stands for any text, or which contain a regular expression after
                ``regex:``; empty for all partitions.
            after_commits: plan a compaction only if this number of delta commits completed since
                the last one was planned.
            after: plan a compaction only if the oldest log is this old.
            after_log_bytes: plan a compaction only if the logs together have this number of bytes.
            when: with several of these three limits, whether ``any`` or ``all`` of them must be
                reached.
            order: which file groups come first if the compaction is limited:
                ``most_log_bytes``, ``newest_partitions`` or ``oldest_partitions``.
            max_partitions: the largest number of partitions; None for no limit.
            max_io_bytes: the largest number of bytes to read and to write, estimated from the sizes
                of the files, but always one file group; None for no limit.

        Raises:
            InvalidConfig: a pattern, a limit or a word is wrong, or the table has no such
                partition.
            Unsupported: the table is copy-on-write, or this project does not write this kind of
                table.
            Refused: a restore is pending.
        """
        table = self._maintained()
        if not table.properties.is_merge_on_read:
            message = f"table {self.location} is copy-on-write: it has no logs to compact"
            raise Unsupported(message)
        if partitions:
            match_partitions(table, partitions)(table.view())  # checks that they exist
        due_when = choose(DueWhen, when, "when")
        policy = CompactionPolicy(after_commits, after, after_log_bytes, due_when)
        choice = SliceChoice(
            order=choose(SliceOrder, order, "order"),
            partitions=tuple(map(PartitionPattern, partitions)),
            max_partitions=max_partitions,
            max_io_bytes=max_io_bytes,
        )
        done = compact_table(
            table, table.runner or LocalRunner(), merger_class(table), policy, choice
        )
        files = [stat.path for _, metadata in done for stat in metadata.write_stats if stat.path]
        return ServiceResult(
            instants=tuple(instant.requested_at for instant, _ in done), files=tuple(files)
        )

    def compact_logs(
        self, partitions: Sequence[str] = (), *, min_logs: int = MIN_LOGS
    ) -> ServiceResult:
        """Merge the logs of each file slice into one log, without rewriting the base file.

        Pending log compactions are executed. If there are none, a new one is planned and executed.
        A log compaction that another writer is executing is skipped.

        Args:
            partitions: as for ``compact``.
            min_logs: only file slices are compacted that have logs of this number of commits or
                more, apart from logs that a log compaction has merged.

        Raises:
            InvalidConfig: a pattern is wrong, or the table has no such partition.
            Unsupported: the table is copy-on-write, or supports CDC queries, or has a custom merger
                or a payload that needs the columns of deleted rows, or this project does not write
                this kind of table.
            Refused: a restore is pending.
            WriteConflict: another writer is writing to the table; call this method again.
        """
        table = self._maintained()
        if partitions:
            match_partitions(table, partitions)(table.view())  # checks that they exist
        choice = SliceChoice(partitions=tuple(map(PartitionPattern, partitions)))
        runner = table.runner or LocalRunner()
        done = compact_logs(table, runner, min_logs, choice)
        files = [stat.path for _, metadata in done for stat in metadata.write_stats if stat.path]
        return ServiceResult(
            instants=tuple(instant.requested_at for instant, _ in done), files=tuple(files)
        )

    def resize_buckets(
        self,
        *,
        split_above_bytes: int = SPLIT_ABOVE_BYTES,
        merge_below_bytes: int = MERGE_BELOW_BYTES,
    ) -> ServiceResult:
        """Split large buckets and merge small ones, in a table with consistent hashing.

        Pending resizes are executed first. A resize that another writer is executing is skipped.

        Args:
            split_above_bytes: a bucket whose base file and logs are larger is split into 2, 4, 8 or
                16 buckets, so that the parts are expected to be below this size.
            merge_below_bytes: adjacent buckets that are smaller are merged; 0 to merge none. A
                partition keeps at least as many buckets as it had at first.

        Raises:
            InvalidConfig: a size is not positive, or the limits are too close to each other.
            Unsupported: the table has no consistent hashing, or lakemark does not write this kind
                of table.
            Refused: a restore is pending; or lakemark cannot execute or remove a pending plan.
            WriteConflict: another writer is writing to the table; call this method again.
        """
        policy = ResizePolicy(
            split_above_bytes=split_above_bytes, merge_below_bytes=merge_below_bytes
        )
        table = self._maintained()
        done = resize_table(table, policy, merger_class(table))
        return ServiceResult(
            instants=tuple(instant.requested_at for instant, _ in done),
            files=tuple(s.path for _, metadata in done for s in metadata.write_stats if s.path),
        )

    def cluster(
        self,
        sort_by: Sequence[str] | str = (),
        *,
        curve: str | Curve = Curve.LINEAR,
        partitions: Sequence[str] | str | None = None,
        small_file_bytes: int = SMALL_FILE_BYTES,
        target_file_bytes: int = TARGET_FILE_BYTES,
        max_group_bytes: int = MAX_GROUP_BYTES,
        max_groups: int = MAX_GROUPS,
        max_io_bytes: int | None = None,
    ) -> ServiceResult:
        """Rewrite small file slices into fewer files, whose rows may be sorted.

        All pending clusterings are executed, also those of Apache Hudi. If there are none, a new
        one is planned and executed. A clustering that another writer is executing is skipped. Rows
        keep their commit times, so that incremental queries do not return them again. Queries as of
        an earlier commit read the replaced files until they are cleaned.

        Args:
            sort_by: the columns by which the rows of each group are sorted; nulls come first.
                Without columns, rows keep their order, and only files that can be combined are
                rewritten.
            curve: how several columns are combined: ``linear`` sorts by the first one, and then by
                the next ones; ``z-order`` and ``hilbert`` give each file a narrow range of all
                columns.
            partitions: patterns of the partitions to rewrite, as for ``delete_partitions``; None
                for all partitions.
            small_file_bytes: slices whose base file and logs are smaller are rewritten.
            target_file_bytes: the size that new files approximately have.
            max_group_bytes: the size of the slices of a partition that are sorted together.
            max_groups: the largest number of such groups that one call rewrites.
            max_io_bytes: the largest number of bytes that one call reads and writes, except that
                one group is always rewritten; None for no such limit.

        Raises:
            InvalidConfig: the table has no such column or partition, or a number is not positive.
            Unsupported: the table has a bucket index or consistent hashing; a column has a nested
                type; or lakemark does not write this kind of table.
            Refused: a restore is pending; or lakemark cannot execute a pending plan.
            WriteConflict: another writer is writing to the table; call this method again.
            StorageUnavailable: the disk of the temporary folder is full.
        """
        columns = (sort_by,) if isinstance(sort_by, str) else tuple(sort_by)
        policy = ClusteringPolicy(
            small_file_bytes=small_file_bytes,
            target_file_bytes=target_file_bytes,
            max_group_bytes=max_group_bytes,
            max_groups=max_groups,
            max_io_bytes=max_io_bytes,
            order=RowOrder(columns, choose(Curve, curve, "curve")),
        )
        table = self._maintained()
        listed = [partitions] if isinstance(partitions, str) else partitions
        chosen = None if listed is None else match_partitions(table, listed)
        done = cluster_table(table, policy, chosen, merger_class(table))
        return ServiceResult(
            instants=tuple(instant.requested_at for instant, _ in done),
            files=tuple(s.path for _, metadata in done for s in metadata.write_stats if s.path),
        )

    def clean(
        self,
        *,
        retain_commits: int | None = None,
        retain_hours: int | None = None,
        retain_versions: int | None = None,
    ) -> ServiceResult:
        """Delete files that no query within the retention needs; complete pending cleans first.

        Args:
            retain_commits: number of latest commits that stay available to time travel (default:
                10).
            retain_hours: number of latest hours that stay available to time travel.
            retain_versions: number of file slices to keep in each file group.

        Raises:
            InvalidConfig: more than one of the arguments is given, or a number is below 1.
            Refused: a restore is pending.
        """
        policy = _cleaning_policy(retain_commits, retain_hours, retain_versions)
        table = self._maintained()
        done = clean(table, policy)
        compact_and_maintain_metadata_table(table, MetadataPolicies.for_data_table(policy))
        return ServiceResult(
            instants=tuple(one.instant.requested_at for one in done),
            files=tuple(path for one in done for path in one.plan.paths),
        )

    def archive(
        self,
        *,
        min_commits: int = 20,
        max_commits: int = 30,
        retain_commits: int = 10,
        files_to_merge: int = 10,
    ) -> ServiceResult:
        """Move old instants from the active timeline to the archived timeline.

        Commits that streamers need to resume stay on the active timeline.

        Args:
            min_commits: number of latest commits that stay on the active timeline.
            max_commits: instants are archived only if more commits than this are active.
            retain_commits: the ``retain_commits`` of the table's cleans. These commits stay on the
                active timeline too, because cleaning needs them there.
            files_to_merge: number of files of the archived timeline that are merged into one, in
                table version 8 and later.

        Raises:
            InvalidConfig: ``min_commits`` is not below ``max_commits``, or ``files_to_merge`` is
                below 2.
            Refused: a restore is pending.
        """
        policy = ArchivalPolicy(min_commits, max_commits, files_to_merge=files_to_merge)
        cleaning = CleaningPolicy(commits=retain_commits)
        table = self._maintained()
        archived = archive(table, policy, cleaning)
        compact_and_maintain_metadata_table(
            table, MetadataPolicies.for_data_table(cleaning, policy)
        )
        if archived is None:
            return ServiceResult()
        instants = tuple(one.requested_at for one in archived.instants)
        return ServiceResult(instants=instants, files=archived.leftovers)

    def find_orphans(self, *, older_than: timedelta = DEFAULT_AGE) -> tuple[Orphan, ...]:
        """Find files that no instant names, such as those of failed task attempts.

        Files whose instant may have completed are returned, too, but ``remove_orphans`` keeps them:
        their ``reason.is_clear`` is false. Arguments and errors are as for ``remove_orphans``.
        """
        return tuple(find_orphans(self._maintained(), older_than))

    def remove_orphans(self, *, older_than: timedelta = DEFAULT_AGE) -> ServiceResult:
        """Delete files that no instant names, such as those of failed task attempts.

        The files are deleted at once; ``find_orphans`` shows them before. Files of pending instants
        are kept, and so are files whose instant may have completed. See docs/services.md.

        Args:
            older_than: delete only files that were written longer ago; at least one day.

        Raises:
            InvalidConfig: ``older_than`` is too short.
            Refused: a restore is pending.
            SnapshotChanged: the table was changed meanwhile; call this method again.
            CorruptData: the archive, a commit or the metadata table is damaged.
        """
        removed = remove_orphans(self._maintained(), older_than)
        return ServiceResult(files=tuple(orphan.path for orphan in removed))

    def rollback(self, instant: str) -> ServiceResult:
        """Roll back one instant: the newest commit, or a pending instant.

        Args:
            instant: requested time of the instant.

        Raises:
            InvalidConfig: there is no such instant on the active timeline.
            Refused: the instant cannot be rolled back. The message says what to do first.
        """
        undone = roll_back_instant(self._maintained(), instant)
        return ServiceResult(instants=(instant,), files=_paths(undone))

    @property
    def savepoints(self) -> dict[str, SavepointMetadata]:
        """The table's savepoints, by the requested time of their commits."""
        return list_savepoints(self._table)

    def savepoint(self, instant: str | None = None, *, user: str = "", comment: str = "") -> str:
        """Create a savepoint, so that cleaning keeps the files of the table as of a commit.

        Args:
            instant: requested time of the commit; None for the newest commit.
            user: user name to record in the savepoint.
            comment: comment to record in the savepoint.

        Returns:
            The requested time of the commit.

        Raises:
            InvalidConfig: there is no such commit on the active timeline.
            Refused: the commit already has a savepoint, its files were cleaned, or a clean or
                restore is pending.
        """
        chosen = instant or self._newest_commit()
        create_savepoint(self._table, chosen, user, comment)
        return chosen

    def delete_savepoint(self, instant: str) -> None:
        """Delete a savepoint, so that cleaning may delete its files.

        Args:
            instant: requested time of the savepoint's commit.

        Raises:
            InvalidConfig: that commit has no savepoint.
            Refused: a restore is pending.
        """
        delete_savepoint(self._table, instant)

    def expire_savepoints(self, older_than: timedelta) -> tuple[str, ...]:
        """Delete the savepoints that were created longer ago than ``older_than``.

        Savepoints never expire by themselves.

        Returns:
            The requested times of their commits, oldest first.

        Raises:
            InvalidConfig: ``older_than`` is not positive.
            Refused: a restore is pending.
        """
        return tuple(expire_savepoints(self._table, older_than))

    def restore(self, instant: str | None = None, *, to_empty: bool = False) -> ServiceResult:
        """Undo every write after a commit. If a restore is pending, complete it instead.

        Args:
            instant: requested time of the commit or savepoint to restore to; None to complete the
                pending restore.
            to_empty: whether all commits are undone, also archived ones, so that the table is
                empty; without ``instant``.

        Raises:
            InvalidConfig: there is no such commit, a restore to another commit is pending, or
                ``instant`` is None and no restore is pending; or both arguments are given.
            Refused: the table cannot be restored to that commit. The message says why.
        """
        self._table.refresh()
        if to_empty and instant is not None:
            message = "pass either the instant to restore to, or to_empty=True"
            raise InvalidConfig(message)
        restore_to = EMPTY_TABLE if to_empty else instant
        if restore_to is None and not self._table.timeline.pending(Action.RESTORE):
            message = (
                f"no restore of {self._table.location.url} is pending; name a commit, or pass "
                "to_empty=True"
            )
            raise InvalidConfig(message)
        undone = restore_table(self._table, restore_to)
        return ServiceResult(
            instants=tuple(one.instant for one in undone),
            files=tuple(path for one in undone for path in _paths(one)),
        )

    def change_version(self, version: int) -> ServiceResult:
        """Upgrade or downgrade the table. The change is atomic.

        Stop all other writers first. Pending instants of dead writers are rolled back, and pending
        compactions are executed.

        Args:
            version: the new table version: 6, 8 or 9. A table of a version before 6 is upgraded to
                6 first.

        Returns:
            The pending instants that were rolled back, and no files.

        Raises:
            InvalidConfig: there is no such version.
            WriterAlive: another writer is writing.
            Refused: the table cannot have that version. The message says what to do first.
        """
        wanted = choose_version(version)
        table = self._refreshed()
        check_convertible(table)
        change = change_table_version(
            table, wanted, table.runner or LocalRunner(), merger_class(table)
        )
        self._table = table.with_properties(read_properties(table.storage))
        self.__dict__.pop("_rows", None)
        return ServiceResult(instants=change.rolled_back)

    def upgrade(self, version: int = 9) -> ServiceResult:
        """Upgrade the table to a newer version; see ``change_version``.

        Raises:
            InvalidConfig: the table has a newer version.
        """
        if version < self.version:
            message = (
                f"table {self.location} has version {self.version}; to downgrade it, use "
                "change_version"
            )
            raise InvalidConfig(message)
        return self.change_version(version)

    @property
    def indexes(self) -> list[TableIndex]:
        """The indexes in the metadata table, as of now, sorted by name."""
        return list_indexes(self._table)

    def create_index(
        self,
        name: str,
        *,
        column: str | None = None,
        expression: str | None = None,
        kind: str = "column_stats",
        partitioned: bool = False,
    ) -> None:
        """Create an index, while other writers of lakemark may commit; see docs/indexes.md.

        Nothing happens if the table has this index. No writer of Apache Hudi may write meanwhile.

        Args:
            name: ``record_index``, ``bloom_filters``, ``column_stats``, ``partition_stats``, or a
                name of your choice with ``column`` or ``expression``.
            column: the column of a secondary index, which contains texts or integers. The table
                needs a record index of all partitions.
            expression: the expression of an expression index, such as ``lower(name)`` or
                ``from_unixtime(ts, 'yyyy-MM-dd')``.
            kind: what an expression index has for each file: ``column_stats`` or ``bloom_filters``.
            partitioned: whether the keys of a record index are unique only within a partition.

        Raises:
            InvalidConfig: the name or the expression is invalid, or the table has this index of
                another column or expression, or with keys that are unique elsewhere.
            Unsupported: the table may not have such an index, or lakemark does not update it.
            Refused: two rows have the same record key; another process builds the index; or Apache
                Hudi would fail at a null in it.
        """
        create_index(
            self._refreshed(),
            name,
            column,
            expression=expression,
            kind=kind,
            partitioned=partitioned,
        )

    def drop_index(self, name: str) -> None:
        """Drop an index, or what a dead process has built of it.

        Args:
            name: the name of the index.

        Raises:
            InvalidConfig: there is no such index.
            Refused: a process builds the index, or a secondary index needs it.
        """
        drop_index(self._refreshed(), name)

    def rebuild_metadata_table(self) -> None:
        """Build the metadata table again from a listing of the files."""
        rebuild_metadata_table(self._table)

    def metadata_differences(self) -> list[Difference]:
        """Compare the metadata table with the files, and return the differences.

        The list is empty if there is no metadata table.
        """
        return metadata_differences(self._table)

    @cached_property
    def _rows(self) -> RowWriter:
        return RowWriter(
            self._table,
            self._buckets,
            partition_change=self._partition_change,
            event_time_column=self._event_time_column,
        )

    def _maintained(self) -> OpenTable:
        """Refresh the table, check that this project may rewrite its files, and return it."""
        table = self._refreshed()
        check_maintainable(table)
        return table

    def _refreshed(self) -> OpenTable:
        """Refresh the table, check that no restore is pending and its clock is known."""
        self._table.refresh()
        check_no_restore(self._table.timeline)
        self._table.store.clock.check()
        return self._table

    def _newest_commit(self) -> str:
        self._table.refresh()  # another writer may have committed
        completed = [i for i in self._table.timeline.completed() if i.action.is_ingest]
        if not completed:
            message = f"table {self.location} has no commit to keep"
            raise InvalidConfig(message)
        return completed[-1].requested_at


def _paths(undone: RollbackPlan) -> tuple[str, ...]:
    """Return the paths, relative to the table's root, of an undone instant's deleted files."""
    named = names_of(undone.files).items()
    return tuple(join(partition, name) for partition, names in named for name in names)


def _cleaning_policy(
    commits: int | None, hours: int | None, versions: int | None
) -> CleaningPolicy:
    if sum(given is not None for given in (commits, hours, versions)) > 1:
        message = "pass one of retain_commits, retain_hours and retain_versions"
        raise InvalidConfig(message)
    for given in (commits, hours, versions):
        if given is not None and given < 1:  # 0 versions would delete even the newest slice
            message = f"a clean retains at least 1 commit, hour or version, not {given}"
            raise InvalidConfig(message)
    if hours is not None:
        return CleaningPolicy(Retention.HOURS, hours=hours)
    if versions is not None:
        return CleaningPolicy(Retention.FILE_VERSIONS, file_versions=versions)
    return CleaningPolicy() if commits is None else CleaningPolicy(commits=commits)


def _check_chooses_rows(keys: Keys | None, where: pc.Expression | str | None) -> None:
    """Check that a deletion is limited to some rows.

    Raises:
        InvalidConfig: it is not.
    """
    if keys is None and where is None:
        message = "delete needs keys=… or where=…; to delete all rows, pass all keys"
        raise InvalidConfig(message)
