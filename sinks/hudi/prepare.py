"""The two functions that an exchange runs in the workers: to prepare chunks, to write buckets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemark.config.merge_settings import MergeSettings
from lakemark.config.table_properties import TableType
from lakemark.index.bucket import BucketIndex
from lakemark.index.partition_changes import deciding_columns, find_partition_changes
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import Bucket, divide
from lakemark.write.write_context import WriteContext
from sinks.audit import RecordsRead
from sinks.dead_letters import first_reject, to_changes
from sinks.hudi.exchange import BucketWritten, Portion, PortionKind, PortionResult
from sinks.hudi.partition_rule import ChangedRows
from transforms.change_builder import ConvertedBatch
from transforms.record_converter import RecordConverter
from transforms.schema_request import SchemaRequest

#: The bucket of portions that are merged, so that one task receives all of them.
_MERGED = Bucket("", 0)


@dataclass(frozen=True, kw_only=True)
class PrepareChunk:
    """Decodes a chunk of raw records, and divides the changes and rejects by bucket.

    There are two further portions. One contains the number of records. They are counted here, when
    they are read, so that the number can be compared with the number of changes that are written
    later. The other contains a schema request, if the records have one.

    Attributes:
        converter: decodes the records.
        row_index: the bucket index of the table.
        reject_index: the bucket index of the dead-letter table.
        looked_up: the merge settings of the table, if the keys of the changes are looked up in
            other partitions. The keys are divided by bucket, because a key has the same bucket
            number in each partition.
        refused: rows that become dead letters, because their key exists in another partition.
    """

    converter: RecordConverter
    row_index: BucketIndex
    reject_index: BucketIndex
    looked_up: MergeSettings | None = None
    refused: ChangedRows | None = None

    def __call__(self, records: pa.Table) -> list[Portion]:
        """See ``Prepare``."""
        prepared = self.converter(records)
        if self.refused is not None:
            prepared = self.refused.reject_from(prepared, records, self.converter.topic)
        counts = RecordsRead.in_chunk(records, prepared.ignored)
        portions = [
            *self._divide(prepared),
            Portion(PortionKind.READ_COUNT, _MERGED, counts.to_table()),
        ]
        if prepared.request:
            request = prepared.request.to_table()
            portions.insert(0, Portion(PortionKind.SCHEMA_REQUEST, _MERGED, request))
        return portions

    def _divide(self, prepared: ConvertedBatch) -> Iterator[Portion]:
        for bucket, changes in divide(prepared.changes, self.row_index):
            yield Portion(PortionKind.ROWS, bucket, changes)
        for bucket, changes in divide(to_changes(prepared.rejects), self.reject_index):
            yield Portion(PortionKind.REJECTS, bucket, changes)
        if self.looked_up is not None:
            yield from self._divide_keys(prepared.changes, self.looked_up)

    def _divide_keys(self, changes: pa.Table, settings: MergeSettings) -> Iterator[Portion]:
        keys = changes.select(deciding_columns(changes.schema, settings))
        numbers = self.row_index.bucket_ids(keys.column(RECORD_KEY))
        for number in np.unique(numbers).tolist():
            part = keys.filter(pa.array(numbers == number))
            yield Portion(PortionKind.KEYS, Bucket("", number), part)


@dataclass(frozen=True)
class BucketWriter:
    """Writes the buckets of one table.

    Attributes:
        context: the context of the pending commit.
        assignment: the file groups of the buckets.
    """

    context: WriteContext
    assignment: FileGroupAssignment

    def write(self, bucket: Bucket, changes: Iterable[pa.Table]) -> WriteStat | None:
        """Write the file of a bucket; return None if there is nothing to write."""
        return write_file_group(self.context, self.assignment.task(bucket), changes)

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
    """

    rows: BucketWriter
    rejects: BucketWriter | None

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
        arriving = _CountedTables(tables)
        writer = self.rows if kind is PortionKind.ROWS else self.rejects
        stat = None
        if writer is None:
            deque(arriving, maxlen=0)  # without a table, rejects are only counted; the run stops
        else:
            stat = writer.write(bucket, arriving)
        return BucketWritten(
            kind=kind, arrived=arriving.rows, stat=stat, first_reject=arriving.first_reject
        )


class FindBuckets:
    """Returns the buckets that a batch has rows for, and writes nothing. Can be pickled."""

    def __call__(
        self, kind: PortionKind, bucket: Bucket, tables: Iterable[pa.Table]
    ) -> PortionResult:
        """See ``Write``. The tables are not read."""
        return bucket if kind is PortionKind.ROWS else None


class _CountedTables(Iterator[pa.Table]):
    """Tables of changes, which are counted while they are read."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = iter(tables)
        self.rows = 0
        self.first_reject: str | None = None

    def __next__(self) -> pa.Table:
        table = next(self._tables)
        self.rows += table.num_rows
        if self.first_reject is None:
            self.first_reject = first_reject(table)
        return table
