"""The events of a run. Each kind of event is a frozen class.

The loop, the source and the sink emit events to a ``Listener``, such as the display, the metrics or
the event log. A listener must neither raise nor block, because the run waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from lakemark.model.commit_metadata import WriteStat
from sinks.reject_counts import RejectCount
from transforms.batch_checks import CheckViolation
from transforms.violations import RuleViolations


@dataclass(frozen=True, slots=True)
class MetricsServed:
    """The endpoint serves metrics and health until the run ends.

    Attributes:
        host: the address on which the endpoint listens.
        port: the port of this address.
        has_status_page: whether the endpoint also serves the status page.
    """

    host: str
    port: int
    has_status_page: bool = False


@dataclass(frozen=True, slots=True)
class TopicsFound:
    """A search for the topics of a pattern succeeded: the first one, or one that found new topics.

    The first search after a failed one also emits this event.

    Attributes:
        pattern: the pattern.
        topics: the topics that were not found before.
    """

    pattern: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The stream is about to start.

    Attributes:
        pipeline: the name of the pipeline.
        topic: the topic that the pipeline reads; or the URL of the folder or table.
        table: the path or URL of the table.
        start: the next offset of each partition; empty if the source has no partitions.
        resumed: whether the offsets are the table's checkpoint; False for the first run.
        position: where the run starts, in a few words (``Position.summary``); also for sources
            without partitions.
    """

    pipeline: str
    topic: str
    table: str
    start: Mapping[int, int]
    resumed: bool
    position: str = ""


@dataclass(frozen=True, slots=True)
class OffsetsLost:
    """Kafka deleted records before they were read, and the configuration says to skip them.

    Attributes:
        topic: the topic.
        ranges: one text for each partition that lost records.
        lost: the same facts for programs, one mapping per partition: ``topic``, ``partition``,
            ``from`` (the first lost offset), ``to`` (the offset to continue at; None if the
            partition no longer exists) and ``count`` (None if it is not known).
    """

    topic: str
    ranges: tuple[str, ...]
    lost: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupCommitFailed:
    """The broker refused offsets for a consumer group. The table has recorded these offsets.

    Attributes:
        group: the consumer group.
        reason: the broker's answer.
    """

    group: str
    reason: str


@dataclass(frozen=True, slots=True)
class Alive:
    """The stream is running. This event is emitted at a fixed interval.

    Attributes:
        checkpoint: the committed next offset of each partition.
        lag: the number of unread offsets of each partition; empty if the broker did not answer.
        idle_s: seconds since the run's last commit; if there is none, since the start of the run.
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
        module: the name of the module.
        message: the text.
    """

    level: str
    module: str
    message: str


@dataclass(frozen=True, slots=True)
class BatchPlanned:
    """A batch is about to be read.

    Attributes:
        batch_id: the number of the batch, counted from 0 at each start of the stream.
        offsets: the number of offsets of each partition; empty if the source has no partitions.
        unnumbered: the number of records, if the source has no partitions.
    """

    batch_id: int
    offsets: Mapping[int, int]
    unnumbered: int = 0

    @property
    def records(self) -> int:
        """The number of records; with gaps in a topic, the larger number of offsets."""
        return sum(self.offsets.values()) + self.unnumbered


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """A batch was committed.

    Attributes:
        batch_id: the number of the batch, as in ``BatchPlanned``.
        instant: the commit; None if there was nothing to write.
        records_read: the number of records read from Kafka.
        rows_written: the number of rows written, after the batch was reduced to one change per key.
        rows_deleted: how many of these rows are deletes.
        rejects: the number of records that could not become rows.
        bytes_written: the size of the files.
        seconds: the time from ``BatchPlanned`` to the commit. While the previous batch was written,
            this batch may already have been read. That time does not count, so that the times of
            the batches do not overlap.
        stage_s: the duration of each stage in seconds, in order. The stage ``read`` may overlap the
            previous batch, so the sum may be more than ``seconds``. In the stage ``wait``, which is
            not part of ``seconds``, the batch waited for batches of other pipelines.
        lag: the number of unread offsets of each partition; empty if the broker did not answer.
        files_written: the number of files.
        ignored: the number of tombstones that were skipped, because the pipeline ignores them.
        offsets_skipped: the number of offsets at which the topic has no record, because of aborted
            transactions, transaction markers or log compaction.
        rows_moved: the number of rows that moved to another partition.
        duplicates: the number of records that an insert skipped, because their keys were stored.
        filtered: the number of records that the transforms dropped on purpose.
        tables_written: the number of tables of a route that have committed the batch. Each of them
            reports its own rows and files, which ``rows_written`` and ``files_written`` lack.
        rows_of_tables: the number of rows that these tables have written together.
    """

    batch_id: int
    instant: str | None
    records_read: int
    rows_written: int = 0
    rows_deleted: int = 0
    rejects: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    stage_s: Mapping[str, float] = field(default_factory=dict)
    lag: Mapping[int, int] = field(default_factory=dict)
    files_written: int = 0
    ignored: int = 0
    offsets_skipped: int = 0
    rows_moved: int = 0
    duplicates: int = 0
    filtered: int = 0
    tables_written: int = 0
    rows_of_tables: int = 0


