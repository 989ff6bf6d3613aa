"""The batch that a source passes to a sink, and the result that the sink returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.position import Position
from sinks.audit import OffsetGap, Spans
from sinks.dead_letters import first_reject
from sinks.reject_counts import RejectCount, count_by_code
from transforms.batch_checks import CheckViolation
from transforms.raw_records import offsets_by_part
from transforms.violations import RuleViolations

#: Takes ranges without a record, and returns the lost ranges in the form of ``LostRange.facts``.
CheckSource: TypeAlias = Callable[[Sequence[OffsetGap]], Sequence[Mapping[str, object]]]


@dataclass(frozen=True, kw_only=True)
class Batch(ABC):
    """Records of a source that become one commit.

    Attributes:
        start: how far the source had been read before the batch.
        end: how far it has been read after the batch. The commit records this position.
        topic_id: Kafka's id of the topic; "" if it is not known, or in another source.
        check_source: called between reading and publishing, with the offsets at which no record was
            read. It returns the ranges that the source has lost, which the commit records, or
            raises an error if the batch must not be published.
    """

    start: Position
    end: Position
    topic_id: str = ""
    check_source: CheckSource = lambda gaps: ()

    @property
    @abstractmethod
    def spans(self) -> Spans:
        """The offsets of each part of the batch."""

    @property
    def elsewhere(self) -> int:
        """The number of offsets whose records belong to other tables (``RoutedBatch``)."""
        return 0

    @property
    def planned_records(self) -> int:
        """The number of offsets of the batch, which is at least the number of records."""
        return sum(end - begin for begin, end in self.spans.values())

    @property
    def offsets_by_partition(self) -> Mapping[int, int]:
        """The number of offsets of each partition; empty if the source has no partitions."""
        return {}


@dataclass(frozen=True, kw_only=True)
class KafkaBatch(Batch):
    """A micro-batch that has not been read yet. Its parts are the partitions of the topic.

    Attributes:
        records: the raw Kafka records. Each action on this DataFrame reads Kafka again.
        start: the next offset of each partition before the batch.
        end: the next offset of each partition after the batch. Spark planned these offsets before
            it read any record.
    """

    records: DataFrame
    start: KafkaCheckpoint
    end: KafkaCheckpoint

    @property
    def spans(self) -> Spans:
        """See ``Batch``."""
        begins = self.start.offsets
        return {part: (begins.get(part, 0), end) for part, end in self.end.offsets.items()}

    @property
    def offsets_by_partition(self) -> Mapping[int, int]:
        """See ``Batch``."""
        return self.end.distance_from(self.start)


@dataclass(frozen=True, kw_only=True)
class RecordsBatch(Batch):
    """A batch that the source has already read into the memory of this process.

    Attributes:
        tables: the raw records (``transforms.raw_records``), in order of arrival. The values of
            different tables may have different types.
    """

    tables: Sequence[pa.Table]

    @cached_property
    def spans(self) -> Spans:
        """See ``Batch``."""
        found: dict[int, tuple[int, int]] = {}
        for table in self.tables:
            for part, offsets in offsets_by_part(table):
                first, end = found.get(part, (int(offsets[0]), 0))
                found[part] = (min(first, int(offsets[0])), max(end, int(offsets[-1]) + 1))
        return found


@dataclass(frozen=True, kw_only=True)
class RoutedBatch(RecordsBatch):
    """The records of a micro-batch that belong to one of several tables (``sinks.routed``).

    Its positions are those of the table. They say nothing of the other tables' records in between.
    """

    @property
    def elsewhere(self) -> int:
        """See ``Batch``. The stream checks the offsets without a record, for all tables."""
        return self.planned_records - sum(int(table.num_rows) for table in self.tables)


#: A kind of batch.
AnyBatch = TypeVar("AnyBatch", bound=Batch)


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """The result of a published batch.

    Attributes:
        instant: the requested time of the batch's commit.
        records: the number of records that were read.
        rows: the number of rows that were inserted or updated, after the changes of each key were
            merged; rows that were only copied to a new file are not counted.
        deletes: the number of deleted keys.
        rejected: the number of records in the dead letters.
        first_reject: the origin of a reject, and the reason; None if there is no reject.
        reject_counts: the number of rejected records by the code of the reason.
        written_bytes: the size of the files.
        files: the number of files.
        seconds: the duration of each stage, in the order in which the stages ran.
        ignored: the number of tombstones that were ignored, as configured.
        schema_changes: the columns that the batch added or widened.
        partition_changes: the number of record keys that are in several partitions after the batch,
            and were in fewer before it; 0 if they are not counted.
        first_partition_change: one of these keys; None if there is none.
        skipped: the number of offsets at which the topic has no record; see ``sinks.audit``.
        moved: the number of rows that moved to another partition.
        duplicates: the number of records that an insert skipped, because their keys were stored.
        filtered: the number of records that the transforms dropped on purpose.
        violations: the rules that rows of the batch violated.
        check_violations: the checks that the batch violated.
        tables: the number of tables of a route that have committed the batch; the other numbers of
            rows and files are then 0, because each table reports its own.
        rows_of_tables: the number of rows that these tables have written together.
    """

    instant: str
    records: int
    rows: int
    deletes: int
    rejected: int
    written_bytes: int
    files: int
    first_reject: str | None = None
    reject_counts: tuple[RejectCount, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    schema_changes: tuple[str, ...] = ()
    ignored: int = 0
    partition_changes: int = 0
    first_partition_change: str | None = None
    skipped: int = 0
    moved: int = 0
    duplicates: int = 0
    filtered: int = 0
    violations: tuple[RuleViolations, ...] = ()
    check_violations: tuple[CheckViolation, ...] = ()
    tables: int = 0
    rows_of_tables: int = 0

    @classmethod
    def of_letters(cls, records: int, rejected: pa.Table, ignored: int) -> BatchResult:
        """Return the result of a batch of which only the dead letters are reported here.

        Args:
            records: the number of records that were read.
            rejected: the dead letters, as they were written.
            ignored: the number of tombstones that were ignored.
        """
        has_letters = rejected.num_rows > 0
        return cls(
            instant="",
            records=records,
            rows=0,
            deletes=0,
            rejected=rejected.num_rows,
            written_bytes=0,
            files=0,
            first_reject=first_reject(rejected) if has_letters else None,
            reject_counts=count_by_code(rejected) if has_letters else (),
            ignored=ignored,
        )
