"""The two functions that an exchange runs in the workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sinks.audit import RecordsRead
from sinks.dead_letters import changes_of, first_reject
from sinks.hudi.exchange import Portion, Target, Written
from sinks.hudi.placement import Placement
from table.index.bucket import BucketIndex
from table.write.file_group_write import WriteContext, write_file_group
from table.write.partitioner import Bucket, divide
from transforms.kafka_changes import Prepared, ToChanges
from transforms.schema_request import SchemaRequest

#: Requests meet in one place, and so do counts.
_NOWHERE = Bucket("", 0)


@dataclass(frozen=True)
class PrepareChunk:
    """Decodes a chunk of raw records and divides it by bucket; rejects to the dead letters' one.

    What the records request of the table's schema is one more portion, and so is the count of them:
    taken where they are read, to be compared with what arrives where they are written.
    """

    to_changes: ToChanges
    row_index: BucketIndex
    reject_index: BucketIndex

    def __call__(self, records: pa.Table) -> list[Portion]:
        """Every record is in exactly one portion of ``Target.ROWS`` or ``Target.REJECTS``."""
        prepared = self.to_changes(records)
        read = Portion(Target.READ, _NOWHERE, RecordsRead.in_chunk(records).to_table())
        if prepared.request:
            asked = Portion(Target.SCHEMA, _NOWHERE, prepared.request.to_table())
            return [asked, *self._divided(prepared), read]
        return [*self._divided(prepared), read]

    def _divided(self, prepared: Prepared) -> list[Portion]:
        rows = divide(prepared.changes, self.row_index)
        rejects = divide(changes_of(prepared.rejects), self.reject_index)
        return [Portion(Target.ROWS, bucket, part) for bucket, part in rows] + [
            Portion(Target.REJECTS, bucket, part) for bucket, part in rejects
        ]


@dataclass(frozen=True)
class WriteBuckets:
    """Writes one bucket's file into the commit of its table."""

    contexts: Mapping[Target, WriteContext]
    placements: Mapping[Target, Placement]

    def __call__(self, target: Target, bucket: Bucket, changes: Iterable[pa.Table]) -> Written:
        """Takes the changes in order of arrival, once."""
        if target is Target.SCHEMA:
            request = SchemaRequest.merged(map(SchemaRequest.of, changes))
            return Written(target, 0, None, request=request)
        if target is Target.READ:
            return Written(target, 0, None, read=RecordsRead.merged(map(RecordsRead.of, changes)))
        arriving = _Arriving(changes)
        context = self.contexts.get(target)
        if context is None:
            deque(arriving, maxlen=0)  # nowhere to write them: they are counted, and the run stops
            return Written(target, arriving.rows, None, arriving.first_reject)
        stat = write_file_group(context, self.placements[target].task(bucket), arriving)
        return Written(target, arriving.rows, stat, arriving.first_reject)


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
