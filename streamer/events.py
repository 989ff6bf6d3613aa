"""What can be observed of a run: one frozen record for each kind of event.

The loop, the source and the sink tell a ``Listener``; the live display and the tests are
listeners. A listener must not raise and not block: the run waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from lakemark.model.commit_metadata import WriteStat


@dataclass(frozen=True, slots=True)
class MetricsServed:
    """Metrics and health are served over HTTP from now on, until the run has ended.

    Attributes:
        host: address that is listened on.
        port: of that address.
    """

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The stream is about to start.

    Attributes:
        pipeline: name of the pipeline.
        topic: what is read.
        table: path or url of the table.
        start: next offset of each partition.
        resumed: whether they come from the table (False: its first run).
    """

    pipeline: str
    topic: str
    table: str
    start: Mapping[int, int]
    resumed: bool


@dataclass(frozen=True, slots=True)
class OffsetsLost:
    """Records that were never read are gone, and the configuration says to go on.

    Attributes:
        topic: where they were.
        ranges: one text for each partition that lost some.
        lost: the same for programs: ``topic``, ``partition``, ``from`` (the first offset lost),
            ``to`` (the one it goes on at; None for a partition that is gone) and ``count`` (None
            where the topic cannot tell).
    """

    topic: str
    ranges: tuple[str, ...]
    lost: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupCommitFailed:
    """The broker did not take the offsets for a consumer group; the table has them all the same.

    Attributes:
        group: the consumer group.
        reason: what the broker says.
    """

    group: str
    reason: str


@dataclass(frozen=True, slots=True)
class Alive:
    """The stream runs; told from time to time, whatever else happens.

    Attributes:
        checkpoint: next offset of each partition, as committed.
        lag: offsets of each partition that are unread beyond it; empty when the topic did not
            answer.
        idle_s: seconds since the run's last commit, or since its start if it has not committed.
        has_committed: whether this run has committed a batch.
    """

    checkpoint: Mapping[int, int]
    lag: Mapping[int, int]
    idle_s: float
    has_committed: bool


@dataclass(frozen=True, slots=True)
class WarningLogged:
    """A part of this project has something to say that is no event of its own.

    Attributes:
        level: ``warning`` or ``error``.
        part: the module.
        message: what it says.
    """

    level: str
    part: str
    message: str


@dataclass(frozen=True, slots=True)
class BatchPlanned:
    """A batch is about to be read.

    Attributes:
        batch_id: counts from 0 in every run.
        offsets: how many of each partition.
    """

    batch_id: int
    offsets: Mapping[int, int]

    @property
    def records(self) -> int:
        """Offsets of all partitions; more than records where the topic has gaps."""
        return sum(self.offsets.values())


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """A batch is committed.

    Attributes:
        batch_id: as planned.
        instant: the commit; None when nothing had to be written.
        records_read: records that Kafka gave.
        rows_written: rows that reached the table, after older versions were dropped.
        rows_deleted: of these, deletes.
        rejects: records that could not become rows.
        bytes_written: size of the files.
        stage_s: seconds of each stage, in order.
        lag: offsets of each partition that are still unread; empty when nobody asked.
        files_written: how many files.
        ignored: tombstones that the pipeline ignores, among the records.
        offsets_skipped: offsets at which the topic has no record: aborted transactions and their
            marks, compacted records.
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
    """Records of a batch went to the dead letters.

    Attributes:
        batch_id: as planned.
        count: how many.
        first: origin of one of them, and why it was rejected.
        dead_letters: where they lie, each with its own reason.
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
        count: how many keys.
        first: one of them, and two of its partitions.
    """

    batch_id: int
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class SchemaEvolved:
    """The table got other columns with a batch.

    Attributes:
        batch_id: as planned.
        changes: new columns with their types, and types that became wider.
    """

    batch_id: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """A compaction is at work beside the batches.

    Attributes:
        instant: the compaction.
        file_groups: how many are to be rewritten.
        log_bytes: size of the logs that are merged.
    """

    instant: str
    file_groups: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """A compaction beside the batches failed; these go on, and it is tried again.

    Attributes:
        instant: the compaction.
        error: its message.
        failures: in a row, this one included.
        failing_s: seconds since the first of them.
        pause_s: seconds until it is tried again.
        error_type: name of its class.
    """

    instant: str
    error: str
    failures: int
    failing_s: float
    pause_s: float
    error_type: str


@dataclass(frozen=True, slots=True)
class CompactionCompleted:
    """Log files were merged into base files.

    Attributes:
        instant: the compaction.
        file_groups: how many were rewritten.
        rows_written: rows of the new base files.
        bytes_written: their size.
        seconds: from plan to commit.
    """

    instant: str
    file_groups: int
    rows_written: int
    bytes_written: int
    seconds: float

    @classmethod
    def of(cls, instant: str, stats: Sequence[WriteStat], seconds: float) -> CompactionCompleted:
        """What the new base files say."""
        rows = sum(stat.num_writes for stat in stats)
        size_bytes = sum(stat.file_size_in_bytes for stat in stats)
        return cls(instant, len(stats), rows, size_bytes, seconds)


@dataclass(frozen=True, slots=True)
class CompactionResolved:
    """A plan that was left to other writers is no longer pending.

    They have done or removed it; or it was done here, and the answer to that was lost.

    Attributes:
        instant: the compaction.
    """

    instant: str


@dataclass(frozen=True, slots=True)
class ServiceCompleted:
    """Another service of the table ran: cleaning, archival, rollback of a dead writer's files.

    Cleaning and archival of the metadata table itself go by the name ``metadata``.

    Attributes:
        service: its name.
        summary: what it did, in a few words.
        seconds: how long it took.
    """

    service: str
    summary: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Retrying:
    """A batch failed for a reason that may pass.

    Attributes:
        error: its message.
        attempt: the attempt that failed, from 1.
        max_attempts: after which the run gives up.
        pause_s: seconds until the next.
        error_type: name of its class.
    """

    error: str
    attempt: int
    max_attempts: int
    pause_s: float
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run ended, or did not even start, for a reason that stays; nothing is told after it.

    Attributes:
        error_type: name of the error's class.
        error: its message.
    """

    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class RunStopping:
    """The run was asked to stop, and ends after what is in progress.

    Attributes:
        work: ``batch``, ``compaction``, or ``""`` if nothing is in progress.
    """

    work: str


@dataclass(frozen=True, slots=True)
class RunStopped:
    """The run ended.

    Attributes:
        reason: why: caught up, interrupted, failed.
        checkpoint: next offset of each partition.
        batches: how many were committed.
        rows_written: in all of them.
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
    """Is told of each event, in order, on the thread that made it.

    Of compactions beside the batches, of signs of life, and of what a part warns of, it is told on
    threads of their own.
    """

    def __call__(self, event: Event, /) -> None:
        """Take note."""
        ...


def ignore(event: Event, /) -> None:
    """A listener for runs that nobody watches."""
