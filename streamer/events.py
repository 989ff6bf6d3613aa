"""The events of a run: one frozen class for each kind.

The loop, the source and the sink emit events to a ``Listener``, such as the display, the metrics or
the event log. A listener must neither raise nor block, because the run waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from lakemark.model.commit_metadata import WriteStat


@dataclass(frozen=True, slots=True)
class MetricsServed:
    """The endpoint serves metrics and health until the run ends.

    Attributes:
        host: address on which it listens.
        port: of that address.
    """

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The stream is about to start.

    Attributes:
        pipeline: name of the pipeline.
        topic: the topic that it reads.
        table: path or url of the table.
        start: next offset of each partition.
        resumed: whether the offsets are the table's checkpoint; False for the first run.
    """

    pipeline: str
    topic: str
    table: str
    start: Mapping[int, int]
    resumed: bool


@dataclass(frozen=True, slots=True)
class OffsetsLost:
    """Kafka deleted records before they were read, and the configuration skips them.

    Attributes:
        topic: the topic.
        ranges: one text for each partition that lost records.
        lost: the same for programs: ``topic``, ``partition``, ``from`` (the first lost offset),
            ``to`` (the offset to continue at; None if the partition no longer exists) and ``count``
            (None if it is not known).
    """

    topic: str
    ranges: tuple[str, ...]
    lost: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupCommitFailed:
    """The broker refused offsets for a consumer group; the table has recorded them.

    Attributes:
        group: the consumer group.
        reason: the broker's answer.
    """

    group: str
    reason: str


@dataclass(frozen=True, slots=True)
class Alive:
    """The stream runs; emitted at a fixed interval.

    Attributes:
        checkpoint: next offset of each partition, as committed.
        lag: unread offsets of each partition; empty if the broker did not answer.
        idle_s: seconds since the run's last commit, or since its start if it has not committed.
        has_committed: whether this run has committed a batch.
    """

    checkpoint: Mapping[int, int]
    lag: Mapping[int, int]
    idle_s: float
    has_committed: bool


@dataclass(frozen=True, slots=True)
class WarningLogged:
    """A module of this project has logged a warning.

    Attributes:
        level: ``warning`` or ``error``.
        module: name of the module.
        message: the text.
    """

    level: str
    module: str
    message: str


@dataclass(frozen=True, slots=True)
class BatchPlanned:
    """A batch is about to be read.

    Attributes:
        batch_id: counts from 0 in every run.
        offsets: number of offsets by partition.
    """

    batch_id: int
    offsets: Mapping[int, int]

    @property
    def records(self) -> int:
        """Offsets of all partitions; if the topic has gaps, these are more than the records."""
        return sum(self.offsets.values())


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """A batch is committed.

    Attributes:
        batch_id: as planned.
        instant: the commit; None if there was nothing to write.
        records_read: records read from Kafka.
        rows_written: rows written, after the batch was reduced to one change per key.
        rows_deleted: deletes among these rows.
        rejects: records that could not become rows.
        bytes_written: size of the files.
        stage_s: seconds of each stage, in order.
        lag: unread offsets of each partition; empty if it was not read.
        files_written: number of files.
        ignored: tombstones among the records that the pipeline ignores.
        offsets_skipped: offsets at which the topic has no record: of aborted transactions, of
            transaction markers, or of compacted records.
    """

    batch_id: int
    instant: str | None
    records_read: int
    rows_written: int = 0
    rows_deleted: int = 0
    rejects: int = 0
    bytes_written: int = 0
    stage_s: Mapping[str, float] = field(default_factory=dict)
    lag: Mapping[int, int] = field(default_factory=dict)
    files_written: int = 0
    ignored: int = 0
    offsets_skipped: int = 0

    @property
    def total_s(self) -> float:
        """Seconds of all stages."""
        return sum(self.stage_s.values())


