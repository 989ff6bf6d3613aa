"""The two functions that an exchange runs in the workers: to prepare chunks, to write buckets."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.merge_settings import MergeSettings
from lakemark.config.table_properties import TableType
from lakemark.index.bucket import BucketIndex
from lakemark.index.partition_changes import deciding_columns, find_partition_changes
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import (
    Bucket,
    BucketSpans,
    SortedRows,
    sort_by_bucket,
    task_of,
)
from lakemark.write.write_context import WriteContext
from sinks.audit import ChangeCounts, RecordsRead
from sinks.dead_letters import first_reject
from sinks.hudi.check_run import CheckRun
from sinks.hudi.exchange import BucketWritten, Portion, PortionKind, PortionResult
from sinks.hudi.partition_rule import ChangedRows
from sinks.hudi.placement import Placement
from sinks.letter_layout import WITHOUT_DAYS, LetterLayout
from sinks.reject_counts import RejectCount, count_by_code, merge_counts
from transforms.converted_batch import ConvertedBatch
from transforms.raw_records import parts_of, sort_by_arrival
from transforms.record_converter import RecordConverter
from transforms.schema_request import SchemaRequest
from transforms.violations import Violations

#: The bucket of portions that are not divided, so that one task receives all of them.
_ONE_BUCKET = Bucket("", 0)


@dataclass(frozen=True, kw_only=True)
class PrepareChunk:
    """Decodes a chunk of raw records, and divides the changes and rejects by bucket.

    There are up to four further portions. One contains the number of records. They are counted
    here, when they are read, so that the number can be compared with the number of changes that are
    written later. The others contain a schema request, the violations of rules, and the rows that
    the checks of the batch judge, if there are any.

    Attributes:
        converter: decodes the records.
        row_index: the bucket index of the table; None if the keys are looked up when the batch is
            written.
        reject_index: the bucket index of the dead-letter table.
        looked_up: the merge settings of the table, if the keys of the changes are looked up in
            other partitions. The keys are divided by bucket, because a key has the same bucket
            number in each partition.
        refused: rows that become dead letters, because their key exists in another partition.
        checked: the columns that the checks of the batch read; empty if no checks judge it.
        letters: how dead letters are written.
    """

    converter: RecordConverter
    row_index: BucketIndex | None
    reject_index: BucketIndex
    looked_up: MergeSettings | None = None
    refused: ChangedRows | None = None
    checked: tuple[str, ...] = ()
    letters: LetterLayout = WITHOUT_DAYS

    def __call__(self, records: pa.Table, tasks: int) -> list[Portion]:
        """See ``Prepare``."""
        prepared = self.converter(records)
        if self.refused is not None:
            prepared = self.refused.reject_from(prepared, records, self.converter)
        added_rows = self._added_rows(prepared, records)
        counts = RecordsRead.in_chunk(records, prepared.ignored, prepared.filtered, added_rows)
        portions = [
            *self._divide(prepared, tasks),
            _undivided(PortionKind.READ_COUNT, counts.to_table()),
        ]
        if prepared.request:
            portions.append(_undivided(PortionKind.SCHEMA_REQUEST, prepared.request.to_table()))
        if prepared.violations:
            portions.append(_undivided(PortionKind.VIOLATIONS, prepared.violations.to_table()))
        if self.checked:
            portions += self._checked_rows(prepared.changes)
        return portions

    def _checked_rows(self, changes: pa.Table) -> Iterator[Portion]:
        """Yield the rows that are not deletes, with the columns that the checks read."""
        is_upsert = pc.equal(changes.column(CHANGE_KIND), int(ChangeKind.UPSERT))
        rows = changes.select(self.checked)
        if not pc.all(is_upsert).as_py():
            rows = rows.filter(is_upsert)
        if rows.num_rows:
            yield _undivided(PortionKind.CHECKED_ROWS, rows)

    def _added_rows(self, prepared: ConvertedBatch, records: pa.Table) -> Mapping[int, int]:
        """Count the changes of each part of the batch, without the first of each record."""
        repeated = prepared.arrivals[1:][np.diff(prepared.arrivals) == 0]
        if not len(repeated):
            return {}
        parts = parts_of(sort_by_arrival(records)).take(pa.array(repeated))
        return dict(Counter(parts.to_pylist()))

    def _divide(self, prepared: ConvertedBatch, tasks: int) -> Iterator[Portion]:
        changes = prepared.changes
        if changes.num_rows:
            yield _divided(PortionKind.ROWS, changes, self.row_index, tasks)
        if len(prepared.rejects):
            rejects = self.letters.to_changes(prepared.rejects)
            yield _divided(PortionKind.REJECTS, rejects, self.reject_index, tasks)
        if changes.num_rows and self.looked_up is not None:
            yield self._divide_keys(changes, self.looked_up, tasks)

    def _divide_keys(self, changes: pa.Table, settings: MergeSettings, tasks: int) -> Portion:
        assert self.row_index is not None, "keys are compared bucket by bucket"
        keys = changes.select(deciding_columns(changes.schema, settings))
        assert self.row_index.partitions is None, "a key has one bucket number in all partitions"
        numbers = self.row_index.bucket_ids(keys.column(RECORD_KEY))
        nowhere = pa.repeat("", keys.num_rows)
        kind = PortionKind.KEYS
        return Portion(kind, sort_by_bucket(nowhere, numbers, keys, tasks, kind))


def _divided(
    kind: PortionKind, changes: pa.Table, index: BucketIndex | None, tasks: int
) -> Portion:
    if index is None:
        return _undivided(kind, changes)  # in order of arrival; ``WriteBuckets.place`` sorts them
    numbers = index.bucket_ids(changes.column(RECORD_KEY), changes.column(PARTITION_PATH))
    paths = changes.column(PARTITION_PATH)
    return Portion(kind, sort_by_bucket(paths, numbers, changes, tasks, kind))


def _undivided(kind: PortionKind, rows: pa.Table) -> Portion:
    return Portion(kind, SortedRows(rows, BucketSpans.of_one(_ONE_BUCKET, rows.num_rows)))


@dataclass(frozen=True)
class BucketWriter:
    """Writes the buckets of one table.

    Attributes:
        context: the context of the pending commit.
        assignment: the file groups of the buckets.
        is_insert: whether each change becomes a row of its own (``FileGroupWrite``).
    """

    context: WriteContext
    assignment: FileGroupAssignment
    is_insert: bool = False

    def for_tasks(
        self, tasks: int, tasks_of: Callable[[Bucket], Iterable[int]]
    ) -> list[BucketWriter]:
        """Return for each task a writer that knows only the file groups of this task."""
        return [replace(self, assignment=one) for one in self.assignment.divide(tasks, tasks_of)]

    def write(self, bucket: Bucket, changes: Iterable[pa.Table]) -> list[WriteStat]:
        """Write the file of a bucket; see ``write_file_group``."""
        task = replace(self.assignment.task(bucket), is_insert=self.is_insert)
        return write_file_group(self.context, task, changes)

    def find_in_other_partitions(self, number: int, keys: Iterable[pa.Table]) -> ChangedRows:
        """Find the keys that exist in buckets with this number in other partitions."""
        appends = self.context.table_type is TableType.MERGE_ON_READ
        groups = self.assignment.groups_in(number)
        return ChangedRows(
            find_partition_changes(self.context.reader, groups, keys, appends=appends)
        )


@dataclass(frozen=True)
class WriteBuckets:
    """Writes the portions of a batch.

    Attributes:
        rows: writes to the table.
        rejects: writes to the dead-letter table; None if there is no such table.
        looks_up: whether the keys of changes are looked up in other partitions.
        placement: finds the file groups of the changes, if the table has no bucket index; None once
            they are found, and with a bucket index.
        checks: runs the checks of the batch; None if there are none.
    """

    rows: BucketWriter
    rejects: BucketWriter | None
    looks_up: bool = False
    placement: Placement | None = None
    checks: CheckRun | None = None

    def place(self, portions: Sequence[Portion]) -> tuple[WriteBuckets, Sequence[Portion]]:
        """See ``Write.place``."""
        changes = [one.content.rows for one in portions if one.kind is PortionKind.ROWS]
        if self.placement is None or not changes:
            return replace(self, placement=None), portions
        placed = self.placement.place(changes)
        others = [one for one in portions if one.kind is not PortionKind.ROWS]
        writer = replace(
            self.rows, assignment=placed.assigned.assignment, is_insert=self.placement.is_insert
        )
        return replace(self, rows=writer, placement=None), [
            *others,
            _undivided(PortionKind.CHANGE_COUNTS, placed.counts.to_table()),
            *(Portion(PortionKind.ROWS, rows) for rows in placed.sort()),
        ]

    def for_tasks(self, tasks: int) -> list[WriteBuckets]:
        """See ``Write.for_tasks``."""
        assert self.placement is None, "only the driver writes to a table with a lookup index"
        rows = self.rows.for_tasks(tasks, lambda bucket: self._tasks_of_rows(bucket, tasks))
        rejects: Sequence[BucketWriter | None] = [None] * tasks
        if self.rejects is not None:
            kind = PortionKind.REJECTS
            rejects = self.rejects.for_tasks(tasks, lambda one: [task_of(one, tasks, kind)])
        pairs = zip(rows, rejects, strict=True)
        return [replace(self, rows=of_rows, rejects=of_rejects) for of_rows, of_rejects in pairs]

    def _tasks_of_rows(self, bucket: Bucket, tasks: int) -> set[int]:
        own = {task_of(bucket, tasks, PortionKind.ROWS)}
        if not self.looks_up:
            return own
        return own | {task_of(Bucket("", bucket.number), tasks, PortionKind.KEYS)}

    def __call__(
        self, kind: PortionKind, bucket: Bucket, tables: Iterable[pa.Table]
    ) -> PortionResult:
        """See ``Write``."""
        if kind is PortionKind.SCHEMA_REQUEST:
            return SchemaRequest.merge(map(SchemaRequest.from_table, tables))
        if kind is PortionKind.READ_COUNT:
            return RecordsRead.of(tables)
        if kind is PortionKind.KEYS:
            return self.rows.find_in_other_partitions(bucket.number, tables)
        if kind is PortionKind.CHANGE_COUNTS:
            return ChangeCounts.from_table(next(iter(tables)))
        if kind is PortionKind.VIOLATIONS:
            return Violations.of(tables)
        if kind is PortionKind.CHECKED_ROWS:
            assert self.checks is not None, "rows are only sent to checks"
            return self.checks(tables)
        arriving = _CountedTables(tables)
        writer = self.rows if kind is PortionKind.ROWS else self.rejects
        stats: list[WriteStat] = []
        if writer is None:
            deque(arriving, maxlen=0)  # without a table, rejects are only counted; the run stops
        else:
            stats = writer.write(bucket, arriving)
        return BucketWritten(
            kind=kind,
            arrived=arriving.rows,
            stats=tuple(stats),
            first_reject=arriving.first_reject,
            reject_counts=merge_counts(arriving.reject_counts),
        )


class FindBuckets:
    """Returns the buckets that a batch has rows for, and writes nothing. Can be pickled.

    It also returns the schema change that the records request. The batch may then have rows for
    further buckets.
    """

    def __call__(
        self, kind: PortionKind, bucket: Bucket, tables: Iterable[pa.Table]
    ) -> PortionResult:
        """See ``Write``. The tables of rows are not read."""
        if kind is PortionKind.SCHEMA_REQUEST:
            return SchemaRequest.merge(map(SchemaRequest.from_table, tables))
        return bucket if kind is PortionKind.ROWS else None

    def place(self, portions: Sequence[Portion]) -> tuple[FindBuckets, Sequence[Portion]]:
        """See ``Write.place``. The buckets of a lookup index are found only by a write."""
        return self, portions

    def for_tasks(self, tasks: int) -> list[FindBuckets]:
        """See ``Write.for_tasks``."""
        return [self] * tasks


class _CountedTables(Iterator[pa.Table]):
    """Tables of changes, which are counted while they are read."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = iter(tables)
        self.rows = 0
        self.first_reject: str | None = None
        self.reject_counts: list[RejectCount] = []

    def __next__(self) -> pa.Table:
        table = next(self._tables)
        self.rows += table.num_rows
        if self.first_reject is None:
            self.first_reject = first_reject(table)
        self.reject_counts += count_by_code(table)
        return table
