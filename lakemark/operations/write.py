"""Writes rows of this process to an open table. Each call of a method is one commit.

The steps of a commit are the same as for a batch of a stream (``TableWriter``). If a commit
conflicts with another writer's commit, our commit is rolled back and written again, based on the
new timeline. This is safe, because no reader saw the first attempt, and a delete searches for its
rows again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.keys import BUCKET_COUNT, CONSISTENT_HASHING, FIRST_BUCKETS, INDEX
from lakemark.config.merge_settings import merge_settings
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import MergeMode
from lakemark.errors import InvalidConfig, Retriable, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.index.bucket import BucketIndex
from lakemark.index.found_groups import FoundGroups
from lakemark.index.index import Index
from lakemark.metadata.partition_kind import has_record_index
from lakemark.metadata.writer_state import MetadataTableBehind
from lakemark.model.action import COMMITS
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.commit_metadata import Operation, WriteStat
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, without_meta_columns
from lakemark.operations.assigned_changes import AssignedChanges, rows_by_partition
from lakemark.operations.bulk_insert import (
    divide_rows,
    write_runs,
)
from lakemark.operations.compact import pending_compactions
from lakemark.operations.duplicate_keys import (
    Duplicates,
    check_no_duplicates,
    check_no_other_rows,
    find_stored_rows,
)
from lakemark.operations.given_keys import Keys, record_keys_of
from lakemark.operations.given_rows import Rows, as_table, each_table
from lakemark.operations.incoming_rows import (
    RowChanges,
    check_fixed_types,
    in_table_columns,
    with_new_columns,
)
from lakemark.operations.metadata_table import keep_metadata_table
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
    prepare_deletion,
)
from lakemark.operations.replaced_groups import (
    NOTHING_REPLACED,
    CompactionPending,
    ReplacedGroups,
)
from lakemark.operations.share_insert import ShareInsert, Shares
from lakemark.operations.table_index import (
    IndexKind,
    NewIndex,
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
from lakemark.operations.writer_settings import WriterSettings
from lakemark.read.scan import Scan
from lakemark.schema.field_path import top_column
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.streamer_progress import repeat_table_progress
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import Bucket, divide
from lakemark.write.sorted_runs import SortedRuns, SortMode
from lakemark.write.write_context import WriteContext

_Prepared = TypeVar("_Prepared")

_MAX_ATTEMPTS = 5
_LONGEST_PAUSE_S = 0.5

#: The columns with the partition path and the id of the file group of a row.
_FOLDER, _FILE_ID = "__folder", "__file_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a write.

    Attributes:
        instant: the requested time of the commit; None if there was nothing to write.
        completed_at: the completion time of the commit.
        upserts: the number of the caller's rows that an upsert wrote, including rows that lose
            against a newer row.
        inserts: the number of the caller's rows that an insert or a bulk insert wrote.
        skipped: the number of the caller's rows that an insert skipped, because their keys were
            stored already.
        deletes: the number of records that were deleted, or of rows that were marked as deleted.
        replaced_groups: the number of file groups that an overwrite replaced.
        files: the number of files that the commit wrote.
        written_bytes: the total size of these files.
    """

    instant: str | None = None
    completed_at: str | None = None
    upserts: int = 0
    inserts: int = 0
    skipped: int = 0
    deletes: int = 0
    replaced_groups: int = 0
    files: int = 0
    written_bytes: int = 0


class _Changes(NamedTuple):
    """The changes of an attempt, and the index that knows their file groups, if there is one."""

    rows: pa.Table
    places: Index | None = None


class _Written(NamedTuple):
    """The files of an attempt, the counts of the result, and the replaced file groups."""

    files: list[WriteStat]
    counts: WriteResult = WriteResult()
    replaced: ReplacedGroups = NOTHING_REPLACED


#: Writes the files of an attempt.
_Write: TypeAlias = Callable[[WriteContext], _Written]


