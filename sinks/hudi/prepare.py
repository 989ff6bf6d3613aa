"""The two functions that an exchange runs in the workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemark.config.merge_settings import MergeSettings
from lakemark.config.table_properties import TableType
from lakemark.index.bucket import BucketIndex
from lakemark.index.partition_changes import deciding_columns, find_partition_changes
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import Bucket, divide
from lakemark.write.write_context import WriteContext
from sinks.audit import RecordsRead
from sinks.dead_letters import changes_of, first_reject
from sinks.hudi.exchange import Portion, Target, Written
from sinks.hudi.partition_rule import ChangedRows
from transforms.change_builder import ConvertedBatch
from transforms.record_converter import RecordConverter
from transforms.schema_request import SchemaRequest

#: Requests meet in one place, and so do counts.
_NOWHERE = Bucket("", 0)


@dataclass(frozen=True)
class PrepareChunk:
    """Decodes a chunk of raw records and divides it by bucket; rejects to the dead letters' one.

    What the records request of the table's schema is one more portion, and so is the count of them:
    taken where they are read, to be compared with what arrives where they are written.

    Attributes:
        converter: decodes.
        row_index: of the table.
        reject_index: of the dead letters.
        looked_up: settings of the table if the keys of the changes are looked up in other
            partitions. They go by bucket, since a key is in the same bucket of every partition.
        refused: rows that become dead letters because their key exists in another partition.
    """

    converter: RecordConverter
    row_index: BucketIndex
    reject_index: BucketIndex
    looked_up: MergeSettings | None = None
    refused: ChangedRows | None = None

    def __call__(self, records: pa.Table) -> list[Portion]:
        """Each record is in one portion of ``Target.ROWS`` or ``Target.REJECTS``, or ignored."""
        prepared = self.converter(records)
        if self.refused is not None:
            prepared = self.refused.reject_from(prepared, records, self.converter.topic)
        counts = RecordsRead.in_chunk(records, prepared.ignored)
        read = Portion(Target.READ, _NOWHERE, counts.to_table())
        if prepared.request:
            asked = Portion(Target.SCHEMA, _NOWHERE, prepared.request.to_table())
            return [asked, *self._divided(prepared), read]
        return [*self._divided(prepared), read]

    def _divided(self, prepared: ConvertedBatch) -> list[Portion]:
        rows = divide(prepared.changes, self.row_index)
        rejects = divide(changes_of(prepared.rejects), self.reject_index)
        return [
            *(Portion(Target.ROWS, bucket, part) for bucket, part in rows),
            *(Portion(Target.REJECTS, bucket, part) for bucket, part in rejects),
            *(self._keys(prepared.changes, self.looked_up) if self.looked_up else ()),
        ]

    def _keys(self, changes: pa.Table, settings: MergeSettings) -> Iterator[Portion]:
        keys = changes.select(deciding_columns(changes.schema, settings))
        numbers = self.row_index.bucket_ids(keys.column(RECORD_KEY))
        for number in np.unique(numbers).tolist():
            part = keys.filter(pa.array(numbers == number))
            yield Portion(Target.KEYS, Bucket("", number), part)


@dataclass(frozen=True)
class WriteBuckets:
    """Writes one bucket's file into the commit of its table."""

    contexts: Mapping[Target, WriteContext]
    assignments: Mapping[Target, FileGroupAssignment]

    def __call__(self, target: Target, bucket: Bucket, changes: Iterable[pa.Table]) -> Written:
        """Takes the changes in order of arrival, once."""
        if target is Target.SCHEMA:
            request = SchemaRequest.merge(map(SchemaRequest.from_table, changes))
            return Written(target, 0, None, request=request)
        if target is Target.READ:
            return Written(target, 0, None, read=RecordsRead.of(changes))
        if target is Target.KEYS:
            return self._look_up(bucket.number, changes)
        arriving = _Arriving(changes)
        context = self.contexts.get(target)
        if context is None:
            deque(arriving, maxlen=0)  # nowhere to write them: they are counted, and the run stops
            return Written(target, arriving.rows, None, arriving.first_reject)
        stat = write_file_group(context, self.assignments[target].task(bucket), arriving)
        return Written(target, arriving.rows, stat, arriving.first_reject)

    def _look_up(self, number: int, changes: Iterable[pa.Table]) -> Written:
        context, assignment = self.contexts[Target.ROWS], self.assignments[Target.ROWS]
        appends = context.table_type is TableType.MERGE_ON_READ
        groups = assignment.groups_in(number)
        found = find_partition_changes(context.reader, groups, changes, appends=appends)
        return Written(Target.KEYS, 0, None, partition_changes=found)


class FindBuckets:
    """Finds the buckets of a batch's rows, and writes nothing; pickles."""

    def __call__(self, target: Target, bucket: Bucket, changes: Iterable[pa.Table]) -> Written:
        """The changes are not read."""
        return Written(target, 0, None, bucket=bucket if target is Target.ROWS else None)


class _Arriving(Iterator[pa.Table]):
    """Tables of changes, counted on their way."""

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