@dataclass(frozen=True, slots=True)
class RecordsRejected:
    """Records of a batch were sent to the dead letters.

    Attributes:
        batch_id: the number of the batch, as in ``BatchPlanned``.
        count: the number of records.
        first: where one of these records comes from, and the reason.
        dead_letters: the path of the dead-letter table, which has the reason for each record.
        codes: the number of records by the code of the reason, with one record for each code.
    """

    batch_id: int
    count: int
    first: str
    dead_letters: str
    codes: tuple[RejectCount, ...] = ()


@dataclass(frozen=True, slots=True)
class RulesViolated:
    """Rows of a batch violated rules of ``expect``.

    The batch was written; but if the outcome of one of the rules is ``fail``, the run stops, and
    nothing of the batch was published.

    Attributes:
        batch_id: the number of the batch, as in ``BatchPlanned``.
        violations: the violated rules, in the order of the pipeline file.
    """

    batch_id: int
    violations: tuple[RuleViolations, ...]


@dataclass(frozen=True, slots=True)
class ChecksViolated:
    """A batch violated checks of ``expect``.

    The batch was written; but if the outcome of one of the checks is ``fail``, the run stops, and
    nothing of the batch was published.

    Attributes:
        batch_id: the number of the batch, as in ``BatchPlanned``.
        violations: the violated checks, in the order of the pipeline file.
    """

    batch_id: int
    violations: tuple[CheckViolation, ...]


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Record keys are in several partitions after a batch, and were in fewer before it.

    Attributes:
        batch_id: the number of the batch, as in ``BatchPlanned``.
        count: the number of keys.
        first: one of the keys, and two of its partitions.
    """

    batch_id: int
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class SchemaEvolved:
    """A batch changed the columns of the table.

    Attributes:
        batch_id: the number of the batch, as in ``BatchPlanned``.
        changes: new columns with their types, and columns that were widened.
    """

    batch_id: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """An asynchronous compaction has started.

    Attributes:
        instant: the instant of the compaction.
        file_groups: the number of file groups to rewrite.
        log_bytes: the size of the log files to merge.
        table: the URL of the table.
    """

    instant: str
    file_groups: int
    log_bytes: int
    table: str


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """An asynchronous compaction failed. It is retried, and the batches continue.

    Attributes:
        instant: the instant of the compaction.
        error: the message of the error.
        failures: the number of consecutive failures, including this one.
        failing_s: seconds since the first of these failures.
        pause_s: seconds until the next attempt.
        error_type: the name of the error's class.
        table: the URL of the table.
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
        instant: the instant of the compaction.
        file_groups: the number of file groups that were rewritten.
        rows_written: the number of rows in the new base files.
        bytes_written: the size of the new base files.
        seconds: the time from plan to commit.
        table: the URL of the table.
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

    Either another writer has completed or removed it, or this writer completed it but did not
    receive the store's answer.

    Attributes:
        instant: the instant of the compaction.
        table: the URL of the table.
    """

    instant: str
    table: str


@dataclass(frozen=True, slots=True)
class PartitionsExpired:
    """Partitions whose lifetime had ended were deleted.

    Attributes:
        instant: the commit that deleted them.
        partitions: the paths of the partitions, the oldest first.
        files: the number of files that queries no longer read. Cleaning deletes them later.
        bytes_expired: the size of these files.
        rows: the number of deleted rows; None if it is not known without reading files.
        seconds: the duration.
        table: the URL of the table.
    """

    instant: str
    partitions: tuple[str, ...]
    files: int
    bytes_expired: int
    rows: int | None
    seconds: float
    table: str


@dataclass(frozen=True, slots=True)
class UnresolvedLettersExpire:
    """Dead letters that no replay has resolved are about to be deleted.

    Attributes:
        letters: the number of these dead letters.
        partitions: the partitions that are deleted.
        table: the URL of the dead-letter table.
    """

    letters: int
    partitions: tuple[str, ...]
    table: str


@dataclass(frozen=True, slots=True)
class ServiceFailed:
    """A table service failed between two batches. It is retried, and the batches continue.

    Attributes:
        service: the name of the service: ``partition_expiry``, ``clustering``,
            ``log_compaction``, ``catalog_sync``, ``bucket_preparation`` or
            ``clustering_preparation``. A sync and a preparation run while batches are written.
        error: the message of the error.
        failures: the number of consecutive failures, including this one.
        pause_s: seconds until the service may run again, after a batch.
        error_type: the name of the error's class.
        table: the URL of the table.
    """

    service: str
    error: str
    failures: int
    pause_s: float
    error_type: str
    table: str


@dataclass(frozen=True, slots=True)
class RequestedServiceFailed:
    """A table service that a client of the endpoint has requested failed. It is not retried.

    Attributes:
        service: ``compaction``, ``clustering``, ``cleaning`` or ``archival``.
        error: the message of the error.
        error_type: the name of the error's class.
        table: the URL of the table.
    """

    service: str
    error: str
    error_type: str
    table: str


@dataclass(frozen=True, slots=True)
class ServiceCompleted:
    """Table services have run, or a batch has waited for a compaction.

    The services are log compaction, clustering, the resizing of buckets, cleaning, archival, and
    the rollback of dead writers. A wait has the name ``compaction_wait``. A preparation, during
    which batches were written, has the name ``bucket_preparation`` or ``clustering_preparation``.

    Cleaning and archival of the metadata table have the name ``metadata``. A sync that has changed
    a catalog has the name ``catalog_sync``.

    Attributes:
        service: the name of the service or wait.
        summary: the result in a few words.
        seconds: the duration.
        table: the URL of the table; "" for the rollback at a start, which may concern both the
            table and the dead-letter table.
    """

    service: str
    summary: str
    seconds: float
    table: str = ""


@dataclass(frozen=True, slots=True)
class PreparationOutdated:
    """Files that were prepared while batches were written were not published, or only some.

    Attributes:
        service: ``bucket_preparation`` or ``clustering_preparation``.
        reason: what has changed meanwhile, or what was left out.
        is_inline_next: whether the next run of the service is not prepared, so that the next batch
            waits for it.
        table: the URL of the table.
    """

    service: str
    reason: str
    is_inline_next: bool
    table: str


@dataclass(frozen=True, slots=True)
class HookSent:
    """The receiver of a hook has accepted a notice.

    Attributes:
        hook: the name of the hook.
        notice: the kind of notice, such as ``CommitCompleted``.
        instant: the commit; "" for another notice.
        pending: the number of notices that still wait.
    """

    hook: str
    notice: str
    instant: str
    pending: int


@dataclass(frozen=True, slots=True)
class HookFailed:
    """A hook could not deliver a notice. It tries again, and the batches continue.

    Attributes:
        hook: the name of the hook.
        error: the message of the error.
        failures: the number of consecutive failures, including this one.
        pause_s: seconds until the next attempt.
        error_type: the name of the error's class.
        pending: the number of notices that wait, including this one.
    """

    hook: str
    error: str
    failures: int
    pause_s: float
    error_type: str
    pending: int


@dataclass(frozen=True, slots=True)
class HookDropped:
    """A hook has dropped notices, which it does not deliver any more.

    Attributes:
        hook: the name of the hook.
        count: the number of notices.
        instant: the last commit among them; "" if there is none.
        reason: why they were dropped.
    """

    hook: str
    count: int
    instant: str
    reason: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """A start or a batch failed for a transient reason, and the stream will start again.

    Attributes:
        error: the message of the error.
        attempt: the number of the attempt that failed, from 1.
        max_attempts: the number of attempts after which the run fails; 0 if there is no limit.
        pause_s: seconds until the next attempt.
        error_type: the name of the error's class.
    """

    error: str
    attempt: int
    max_attempts: int
    pause_s: float
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class ClusteringAwaited:
    """A clustering of another writer prevents a batch, so that the stream waits for it.

    Attributes:
        reason: which clustering, and how it can be ended.
        waits: the number of the wait, from 1.
        pause_s: seconds until the stream looks again.
    """

    reason: str
    waits: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class ActionRequested:
    """A client of the endpoint asks the run for an action, such as on the status page.

    Attributes:
        action: ``pause``, ``resume``, ``stop``, or ``run`` and the name of a service.
    """

    action: str


@dataclass(frozen=True, slots=True)
class RunPaused:
    """The stream has ended, because the run was asked to pause. It starts again at ``resume``."""


@dataclass(frozen=True, slots=True)
class RunResumed:
    """The run was asked to resume, and the stream starts from the table's checkpoint.

    Attributes:
        seconds: the time since ``RunPaused``.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run failed permanently, perhaps before the stream started. This is its last event.

    Attributes:
        error_type: the name of the error's class.
        error: the message of the error.
    """

    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class RunStopping:
    """The run was asked to stop. It stops after the work in progress.

    Attributes:
        work: ``batch``, ``compaction``, ``catalog sync`` or ``hook``; "" if nothing is in progress.
    """

    work: str


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """The snapshot was read to its end. The run continues with the topic.

    Attributes:
        snapshot: the path or URL of the snapshot.
        batches: the number of batches that this run has committed.
        rows_written: the number of rows in all these batches.
        seconds: the time from the start of the run to this event.
    """

    snapshot: str
    batches: int
    rows_written: int
    seconds: float


#: The reason of ``RunStopped`` if nothing was unread.
CAUGHT_UP: Final = "caught up"


@dataclass(frozen=True, slots=True)
class RunStopped:
    """The run ended.

    Attributes:
        reason: ``caught up`` or ``interrupted``.
        checkpoint: the next offset of each partition; empty if the source has no partitions.
        batches: the number of committed batches.
        rows_written: the number of rows in all these batches, with those of the tables of a route.
        seconds: the time from start to end.
        position: where the next run starts, as in ``RunStarted``; "" if nothing was read.
    """

    reason: str
    checkpoint: Mapping[int, int]
    batches: int
    rows_written: int
    seconds: float
    position: str = ""


#: The events, by what they are about.
RunEvent: TypeAlias = (
    RunStarted
    | RunStopping
    | RunStopped
    | RunFailed
    | RunPaused
    | RunResumed
    | ActionRequested
    | Retrying
    | ClusteringAwaited
    | SnapshotRead
)
SourceEvent: TypeAlias = TopicsFound | OffsetsLost | GroupCommitFailed | Alive
BatchEvent: TypeAlias = (
    BatchPlanned
    | BatchWritten
    | RecordsRejected
    | RulesViolated
    | ChecksViolated
    | PartitionsChanged
    | SchemaEvolved
)
ServiceEvent: TypeAlias = (
    CompactionStarted
    | CompactionFailed
    | CompactionCompleted
    | CompactionResolved
    | ServiceCompleted
    | ServiceFailed
    | RequestedServiceFailed
    | PreparationOutdated
    | PartitionsExpired
    | UnresolvedLettersExpire
)
HookEvent: TypeAlias = HookSent | HookFailed | HookDropped
ProcessEvent: TypeAlias = MetricsServed | WarningLogged

Event: TypeAlias = RunEvent | SourceEvent | BatchEvent | ServiceEvent | HookEvent | ProcessEvent


class Listener(Protocol):
    """Receives each event, in order, on the thread that emits it.

    Events of asynchronous compactions, hooks, keepalives, warnings and requested actions come from
    threads that do not belong to the loop.
    """

    def __call__(self, event: Event, /) -> None:
        """Receive an event."""
        ...


def ignore(event: Event, /) -> None:
    """Do nothing; a listener for callers that need no events."""
