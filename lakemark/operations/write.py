"""Writes rows of this process to an open table. Each upsert or delete is one commit.

The steps of a commit are the same as for a batch of a stream (``TableWriter``). If a commit
conflicts with another writer's commit, our commit is rolled back and written again, based on the
new timeline. This is safe, because no reader saw the first attempt, and a delete searches for its
rows again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.keys import BUCKET_COUNT
from lakemark.config.merge_settings import merge_settings
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import MergeMode
from lakemark.errors import InvalidConfig, Retriable, WriteConflict
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.metadata.writer_state import MetadataTableBehind
from lakemark.model.action import COMMITS
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.commit_metadata import Operation, WriteStat
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, without_meta_columns
from lakemark.operations.given_keys import Keys, record_keys_of
from lakemark.operations.incoming_rows import (
    RowChanges,
    check_fixed_types,
    in_table_columns,
    with_new_columns,
)
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_index import table_index
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write_checks import check_hashing, check_stored_rows, check_stored_schema
from lakemark.operations.writer_settings import WriterSettings
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.streamer_progress import repeat_table_progress
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import Bucket, divide
from lakemark.write.write_context import WriteContext

#: Rows in the forms in which a caller may pass them.
Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]

_MAX_ATTEMPTS = 5
_LONGEST_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a write.

    Attributes:
        instant: the requested time of the commit; None if there was nothing to write.
        completed_at: the completion time of the commit.
        upserts: the number of the caller's rows that were written, including rows that lose against
            a newer row.
        deletes: the number of records that were deleted, or of rows that were marked as deleted.
        files: the number of files that the commit wrote.
        written_bytes: the total size of these files.
    """

    instant: str | None = None
    completed_at: str | None = None
    upserts: int = 0
    deletes: int = 0
    files: int = 0
    written_bytes: int = 0


