"""Writes rows of this process to an open table. Each call of a method is one commit.

The steps of a commit are the same as for a batch of a stream (``TableWriter``). A commit that
conflicts with another writer's commit is written again (``CommitAttempts``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.index.bucket import BucketIndex
from lakemark.index.found_groups import FoundGroups
from lakemark.index.key_lookup import KeyLookup
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.metadata.partition_kind import has_record_index
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.commit_metadata import Operation, WriteStat
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.assigned_changes import AssignedChanges, rows_by_partition
from lakemark.operations.bulk_insert import (
    divide_rows,
    write_runs,
)
from lakemark.operations.commit_attempts import CommitAttempts, WriteFiles, Written
from lakemark.operations.duplicate_keys import (
    Duplicates,
    check_no_duplicates,
    find_stored_rows,
)
from lakemark.operations.given_keys import Keys
from lakemark.operations.given_rows import Rows, as_table, each_table
from lakemark.operations.incoming_rows import (
    RowChanges,
    check_fixed_types,
    check_key_columns,
    in_table_columns,
    with_new_columns,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.overwrite import (
    Overwrite,
    check_replaces_partitions,
    prepare_overwrite,
)
from lakemark.operations.partition_deletion import (
    ChoosePartitions,
    PartitionContents,
    PartitionDeletion,
    check_is_partitioned,
    prepare_deletion,
)
from lakemark.operations.rows_to_delete import FILE_ID, RowsToDelete
from lakemark.operations.share_plan import SharePlan, plan_shares
from lakemark.operations.share_write import RowPaths, SharedWrite, Shares, ShareWrite
from lakemark.operations.stream_batch import StreamBatch
from lakemark.operations.table_index import (
    ChosenIndex,
    IndexKind,
    PartitionChange,
    keeps_keys_global,
    table_index,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write_checks import (
    check_hashing,
    check_stored_rows,
    check_stored_schema,
    check_value_indexes,
)
from lakemark.operations.write_context import merger_class
from lakemark.operations.write_result import WriteResult
from lakemark.operations.writer_settings import WriterSettings
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import Bucket, divide
from lakemark.write.sorted_runs import SortedRuns, SortMode
from lakemark.write.write_context import WriteContext


class _Changes(NamedTuple):
    """The changes of an attempt, and the index that knows their file groups, if there is one."""

    rows: pa.Table
    places: KeyLookup | None = None


class RowWriter:
    """Writes rows to one open table, commit after commit."""

    def __init__(
        self,
        table: OpenTable,
        buckets: int | None = None,
        runner: Runner | None = None,
        *,
        creates: ChosenIndex | None = None,
        partition_change: PartitionChange | None = None,
        event_time_column: str | None = None,
    ) -> None:
        """Create a writer, after a check that lakemark can continue the table.

        Args:
            table: the open table.
            buckets: the number of buckets in each partition; None to use the number that a commit
                records, or if the table has no bucket index.
            runner: runs the tasks that write files; None to use the table's runner.
            creates: the index of a new table; None to continue with the index of the table.
            partition_change: what happens to a row whose key exists in another partition; None to
                continue as the table's commits record.
            event_time_column: the column whose earliest and latest values the commits contain.

        Raises:
            Unsupported: lakemark does not write such a table.
            InvalidConfig: the number of buckets is not known, or the table has no buckets; or
                stored rows have other keys or buckets; or ``partition_change`` does not fit the
                table; or the event time column does not exist, or contains no times.
        """
        check_allows(table.properties, Purpose.WRITE, table.location.url)
        check_value_indexes(table)
        check_stored_schema(table)
        check_hashing(table)
        if creates is None:
            index = table_index(table, buckets)
            first_ring_count = table.first_ring_count if index is None else None
        else:
            index, first_ring_count = _new_index(table, creates)
        has_one_count = index is not None and index.partitions is None
        is_unrecorded = table.bucket_count is None or bool(table.index_of_creation)
        records_first = has_one_count and is_unrecorded
        self._generator = check_stored_rows(table, index)
        looks_up = index is None and first_ring_count is None
        settings = WriterSettings(
            index,
            first_ring_count=first_ring_count,
            merger_class=merger_class(table),
            metadata_table=table.properties.names_metadata_table
            or bool(table.properties.metadata_indexes),
            global_keys=keeps_keys_global(table, partition_change, looks_up=looks_up),
            event_time_column=event_time_column,
        )
        known = table.known_schema
        if known is None:
            message = (
                f"table {table.location.url} has no columns, because it has no commit; create it "
                "with a schema, or let its pipeline write the first records"
            )
            raise InvalidConfig(message)
        self._table = table
        self._writer = TableWriter(table, without_meta_columns(known), settings)
        self._runner = runner or table.runner or LocalRunner()
        self._attempts = CommitAttempts(
            self._writer, self._runner, records_first_index=creates is not None or records_first
        )

    @property
    def key_generator(self) -> KeyGenerator:
        """Computes the record keys of the table's rows."""
        return self._generator

    def in_batch(self, batch: StreamBatch) -> AbstractContextManager[None]:
        """Write a batch of a stream once; see ``lakemark.Table.batch``."""
        return self._attempts.in_batch(batch)

    def upsert(self, rows: Rows, *, add_columns: bool = False) -> WriteResult:
        """Write rows; see ``lakemark.Table.upsert``."""
        self._check_has_keys()
        incoming = as_table(rows, self._writer.schema)

        def make() -> _Changes:
            return _Changes(self._converter().upserts(self._in_columns(incoming)))

        def write() -> WriteResult:
            return self._attempts.run(self._changes_writer(make, may_move=True), Operation.UPSERT)

        return self._with_columns_of(incoming.schema, add_columns, write)

    def insert(
        self,
        rows: Rows,
        duplicates: Duplicates = Duplicates.ALLOW,
        *,
        add_columns: bool = False,
    ) -> WriteResult:
        """Insert rows; see ``lakemark.Table.insert``."""
        incoming = as_table(rows, self._writer.schema)

        def make(context: WriteContext) -> pa.Table:
            self._check_insert(searches=duplicates is not Duplicates.ALLOW)
            converter = self._converter()
            new_keys = converter.new_keys(context.instant)
            return converter.inserts(self._in_columns(incoming), new_keys)

        def write() -> WriteResult:
            return self._attempts.run(self._inserts_writer(make, duplicates), Operation.INSERT)

        return self._with_columns_of(incoming.schema, add_columns, write)

    def bulk_insert(
        self, rows: Rows, sort: SortMode = SortMode.NONE, *, add_columns: bool = False
    ) -> WriteResult:
        """Insert a stream of rows; see ``lakemark.Table.bulk_insert``."""
        self._attempts.recover()
        self._check_insert(searches=False)
        arriving = each_table(rows)
        first = next(arriving, None)
        if first is None:
            return WriteResult()
        self._writer.add_columns_of_table()
        with SortedRuns(self._effective_sort(sort)) as runs:

            def write() -> WriteResult:
                tables = chain([first], arriving)
                buckets = divide_rows(self._writer, self._converter(), tables, runs)
                if not buckets:
                    return WriteResult()
                return self._attempts.run(self._runs_writer(runs, buckets), Operation.BULK_INSERT)

            return self._with_columns_of(first.schema, add_columns, write)

    def write_shares(
        self,
        columns: pa.Schema,
        shares: Shares,
        wanted: SharedWrite,
        *,
        add_columns: bool = False,
    ) -> WriteResult:
        """Write rows that a cluster holds; see ``lakemark.spark.write``.

        Args:
            columns: the columns of the rows.
            shares: the rows, which each attempt writes again.
            wanted: what the commit does with the rows.
            add_columns: whether columns that the table lacks are added.
        """
        self._check_shared(wanted, columns)
        if wanted.operation is Operation.DELETE_PARTITION:
            return self._delete_partitions_of(columns, shares)
        if wanted.operation is Operation.UPSERT and self._writer.settings.global_keys:
            return self.upsert(shares.gather(), add_columns=add_columns)
        shares.check(
            has_buckets=not self._writer.settings.looks_up_keys,
            has_automatic_keys=self._table.properties.has_automatic_keys,
        )
        self._attempts.recover()
        self._writer.add_columns_of_table()

        def write() -> WriteResult:
            self._in_columns(columns.empty_table())  # fails before the instant exists
            return self._attempts.run(self._shares_writer(shares, wanted), wanted.operation)

        return self._with_columns_of(columns, add_columns, write)

    def _check_shared(self, wanted: SharedWrite, columns: pa.Schema) -> None:
        """Check that rows of a cluster can be written, before they are evaluated."""
        operation = wanted.operation
        if operation is Operation.UPSERT:
            self._check_has_keys()
        elif operation in (Operation.INSERT, Operation.BULK_INSERT):
            self._check_insert(searches=wanted.duplicates is not Duplicates.ALLOW)
        else:
            self._check_replaces_partitions()
        url, only_paths = self._table.location.url, operation is Operation.DELETE_PARTITION
        check_key_columns(columns, self._table.properties, url, only_paths=only_paths)

    def _delete_partitions_of(self, columns: pa.Schema, shares: Shares) -> WriteResult:
        """Delete all rows of the partitions of rows, as far as they exist."""
        check_is_partitioned(self._table)
        self._in_columns(columns.empty_table())
        url = self._table.location.url
        paths = shares.partition_paths(RowPaths(self._converter(), self._writer.schema, url))

        def choose(view: FileSystemView) -> list[str]:
            return sorted(view.partitions.intersection(paths))

        return self._delete_partitions(choose)[0]

    def _check_has_keys(self) -> None:
        """Check that an upsert can find the rows that it changes.

        Raises:
            Unsupported: the table has automatic record keys.
        """
        if self._table.properties.has_automatic_keys:
            message = (
                f"table {self._table.location.url} has automatic record keys, so an upsert cannot "
                "find the row that it changes; use insert, or delete the row and insert it again"
            )
            raise Unsupported(message)

    def _check_insert(self, *, searches: bool) -> None:
        """Check that an insert leaves keys unique where the table demands this.

        Args:
            searches: whether the insert searches its keys in their partitions.

        Raises:
            Unsupported: keys must be unique in the whole table, and the insert might add one twice.
        """
        url, reason = self._table.location.url, None
        if self._table.properties.has_automatic_keys:
            if searches:
                reason = (
                    "has automatic record keys, so that no row of an insert has a stored key; "
                    "leave duplicates out"
                )
        elif has_record_index(self._table.properties):
            if not searches:
                reason = (
                    "has a record index, in which each record key has one location; insert with "
                    "duplicates='drop' or 'fail', or use upsert"
                )
        elif self._writer.settings.global_keys:
            reason = "keeps each record key unique in the whole table; use upsert"
        if reason is not None:
            message = f"table {url} {reason}"
            raise Unsupported(message)

    def overwrite(
        self, rows: Rows, operation: Operation, *, add_columns: bool = False
    ) -> WriteResult:
        """Replace the rows of partitions; see ``lakemark.Table.insert_overwrite``.

        Args:
            rows: the rows.
            operation: ``INSERT_OVERWRITE`` or ``INSERT_OVERWRITE_TABLE``.
            add_columns: whether columns that the table lacks are added.
        """
        self._check_replaces_partitions()
        incoming = as_table(rows, self._writer.schema)

        def prepare(context: WriteContext) -> tuple[pa.Table, Overwrite]:
            converter, runner = self._converter(), self._runner
            new_keys = converter.new_keys(context.instant)
            changes = converter.inserts(self._in_columns(incoming), new_keys)
            return changes, prepare_overwrite(self._writer, context, changes, operation, runner)

        def write_files(context: WriteContext) -> Written:
            changes, (assigned, replaced) = self._attempts.or_cancel(lambda: prepare(context))
            files = self._write_files(context, changes, assigned) if assigned else []
            count = len(replaced.groups)
            counts = WriteResult(inserts=changes.num_rows, replaced_groups=count)
            return Written(files, counts, replaced)

        def write() -> WriteResult:
            return self._attempts.run(write_files, operation)

        return self._with_columns_of(incoming.schema, add_columns, write)

    def delete_partitions(self, choose: ChoosePartitions) -> PartitionDeletion:
        """Delete all rows of partitions; see ``lakemark.Table.delete_partitions``.

        Args:
            choose: returns the paths of the partitions. It is called again for each attempt.
        """
        result, deleted = self._delete_partitions(choose)
        return PartitionDeletion(result.instant, deleted)

    def _delete_partitions(
        self, choose: ChoosePartitions
    ) -> tuple[WriteResult, tuple[PartitionContents, ...]]:
        self._check_replaces_partitions()
        deleted: tuple[PartitionContents, ...] = ()

        def write(context: WriteContext) -> Written:
            nonlocal deleted
            found, replaced = self._attempts.or_cancel(
                lambda: prepare_deletion(self._table, context, choose, self._runner)
            )
            deleted = found.partitions
            return Written([], WriteResult(replaced_groups=len(replaced.groups)), replaced)

        return self._attempts.run(write, Operation.DELETE_PARTITION), deleted

    def _check_replaces_partitions(self) -> None:
        url, first_ring_count = self._table.location.url, self._writer.settings.first_ring_count
        check_replaces_partitions(url, first_ring_count)

    def delete(self, record_keys: Keys | None, where: pc.Expression | str | None) -> WriteResult:
        """Delete records; see ``lakemark.Table.delete``."""
        wanted = self._to_delete.stored_form(record_keys)

        def make() -> _Changes:
            converter = self._converter()
            stored = self._to_delete.find(converter.columns_of_deletes, where, wanted)
            deletes = converter.deletes(stored, self._writer.schema)
            if not self._writer.settings.looks_up_keys or has_record_index(self._table.properties):
                return _Changes(deletes)
            if where is not None:
                self._to_delete.check_whole_keys(stored)
            file_ids = stored[FILE_ID].combine_chunks()
            groups = {path: file_ids.take(rows) for path, rows in rows_by_partition(stored)}
            return _Changes(deletes, FoundGroups(groups))

        return self._attempts.run(self._changes_writer(make), Operation.DELETE)

    def chosen_keys(self, record_keys: Keys | None, where: pc.Expression | str | None) -> list[str]:
        """Return the keys of the rows that ``delete`` would delete; see ``RowsToDelete.keys``."""
        return self._to_delete.keys(record_keys, where)

    def count_deletes(
        self, record_keys: Keys | None, where: pc.Expression | str | None
    ) -> dict[str, int]:
        """Return the number of rows that ``delete`` would delete, by partition path."""
        return self._to_delete.count_by_partition(record_keys, where)

    @property
    def _to_delete(self) -> RowsToDelete:
        return RowsToDelete(self._table, self._generator, self._writer.schema)

    def commit_schema(self) -> WriteResult:
        """Record the columns and the bucket count in a commit without rows."""
        return self._attempts.run(lambda _: Written([]), Operation.UPSERT, even_without_files=True)

    def _converter(self) -> RowChanges:
        return RowChanges.of(self._table, self._generator, self._writer.schema)

    def _in_columns(self, incoming: pa.Table) -> pa.Table:
        return in_table_columns(incoming, self._writer.schema, self._table.location.url)

    def _with_columns_of(
        self, given: pa.Schema, add_columns: bool, write: Callable[[], WriteResult]
    ) -> WriteResult:
        """Write, with the columns that the table lacks if the caller adds columns."""
        before = self._writer.schema
        if add_columns:
            url = self._table.location.url
            after = with_new_columns(before, given, url)
            check_fixed_types(before, after, self._table.properties, url)
            self._writer.evolve(after)
        try:
            result = write()
        except BaseException:
            self._writer.evolve(before)
            raise
        if result.instant is None:  # without rows, no commit records the new columns
            self._writer.evolve(before)
        return result

    def _changes_writer(
        self, make: Callable[[], _Changes], *, may_move: bool = False
    ) -> WriteFiles:
        """Return a function that makes the changes of an attempt and writes them.

        Args:
            make: makes the changes.
            may_move: whether a change may belong to a row in another partition.
        """

        def write(context: WriteContext) -> Written:
            changes, stored = self._attempts.or_cancel(make)
            deletes = _count_deletes(changes)
            counts = WriteResult(upserts=changes.num_rows - deletes, deletes=deletes)
            if may_move and self._writer.settings.global_keys and changes.num_rows:
                moved = self._writer.assigner.move_rows(context, changes)
                changes = pa.concat_tables([changes.slice(0, 0), *moved.apply([changes])])
                stored = moved.stored
            if not changes.num_rows:
                return Written([], counts)
            assigned = self._writer.assigner.assign(context, changes, stored=stored)
            return Written(self._write_files(context, changes, assigned), counts)

        return write

    def _inserts_writer(
        self, make: Callable[[WriteContext], pa.Table], duplicates: Duplicates
    ) -> WriteFiles:
        """Return a function that makes the rows of an attempt and inserts them."""

        def prepare(context: WriteContext) -> tuple[pa.Table, AssignedChanges, int]:
            changes = make(context)
            if duplicates is Duplicates.ALLOW:
                return changes, self._writer.assigner.assign(context, changes, looks_up=False), 0
            assigned = self._writer.assigner.assign(context, changes)
            stored = find_stored_rows(context.reader, LocalRunner(), changes, assigned)
            if duplicates is Duplicates.FAIL:
                check_no_duplicates(changes, stored, self._table.location.url)
            kept = replace(assigned, numbers=assigned.numbers[~stored])
            return changes.filter(pa.array(~stored)), kept, int(stored.sum())

        def write(context: WriteContext) -> Written:
            changes, assigned, skipped = self._attempts.or_cancel(lambda: prepare(context))
            is_insert = duplicates is Duplicates.ALLOW and self._writer.settings.looks_up_keys
            files = self._write_files(context, changes, assigned, is_insert=is_insert)
            return Written(files, WriteResult(inserts=changes.num_rows, skipped=skipped))

        return write

    def _runs_writer(self, runs: SortedRuns, buckets: Sequence[Bucket]) -> WriteFiles:
        """Return a function that writes the rows of a bulk insert."""
        # The runs are on this machine, so that a cluster could not read them.
        runner = self._runner if isinstance(self._runner, LocalRunner) else LocalRunner()

        def write(context: WriteContext) -> Written:
            self._attempts.or_cancel(lambda: self._check_insert(searches=False))
            files = write_runs(self._writer, context, runs, buckets, runner)
            return Written(files, WriteResult(inserts=runs.num_rows))

        return write

    def _effective_sort(self, sort: SortMode) -> SortMode:
        """Return the order of a bulk insert. Automatic keys are in the order of arrival anyway."""
        return SortMode.NONE if self._table.properties.has_automatic_keys else sort

    def _shares_writer(self, shares: Shares, wanted: SharedWrite) -> WriteFiles:
        """Return a function that writes the rows of a cluster in shares."""

        def plan(context: WriteContext) -> SharePlan:
            if wanted.operation in (Operation.INSERT, Operation.BULK_INSERT):
                self._check_insert(searches=wanted.duplicates is not Duplicates.ALLOW)
            base = ShareWrite(
                context=context,
                converter=self._converter(),
                columns=self._writer.schema,
                partitions=frozenset(self._table.view().partitions),
                max_file_bytes=self._table.base_files.max_file_bytes,
                sort=self._effective_sort(wanted.sort),
                may_delete=wanted.operation is Operation.UPSERT,
            )
            return plan_shares(self._writer, shares, wanted, base, self._runner)

        def write(context: WriteContext) -> Written:
            planned = self._attempts.or_cancel(lambda: plan(context))
            written = planned.run(shares)
            files = [stat for share in written for stat in share.files]
            num_rows = sum(share.num_rows for share in written)
            deletes, replaced = sum(share.deletes for share in written), planned.replaced
            counts = WriteResult(skipped=planned.skipped, replaced_groups=len(replaced.groups))
            if wanted.operation is Operation.UPSERT:
                counts = replace(counts, upserts=num_rows - deletes, deletes=deletes)
            else:
                counts = replace(counts, inserts=num_rows)
            return Written(files, counts, replaced)

        return write

    def _write_files(
        self,
        context: WriteContext,
        changes: pa.Table,
        assigned: AssignedChanges,
        *,
        is_insert: bool = False,
    ) -> list[WriteStat]:
        def write(part: tuple[Bucket, pa.Table]) -> list[WriteStat]:
            bucket, rows = part
            task = replace(assigned.assignment.task(bucket), is_insert=is_insert)
            return write_file_group(context, task, [rows])

        written = self._runner.map(write, divide(changes, assigned.numbers))
        return [stat for stats in written for stat in stats]


def _new_index(table: OpenTable, creates: ChosenIndex) -> tuple[BucketIndex | None, int | None]:
    """Return the bucket index of a new table, and the bucket count of its first hash rings."""
    count = creates.buckets
    if creates.kind is IndexKind.CONSISTENT_HASHING:
        return None, count
    key_fields = table.properties.record_key_fields
    return (None if count is None else BucketIndex(count, key_fields, table.hash_fields)), None


def _count_deletes(changes: pa.Table) -> int:
    kinds = changes.column(CHANGE_KIND).to_numpy()
    return int(np.count_nonzero(kinds != ChangeKind.UPSERT))