@dataclass(frozen=True, slots=True)
class RecordsRejected:
    """Records of a batch were sent to the dead letters.

    Attributes:
        batch_id: as planned.
        count: number of records.
        first: origin of one of them, and the reason.
        dead_letters: path of the dead-letter table, which has the reason of each record.
    """

    batch_id: int
    count: int
    first: str
    dead_letters: str


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Record keys are in more partitions after a batch than before it, and in more than one.

    Attributes:
        batch_id: as planned.
        count: number of keys.
        first: one of the keys, and two of its partitions.
    """

    batch_id: int
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class SchemaEvolved:
    """A batch changed the columns of the table.

    Attributes:
        batch_id: as planned.
        changes: new columns with their types, and columns that were widened.
    """

    batch_id: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """An asynchronous compaction has started.

    Attributes:
        instant: the compaction.
        file_groups: number of file groups to rewrite.
        log_bytes: size of the log files to merge.
        table: URL of the table.
    """

    instant: str
    file_groups: int
    log_bytes: int
    table: str


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """An asynchronous compaction failed; it is retried, and the batches continue.

    Attributes:
        instant: the compaction.
        error: message of the error.
        failures: number of consecutive failures, including this one.
        failing_s: seconds since the first of them.
        pause_s: seconds until the next attempt.
        error_type: name of the error's class.
        table: URL of the table.
    """

    instant: str
    error: str
    failures: int
    failing_s: float
    pause_s: float
    error_type: str
    table: str


@dataclass(frozen=True, slots=True)
class CompactionCompleted:
    """A compaction has merged log files into base files.

    Attributes:
        instant: the compaction.
        file_groups: number of file groups that were rewritten.
        rows_written: rows of the new base files.
        bytes_written: size of these files.
        seconds: from plan to commit.
        table: URL of the table.
    """

    instant: str
    file_groups: int
    rows_written: int
    bytes_written: int
    seconds: float
    table: str

    @classmethod
    def of(
        cls, instant: str, stats: Sequence[WriteStat], seconds: float, table: str
    ) -> CompactionCompleted:
        """Build the event from the statistics of the new base files."""
        rows = sum(stat.num_writes for stat in stats)
        size_bytes = sum(stat.file_size_in_bytes for stat in stats)
        return cls(instant, len(stats), rows, size_bytes, seconds, table)


@dataclass(frozen=True, slots=True)
class CompactionResolved:
    """A deferred compaction is no longer pending.

    Another writer has completed or removed it; or this writer completed it, and lost the answer.

    Attributes:
        instant: the compaction.
        table: URL of the table.
    """

    instant: str
    table: str


@dataclass(frozen=True, slots=True)
class ServiceCompleted:
    """A table service other than compaction has run: cleaning, archival, rollback of dead writers.

    Cleaning and archival of the metadata table have the name ``metadata``.

    Attributes:
        service: name of the service.
        summary: the result in a few words.
        seconds: duration.
        table: URL of the table; "" for the rollback at a start, which may concern both tables.
    """

    service: str
    summary: str
    seconds: float
    table: str = ""


@dataclass(frozen=True, slots=True)
class Retrying:
    """A batch failed for a transient reason.

    Attributes:
        error: message of the error.
        attempt: the attempt that failed, from 1.
        max_attempts: number of attempts after which the run fails.
        pause_s: seconds until the next attempt.
        error_type: name of the error's class.
    """

    error: str
    attempt: int
    max_attempts: int
    pause_s: float
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run failed permanently, perhaps before it started; this is its last event.

    Attributes:
        error_type: name of the error's class.
        error: its message.
    """

    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class RunStopping:
    """The run was asked to stop, and stops after the work in progress.

    Attributes:
        work: ``batch``, ``compaction``, or ``""`` if nothing is in progress.
    """

    work: str


@dataclass(frozen=True, slots=True)
class RunStopped:
    """The run ended.

    Attributes:
        reason: ``caught up`` or ``interrupted``.
        checkpoint: next offset of each partition.
        batches: number of committed batches.
        rows_written: rows of all these batches.
        seconds: from start to end.
    """

    reason: str
    checkpoint: Mapping[int, int]
    batches: int
    rows_written: int
    seconds: float


Event: TypeAlias = (
    MetricsServed
    | RunStarted
    | OffsetsLost
    | GroupCommitFailed
    | Alive
    | WarningLogged
    | BatchPlanned
    | BatchWritten
    | RecordsRejected
    | PartitionsChanged
    | SchemaEvolved
    | CompactionStarted
    | CompactionFailed
    | CompactionCompleted
    | CompactionResolved
    | ServiceCompleted
    | Retrying
    | RunFailed
    | RunStopping
    | RunStopped
)


class Listener(Protocol):
    """Receives each event, in order, on the thread that emits it.

    The events of asynchronous compactions, keepalives and warnings come from other threads than
    those of the loop.
    """

    def __call__(self, event: Event, /) -> None:
        """Receive an event."""
        ...


def ignore(event: Event, /) -> None:
    """A listener that does nothing."""
