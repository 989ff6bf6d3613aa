"""The batch that a source passes to a sink, and the result that the sink returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import DataFrame

from checkpoints.checkpoint import KafkaCheckpoint
from sinks.audit import OffsetGap

#: Takes ranges without a record, and returns the lost ranges in the form of ``LostRange.facts``.
CheckSource: TypeAlias = Callable[[Sequence[OffsetGap]], Sequence[Mapping[str, object]]]


@dataclass(frozen=True, kw_only=True)
class KafkaBatch:
    """A micro-batch that has not been read yet.

    Attributes:
        records: the raw Kafka records. Each action on this DataFrame reads Kafka again.
        start: the next offset of each partition before the batch.
        end: the next offset of each partition after the batch. Spark planned these offsets before
            it read any record.
        topic_id: Kafka's id of the topic; "" if it is not known.
        check_source: called between reading and publishing, with the offsets at which no record was
            read. It returns the ranges that the topic has lost, which the commit records, or raises
            an error if the batch must not be published.
    """

    records: DataFrame
    start: KafkaCheckpoint
    end: KafkaCheckpoint
    topic_id: str = ""
    check_source: CheckSource = lambda gaps: ()

    @property
    def planned_records(self) -> int:
        """The number of offsets from start to end, which is at least the number of records."""
        return sum(self.end.distance_from(self.start).values())


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """The result of a published batch.

    Attributes:
        instant: the requested time of the batch's commit.
        records: the number of records that were read.
        rows: the number of rows in the files, after the changes of each key were merged.
        deletes: the number of deleted keys.
        rejected: the number of records in the dead letters.
        first_reject: the origin of a reject, and the reason; None if there is no reject.
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
    """

    instant: str
    records: int
    rows: int
    deletes: int
    rejected: int
    written_bytes: int
    files: int
    first_reject: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    schema_changes: tuple[str, ...] = ()
    ignored: int = 0
    partition_changes: int = 0
    first_partition_change: str | None = None
    skipped: int = 0
    moved: int = 0
    duplicates: int = 0
    filtered: int = 0
