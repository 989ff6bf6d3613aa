"""A batch that a source passes to a sink, and the result that the sink returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import DataFrame

from checkpoints.checkpoint import KafkaCheckpoint
from sinks.audit import OffsetGap

#: Returns the lost ranges among offsets without a record, each as ``LostRange.facts``.
CheckSource: TypeAlias = Callable[[Sequence[OffsetGap]], Sequence[Mapping[str, object]]]


@dataclass(frozen=True, kw_only=True)
class KafkaBatch:
    """A micro-batch that was not read yet.

    Attributes:
        records: raw Kafka records; each action on this DataFrame reads Kafka again.
        start: next offset of each partition before the batch.
        end: next offset of each partition after it, as Spark planned it before it read any record.
        topic_id: Kafka's id of the topic; "" if it is not known.
        check_source: called between reading and publishing, with the offsets at which no record was
            read. Returns the ranges that the topic has lost, which the commit records. Raises if
            the batch must not be published.
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
        instant: requested time of its commit.
        records: number of records that were read.
        rows: number of rows in the files, after the changes of each key were merged.
        deletes: number of deleted keys.
        rejected: number of records in the dead letters.
        first_reject: origin and reason of a reject; None if there is none.
        written_bytes: size of the files.
        files: number of files.
        seconds: duration of each stage, in the order in which they ran.
        ignored: number of records that are tombstones and ignored as configured.
        schema_changes: columns that the batch added or widened.
        partition_changes: number of record keys that are in more partitions than before, and in
            several, if they are counted.
        first_partition_change: one of these keys; None if there is none.
        skipped: number of offsets at which the topic has no record; see ``sinks.audit``.
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