class RowWriter:
    """Writes rows to one open table, commit after commit."""

    def __init__(
        self, table: OpenTable, buckets: int | None = None, runner: Runner | None = None
    ) -> None:
        """Create a writer, after a check that lakemark can continue the table.

        Args:
            table: the open table.
            buckets: the number of buckets in each partition; None to use the number that a commit
                records, or if the table has no bucket index.
            runner: runs the tasks that write files; None to use the table's runner.

        Raises:
            Unsupported: lakemark does not write such a table.
            InvalidConfig: the number of buckets is not known, or the table has no buckets; or
                stored rows have other keys or buckets.
        """
        check_allows(table.properties, Purpose.WRITE, table.location.url)
        check_stored_schema(table)
        check_hashing(table)
        index = table_index(table, buckets)
        self._records_first_count = table.bucket_count is None
        self._generator = check_stored_rows(table, index)
        settings = WriterSettings(
            index,
            first_ring_count=table.first_ring_count if index is None else None,
            merger_class=merger_class(table),
            metadata_table=table.properties.names_metadata_table,
        )
        known = table.known_schema
        if known is None:
            message = f"table {table.location.url} has no columns; create it with a schema"
            raise InvalidConfig(message)
        self._table = table
        self._writer = TableWriter(table, without_meta_columns(known), settings)
        self._runner = runner or table.runner or LocalRunner()
        self._has_recovered = False

    def upsert(self, rows: Rows, *, add_columns: bool = False) -> WriteResult:
        """Write rows; see ``lakemark.Table.upsert``."""
        before = self._writer.schema
        incoming = _as_table(rows, before)
        if add_columns:
            url = self._table.location.url
            after = with_new_columns(before, incoming.schema, url)
            check_fixed_types(before, after, self._table.properties, url)
            self._writer.evolve(after)

        def changes() -> pa.Table:
            columns = self._writer.schema
            own = in_table_columns(incoming, columns, self._table.location.url)
            return RowChanges.of(self._table, self._generator, columns).upserts(own)

        try:
            result = self._write(changes, Operation.UPSERT)
        except BaseException:
            self._writer.evolve(before)
            raise
        if result.instant is None:  # without rows, no commit records the new columns
            self._writer.evolve(before)
        return result

    def delete(self, record_keys: Keys | None, where: pc.Expression | str | None) -> WriteResult:
        """Delete records; see ``lakemark.Table.delete``."""
        columns, url = self._writer.schema, self._table.location.url
        wanted = None
        if record_keys is not None:
            wanted = record_keys_of(record_keys, self._generator, columns, url)

        def changes() -> pa.Table:
            columns = self._writer.schema
            of_table = RowChanges.of(self._table, self._generator, columns)
            needed = [RECORD_KEY, PARTITION_PATH, *of_table.columns_of_deletes]
            scan = self._table.scan(columns=needed, where=where, record_keys=wanted)
            return of_table.deletes(scan.to_table().combine_chunks(), columns)

        return self._write(changes, Operation.DELETE)

    def commit_schema(self) -> WriteResult:
        """Record the columns and the bucket count in a commit without rows."""
        return self._write(None, Operation.UPSERT)

    def _write(self, changes: Callable[[], pa.Table] | None, operation: Operation) -> WriteResult:
        self._recover()
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return self._attempt(changes, operation)
            except MetadataTableBehind:
                if attempt == _MAX_ATTEMPTS:
                    raise
                keep_metadata_table(self._table)
            except WriteConflict:
                if attempt == _MAX_ATTEMPTS:
                    raise
                time.sleep(random.uniform(0, _LONGEST_PAUSE_S))
        raise AssertionError

    def _recover(self) -> None:
        """Roll back the instants of dead writers, before the first and each later write."""
        if self._has_recovered:
            self._table.refresh()
            self._writer.clear_dead()
        else:
            self._writer.recover()
            self._has_recovered = True

    def _attempt(self, changes: Callable[[], pa.Table] | None, operation: Operation) -> WriteResult:
        context = self._writer.begin()
        made = self._make(changes)
        try:
            stats = [] if made is None else self._write_files(context, made)
            if made is not None and not stats:
                self._writer.cancel()
                return WriteResult()
            instant = self._writer.commit(
                stats, self._carried, self._check_bucket_count, operation=operation
            )
            self._records_first_count = False
        except WriteConflict:
            self._writer.abandon()  # roll back before the next attempt; an error here is raised
            raise
        except BaseException:
            with suppress(Retriable):  # the next write rolls the instant back
                self._writer.abandon()
            raise
        deletes = 0 if made is None else _count_deletes(made)
        return WriteResult(
            instant=instant.requested_at,
            completed_at=instant.completed_at,
            upserts=0 if made is None else made.num_rows - deletes,
            deletes=deletes,
            files=len(stats),
            written_bytes=sum(stat.total_write_bytes for stat in stats),
        )

    def _make(self, changes: Callable[[], pa.Table] | None) -> pa.Table | None:
        """Return the changes of an attempt; None for a commit without rows.

        If ``changes`` raises an error, the instant is removed.
        """
        try:
            return None if changes is None else changes()
        except BaseException:
            with suppress(Retriable):  # the next write rolls the instant back
                self._writer.cancel()
            raise

    def _write_files(self, context: WriteContext, changes: pa.Table) -> list[WriteStat]:
        assigned = self._writer.assign(context, changes)

        def write(part: tuple[Bucket, pa.Table]) -> WriteStat | None:
            bucket, rows = part
            return write_file_group(context, assigned.assignment.task(bucket), [rows])

        written = self._runner.map(write, divide(changes, assigned.numbers))
        return [stat for stat in written if stat is not None]

    def _check_bucket_count(self, timeline: Timeline) -> None:
        """Check that no other writer has recorded another bucket count since this writer opened.

        The check is needed only if no commit recorded a count when this writer opened the table.
        Then two processes that created the table at the same time may have chosen different counts.
        """
        index = self._writer.settings.index
        if index is None or not self._records_first_count:
            return
        ours = index.bucket_count
        for instant in timeline.completed(*COMMITS):
            theirs = self._table.store.read_commit(instant).extra_metadata.get(BUCKET_COUNT)
            if theirs is not None and int(theirs) != ours:
                message = (
                    f"table {self._table.location.url} has {theirs} buckets in each partition, "
                    f"not {ours}, because another process created it at the same time; open the "
                    "table with lakemark.open"
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


def _as_table(rows: Rows, columns: pa.Schema) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows.combine_chunks()
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all().combine_chunks()
    if type(rows).__module__.partition(".")[0] == "pandas":  # not imported for this
        message = "rows are a pandas DataFrame; pass pyarrow.Table.from_pandas(rows)"
        raise InvalidConfig(message)
    is_batches = isinstance(rows, Iterable) and not isinstance(rows, str | bytes | Mapping)
    batches: list[object] = list(rows) if is_batches else [rows]
    for one in batches:
        if not isinstance(one, pa.RecordBatch):
            message = (
                f"rows are or contain {repr(one)[:80]}, which is not a record batch; pass an Arrow "
                "table (convert dictionaries with pyarrow.Table.from_pylist)"
            )
            raise InvalidConfig(message)
    if not batches:
        return columns.empty_table()
    try:
        return pa.Table.from_batches(batches).combine_chunks()
    except pa.ArrowInvalid as error:
        message = f"the batches have different columns: {error}; convert them first"
        raise InvalidConfig(message) from error


def _count_deletes(changes: pa.Table) -> int:
    kinds = changes.column(CHANGE_KIND).to_numpy()
    return int(np.count_nonzero(kinds != ChangeKind.UPSERT))