class RowWriter:
    """Writes rows to one open table, commit after commit."""

    def __init__(
        self,
        table: OpenTable,
        buckets: int | None = None,
        runner: Runner | None = None,
        *,
        creates: NewIndex | None = None,
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
        self._records_first_index = creates is not None or records_first
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
        self._has_recovered = False

    def upsert(self, rows: Rows, *, add_columns: bool = False) -> WriteResult:
        """Write rows; see ``lakemark.Table.upsert``."""
        if self._table.properties.has_automatic_keys:
            message = (
                f"table {self._table.location.url} has automatic record keys, so an upsert cannot "
                "find the row that it changes; use insert, or delete the row and insert it again"
            )
            raise Unsupported(message)
        incoming = as_table(rows, self._writer.schema)

        def make() -> _Changes:
            return _Changes(self._converter().upserts(self._in_columns(incoming)))

        def write() -> WriteResult:
            return self._write(self._changes_writer(make, may_move=True), Operation.UPSERT)

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
            return self._write(self._inserts_writer(make, duplicates), Operation.INSERT)

        return self._with_columns_of(incoming.schema, add_columns, write)

    def bulk_insert(
        self, rows: Rows, sort: SortMode = SortMode.NONE, *, add_columns: bool = False
    ) -> WriteResult:
        """Insert a stream of rows; see ``lakemark.Table.bulk_insert``."""
        self._recover()
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
                return self._write(self._runs_writer(runs, buckets), Operation.BULK_INSERT)

            return self._with_columns_of(first.schema, add_columns, write)

    def bulk_insert_shares(
        self,
        columns: pa.Schema,
        shares: Shares,
        sort: SortMode = SortMode.NONE,
        *,
        add_columns: bool = False,
    ) -> WriteResult:
        """Insert rows that a cluster holds; see ``lakemark.spark.bulk_insert``.

        Args:
            columns: the columns of the rows.
            shares: the rows, which each attempt inserts again.
            sort: the order of the rows of a partition in each share.
            add_columns: whether columns that the table lacks are added.
        """
        self._check_insert(searches=False)
        shares.check(
            has_buckets=not self._writer.settings.looks_up_keys,
            has_automatic_keys=self._table.properties.has_automatic_keys,
        )
        self._recover()
        self._writer.add_columns_of_table()

        def write() -> WriteResult:
            self._in_columns(columns.empty_table())  # fails before the instant exists
            return self._write(self._shares_writer(shares, sort), Operation.BULK_INSERT)

        return self._with_columns_of(columns, add_columns, write)

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

        def write_files(context: WriteContext) -> _Written:
            changes, (assigned, replaced) = self._or_cancel(lambda: prepare(context))
            files = self._write_files(context, changes, assigned) if assigned else []
            count = len(replaced.groups)
            counts = WriteResult(inserts=changes.num_rows, replaced_groups=count)
            return _Written(files, counts, replaced)

        def write() -> WriteResult:
            return self._write(write_files, operation)

        return self._with_columns_of(incoming.schema, add_columns, write)

    def delete_partitions(self, choose: ChoosePartitions) -> PartitionDeletion:
        """Delete all rows of partitions; see ``lakemark.Table.delete_partitions``.

        Args:
            choose: returns the paths of the partitions. It is called again for each attempt.
        """
        self._check_replaces_partitions()
        deleted: tuple[PartitionContents, ...] = ()

        def write(context: WriteContext) -> _Written:
            nonlocal deleted
            found, replaced = self._or_cancel(
                lambda: prepare_deletion(self._table, context, choose, self._runner)
            )
            deleted = found.partitions
            return _Written([], WriteResult(replaced_groups=len(replaced.groups)), replaced)

        result = self._write(write, Operation.DELETE_PARTITION)
        return PartitionDeletion(result.instant, deleted)

    def _check_replaces_partitions(self) -> None:
        url, first_ring_count = self._table.location.url, self._writer.settings.first_ring_count
        check_replaces_partitions(url, first_ring_count)

    def delete(self, record_keys: Keys | None, where: pc.Expression | str | None) -> WriteResult:
        """Delete records; see ``lakemark.Table.delete``."""
        wanted = self._as_stored(record_keys)

        def make() -> _Changes:
            converter = self._converter()
            stored = self._find_stored(converter.columns_of_deletes, where, wanted)
            deletes = converter.deletes(stored, self._writer.schema)
            if not self._writer.settings.looks_up_keys or has_record_index(self._table.properties):
                return _Changes(deletes)
            if where is not None:
                self._check_deletes_whole_keys(stored)
            file_ids = stored[_FILE_ID].combine_chunks()
            groups = {path: file_ids.take(rows) for path, rows in rows_by_partition(stored)}
            return _Changes(deletes, FoundGroups(groups))

        return self._write(self._changes_writer(make), Operation.DELETE)

    def _check_deletes_whole_keys(self, chosen: pa.Table) -> None:
        """Check that no file group keeps a row with the key of a row that is deleted.

        Raises:
            Refused: a file group has such a row.
        """
        keys = pc.unique(chosen[RECORD_KEY]).to_pylist()
        check_no_other_rows(chosen, self._find_stored((), None, keys), [_FOLDER, _FILE_ID])

    def chosen_keys(self, record_keys: Keys | None, where: pc.Expression | str | None) -> list[str]:
        """Return the given record keys; with a condition, the keys of the rows that match it.

        Raises:
            InvalidConfig, InvalidRecords: as for ``delete``.
        """
        wanted = self._as_stored(record_keys)
        if where is None:
            return list(dict.fromkeys(wanted or ()))
        stored = self._find_stored((), where, wanted)
        keys: list[str] = pc.unique(stored.column(RECORD_KEY)).to_pylist()
        return keys

    def count_deletes(
        self, record_keys: Keys | None, where: pc.Expression | str | None
    ) -> dict[str, int]:
        """Return the number of rows that ``delete`` would delete, by partition path."""
        stored = self._find_stored((), where, self._as_stored(record_keys))
        paths = stored.column(PARTITION_PATH)
        counted = pc.value_counts(paths.combine_chunks()).to_pylist()
        return {one["values"]: one["counts"] for one in counted}

    def _as_stored(self, record_keys: Keys | None) -> list[str] | None:
        """Return the given record keys in the form that the table stores; None if none are given.

        Raises:
            InvalidConfig, InvalidRecords: see ``record_keys_of``.
        """
        if record_keys is None:
            return None
        url = self._table.location.url
        return record_keys_of(record_keys, self._generator, self._writer.schema, url)

    def _find_stored(
        self,
        columns: Sequence[str],
        where: pc.Expression | str | None,
        record_keys: Sequence[str] | None,
    ) -> pa.Table:
        """Return record key, partition path, some columns and file id of the rows to delete."""
        if self._table.properties.populates_meta_columns:
            columns = [RECORD_KEY, PARTITION_PATH, *columns]
            scan = self._table.scan(columns=columns, where=where, record_keys=record_keys)
            return _with_groups(scan)
        schema, fields = self._writer.schema, self._generator.config.record_key_fields
        needed = dict.fromkeys([*(top_column(name, schema) for name in fields), *columns])
        rows = _with_groups(self._table.scan(columns=list(needed), where=where))
        stored = rows.append_column(RECORD_KEY, self._generator.record_keys(rows))
        stored = stored.append_column(PARTITION_PATH, rows[_FOLDER])
        if record_keys is None:
            return stored
        is_wanted = pc.is_in(stored[RECORD_KEY], value_set=pa.array(record_keys, pa.string()))
        return stored.filter(is_wanted).combine_chunks()

    def commit_schema(self) -> WriteResult:
        """Record the columns and the bucket count in a commit without rows."""
        return self._write(lambda _: _Written([]), Operation.UPSERT, even_without_files=True)

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

    def _changes_writer(self, make: Callable[[], _Changes], *, may_move: bool = False) -> _Write:
        """Return a function that makes the changes of an attempt and writes them.

        Args:
            make: makes the changes.
            may_move: whether a change may belong to a row in another partition.
        """

        def write(context: WriteContext) -> _Written:
            changes, stored = self._or_cancel(make)
            deletes = _count_deletes(changes)
            counts = WriteResult(upserts=changes.num_rows - deletes, deletes=deletes)
            if may_move and self._writer.settings.global_keys and changes.num_rows:
                moved = self._writer.assigner.move_rows(context, changes)
                changes = pa.concat_tables([changes.slice(0, 0), *moved.apply([changes])])
                stored = moved.stored
            if not changes.num_rows:
                return _Written([], counts)
            assigned = self._writer.assigner.assign(context, changes, stored=stored)
            return _Written(self._write_files(context, changes, assigned), counts)

        return write

    def _inserts_writer(
        self, make: Callable[[WriteContext], pa.Table], duplicates: Duplicates
    ) -> _Write:
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

        def write(context: WriteContext) -> _Written:
            changes, assigned, skipped = self._or_cancel(lambda: prepare(context))
            is_insert = duplicates is Duplicates.ALLOW and self._writer.settings.looks_up_keys
            files = self._write_files(context, changes, assigned, is_insert=is_insert)
            return _Written(files, WriteResult(inserts=changes.num_rows, skipped=skipped))

        return write

    def _runs_writer(self, runs: SortedRuns, buckets: Sequence[Bucket]) -> _Write:
        """Return a function that writes the rows of a bulk insert."""
        # The runs are on this machine, so that a cluster could not read them.
        runner = self._runner if isinstance(self._runner, LocalRunner) else LocalRunner()

        def write(context: WriteContext) -> _Written:
            self._or_cancel(lambda: self._check_insert(searches=False))
            files = write_runs(self._writer, context, runs, buckets, runner)
            return _Written(files, WriteResult(inserts=runs.num_rows))

        return write

    def _effective_sort(self, sort: SortMode) -> SortMode:
        """Return the order of a bulk insert. Automatic keys are in the order of arrival anyway."""
        return SortMode.NONE if self._table.properties.has_automatic_keys else sort

    def _shares_writer(self, shares: Shares, sort: SortMode) -> _Write:
        """Return a function that writes the rows of a bulk insert in shares.

        The rows of a bucket arrive in any order, so they are sorted: then a task that runs again
        writes the same bytes.
        """

        def write(context: WriteContext) -> _Written:
            self._or_cancel(lambda: self._check_insert(searches=False))
            insert = ShareInsert(
                context=context,
                converter=self._converter(),
                columns=self._writer.schema,
                partitions=frozenset(self._table.view().partitions),
                max_file_bytes=self._table.base_files.max_file_bytes,
                sort=self._effective_sort(sort),
            )
            buckets = self._writer.assigner.place_buckets(lambda: shares.partition_paths(insert))
            if buckets is not None:
                insert = replace(insert, buckets=buckets, sort=SortMode.GLOBAL)
            written = shares.insert(insert)
            files = [stat for share in written for stat in share.files]
            return _Written(files, WriteResult(inserts=sum(share.num_rows for share in written)))

        return write

    def _write(
        self, write: _Write, operation: Operation, *, even_without_files: bool = False
    ) -> WriteResult:
        self._recover()
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return self._attempt(write, operation, even_without_files)
            except MetadataTableBehind:
                if attempt == _MAX_ATTEMPTS:
                    raise
                keep_metadata_table(self._table)
            except WriteConflict as conflict:
                if attempt == _MAX_ATTEMPTS:
                    raise
                time.sleep(random.uniform(0, _LONGEST_PAUSE_S))
                if isinstance(conflict, CompactionPending):
                    self._run_compactions(conflict.instants)
        raise AssertionError

    def _run_compactions(self, instants: Collection[str]) -> None:
        """Execute pending compactions, unless another writer executes them."""
        for planned in pending_compactions(self._table):
            if planned[0].requested_at in instants:
                self._writer.run_compaction(planned, self._runner)

    def _recover(self) -> None:
        """Roll back the instants of dead writers, before the first and each later write.

        A resize of buckets that a dead writer has planned is executed, because no row can be
        written to the buckets that it replaces.
        """
        if self._has_recovered:
            self._table.refresh()
            self._writer.clear_dead()
        else:
            self._writer.recover()
            self._has_recovered = True
        self._writer.resize_if_due(None, self._runner)

    def _attempt(
        self, write: _Write, operation: Operation, even_without_files: bool
    ) -> WriteResult:
        context = self._writer.begin(operation)
        try:
            files, counts, replaced = write(context)
            if not (files or replaced.file_ids or even_without_files):
                self._writer.cancel()
                return replace(counts, upserts=0, inserts=0, deletes=0)
            instant = self._writer.commit(
                files, self._carried, self._check_index, operation=operation, replaced=replaced
            )
            self._records_first_index = False
        except WriteConflict:
            self._writer.abandon()  # roll back before the next attempt; an error here is raised
            raise
        except BaseException:
            with suppress(Retriable):  # the next write rolls the instant back
                self._writer.abandon()
            raise
        return replace(
            counts,
            instant=instant.requested_at,
            completed_at=instant.completed_at,
            files=len(files),
            written_bytes=sum(stat.total_write_bytes for stat in files),
        )

    def _or_cancel(self, prepare: Callable[[], _Prepared]) -> _Prepared:
        """Return what ``prepare`` returns. If it raises an error, the instant is removed.

        ``prepare`` must not write a file.
        """
        try:
            return prepare()
        except BaseException:
            with suppress(Retriable):  # the next write rolls the instant back
                self._writer.cancel()
            raise

    def _write_files(
        self,
        context: WriteContext,
        changes: pa.Table,
        assigned: AssignedChanges,
        *,
        is_insert: bool = False,
    ) -> list[WriteStat]:
        def write(part: tuple[Bucket, pa.Table]) -> WriteStat | None:
            bucket, rows = part
            task = replace(assigned.assignment.task(bucket), is_insert=is_insert)
            return write_file_group(context, task, [rows])

        written = self._runner.map(write, divide(changes, assigned.numbers))
        return [stat for stat in written if stat is not None]

    def _check_index(self, timeline: Timeline) -> None:
        """Check that no other writer has recorded another index since this writer opened.

        The check is needed only if no commit recorded an index when this writer opened the table.
        Then two processes that created the table at the same time may have chosen different ones.
        """
        if not self._records_first_index:
            return
        ours = _index_text(self._writer.settings.index_metadata())
        for instant in timeline.completed(*COMMITS):
            theirs = _index_text(self._table.store.read_commit(instant).extra_metadata)
            if theirs is not None and theirs != ours:
                message = (
                    f"table {self._table.location.url} has {theirs}, not {ours}, because another "
                    "process created it at the same time; open the table with lakemark.open"
                )
                raise InvalidConfig(message)

    def _carried(self, timeline: Timeline) -> dict[str, str]:
        return repeat_table_progress(self._table.store, timeline)


def merger_class(table: OpenTable) -> str | None:
    """Return the class name of the user's merger, for workers; None unless mode is ``CUSTOM``."""
    settings = merge_settings(table.properties)
    if settings.mode is not MergeMode.CUSTOM:
        return None
    wanted = (settings.strategy_id or "").lower()
    for merger in table.mergers:
        if merger.merging_strategy.lower() == wanted:
            return merger.name
    return None


def _new_index(table: OpenTable, creates: NewIndex) -> tuple[BucketIndex | None, int | None]:
    """Return the bucket index of a new table, and the bucket count of its first hash rings."""
    count = creates.buckets
    if creates.kind is IndexKind.CONSISTENT_HASHING:
        return None, count
    key_fields = table.properties.record_key_fields
    return (None if count is None else BucketIndex(count, key_fields, table.hash_fields)), None


def _index_text(extra_metadata: Mapping[str, str]) -> str | None:
    """Return the index that a commit records; None if it records none."""
    count, name = extra_metadata.get(BUCKET_COUNT), extra_metadata.get(INDEX)
    if count is not None:
        return f"{count} buckets in each partition"
    if name == CONSISTENT_HASHING:
        return f"consistent hashing with {extra_metadata.get(FIRST_BUCKETS)} buckets at first"
    return None if name is None else "a lookup index"


def _with_groups(scan: Scan) -> pa.Table:
    """Return the rows of a scan, each with the partition path and the id of its file group."""

    def read(file_slice: FileSlice) -> pa.Table:
        return _in_group(scan.with_slices([file_slice]).to_table(threads=1), file_slice.group)

    nothing = _in_group(scan.schema.empty_table(), FileGroupId("", ""))
    return pa.concat_tables([nothing, *LocalRunner().map(read, scan.slices)]).combine_chunks()


def _in_group(rows: pa.Table, group: FileGroupId) -> pa.Table:
    rows = rows.append_column(_FOLDER, pa.repeat(group.partition_path, rows.num_rows))
    return rows.append_column(_FILE_ID, pa.repeat(group.file_id, rows.num_rows))


def _count_deletes(changes: pa.Table) -> int:
    kinds = changes.column(CHANGE_KIND).to_numpy()
    return int(np.count_nonzero(kinds != ChangeKind.UPSERT))
