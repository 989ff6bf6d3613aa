"""What a source hands to a sink, and what the sink says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import DataFrame

from checkpoints.checkpoint import KafkaCheckpoint
from sinks.audit import OffsetGap

#: From gaps in what was read to facts on the lost ranges among them, as ``LostRange.facts``.
CheckSource: TypeAlias = Callable[[Sequence[OffsetGap]], Sequence[Mapping[str, object]]]


@dataclass(frozen=True)
class KafkaBatch:
    """One micro-batch, not read yet: raw records and the offsets that it covers.

    Attributes:
        records: raw Kafka records; every action on it reads Kafka again.
        start: next offset of each partition before the batch.
        end: the same after it, as Spark planned it before it read anything.
        topic_id: by which Kafka knows this very topic; "" when unknown.
        check_source: judges the offsets at which no record was read, between reading and
            publishing. Returns the ranges that the topic has lost, for the commit to keep; raises
            if the batch must not be published.
    """

    records: DataFrame
    start: KafkaCheckpoint
    end: KafkaCheckpoint
    topic_id: str = ""
    check_source: CheckSource = lambda gaps: ()

    @property
    def planned_records(self) -> int:
        """How many offsets the batch spans; no fewer than its records."""
        return sum(self.end.distance_from(self.start).values())


@dataclass(frozen=True)
class BatchResult:
    """What became of a batch.

    Attributes:
        instant: requested time of its commit.
        records: records that came from Kafka.
        rows: rows in the files, after older changes of the batch were merged away.
        deletes: keys that it deleted.
        rejected: records that went to the dead letters.
        first_reject: origin of one of them, and why it was turned away; None without any.
        written_bytes: size of the files.
        files: how many files were written.
        seconds: by stage, in the order in which they ran.
        ignored: tombstones that the pipeline ignores, among the records.
        schema_changes: columns that the table got with this batch, and types that became wider.
        partition_changes: record keys that are in more partitions than before, and in more than
            one, if they are counted.
        first_partition_change: one of them; None without any.
        skipped: offsets at which the topic has no record; see ``sinks.audit``.
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
