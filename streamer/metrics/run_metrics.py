"""Prometheus metrics of a run, updated from its events and from polls of its topic and tables."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import assert_never

from prometheus_client import CollectorRegistry

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock
from streamer.events import (
    ActionRequested,
    Alive,
    BatchPlanned,
    BatchWritten,
    ChecksViolated,
    ClusteringAwaited,
    CompactionCompleted,
    CompactionFailed,
    CompactionResolved,
    CompactionStarted,
    Event,
    GroupCommitFailed,
    HookDropped,
    HookFailed,
    HookSent,
    MetricsServed,
    OffsetsLost,
    PartitionsChanged,
    PartitionsExpired,
    PreparationOutdated,
    RecordsRejected,
    RequestedServiceFailed,
    Retrying,
    RulesViolated,
    RunFailed,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopped,
    RunStopping,
    SchemaEvolved,
    ServiceCompleted,
    ServiceFailed,
    SnapshotRead,
    TopicsFound,
    UnresolvedLettersExpire,
    WarningLogged,
)
from streamer.metrics.metric_families import MetricFactory, MetricFamilies
from streamer.metrics.table_shape import ROWS, TableShape
from transforms.batch_checks import BatchCheck
from transforms.expectations import Rule

#: The largest number of values of a label whose values the configuration does not limit.
_MAX_LABEL_VALUES = 32


class BoundedLabel:
    """Limits the values of a label, such as error types; further values become ``other``."""

    def __init__(self, at_most: int = _MAX_LABEL_VALUES) -> None:
        self._at_most = at_most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the value to use for the label."""
        if value in self._known or len(self._known) < self._at_most:
            self._known.add(value)
            return value
        return "other"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far the table is behind one partition of its topic.

    Attributes:
        partition: the number of the partition.
        next_offset: the first offset that is not committed; None if it is not known.
        records: the number of unread offsets; None if it is not known.
        seconds: the age of the oldest unread record; None if it is not known.
    """

    partition: int
    next_offset: int | None
    records: int | None
    seconds: float | None


class RunMetrics:
    """A listener that updates metrics. ``docs/operating.md`` describes each metric.

    The threads of the run and the poller write the metrics; the endpoint reads them.

    Args:
        pipeline: the name of the pipeline.
        topic: the topic that the pipeline reads.
        now: returns the seconds since 1970.
        rules: the rules that judge the rows; their metrics are exported as 0 from the start.
        checks: the checks that judge batches; so are theirs.
        families: the metrics of the process, if several pipelines share it; None for new ones.
    """

    def __init__(
        self,
        pipeline: str,
        topic: str,
        now: Callable[[], float] = time.time,
        rules: Sequence[Rule] = (),
        checks: Sequence[BatchCheck] = (),
        families: MetricFamilies | None = None,
    ) -> None:
        families = families or MetricFamilies()
        factory = MetricFactory(families, pipeline, topic)
        self._rules = _Rules(factory, rules)
        self._checks = _Checks(factory, checks)
        self._batches = _Batches(factory, now)
        self._lag = _Lag(factory, now)
        self._table = _Table(factory, now)
        self._tables = _Tables(factory)
        self._failures = _Failures(factory)
        self._services = _Services(factory, now)
        self._hooks = _Hooks(factory, now)
        build = factory.gauge("build_info", "Always 1; the label is the running version", "version")
        build.labels(*factory.run, version("lakemark")).set(1)
        self._is_running = factory.one_gauge("running", "1 until the run ends, then 0")
        self._is_running.set(1)
        self._is_paused = factory.one_gauge("paused", "1 while the run is paused")
        self._registry = families.registry
        self._shapes: dict[str, TableShape] = {}

    @property
    def registry(self) -> CollectorRegistry:
        """All metrics of the process."""
        return self._registry

    @property
    def position(self) -> KafkaCheckpoint | None:
        """The offsets that the run has committed; None until it has started from the table."""
        return self._lag.position

    @property
    def lag(self) -> tuple[PartitionLag, ...]:
        """The lag of each known partition, as the metrics report it."""
        return self._lag.by_partition()

    @property
    def lag_seen_at(self) -> float | None:
        """When the lag was last read from Kafka, in seconds since 1970; None for never."""
        return self._lag.seen_at

    def shape_of(self, name: str) -> TableShape | None:
        """Return the shape of a table at the last poll; None if there was none.

        Args:
            name: ``ROWS`` or ``DEAD_LETTERS``.
        """
        return self._shapes.get(name)

    def __call__(self, event: Event, /) -> None:
        """Update the metrics."""
        match event:
            case RunStarted():
                self._failures.starts.inc()
                self._lag.start(event)
            case BatchPlanned():
                self._lag.plan(event)
                self._batches.plan(event)
            case BatchWritten():
                self._lag.advance(event)
                self._batches.add(event)
                self._failures.consecutive.set(0)
            case RecordsRejected():
                self._batches.rejects.inc(event.count)
            case RulesViolated():
                self._rules.add(event)
            case ChecksViolated():
                self._checks.add(event)
            case PartitionsChanged():
                self._batches.partition_changes.inc(event.count)
            case OffsetsLost():
                self._failures.lose(event)
            case SchemaEvolved():
                self._table.schema_changes.inc(len(event.changes))
            case CompactionStarted():
                self._services.running.set(1)
            case CompactionFailed():
                self._services.fail(event)
            case CompactionCompleted():
                self._services.compact(event)
            case CompactionResolved():
                self._services.resolve(event.instant)
            case PartitionsExpired():
                self._services.expire(event)
            case UnresolvedLettersExpire():
                self._services.expired_letters.inc(event.letters)
            case ServiceFailed() | RequestedServiceFailed():
                self._services.fail_between_batches(event.service)
            case ServiceCompleted():
                self._services.add(event.service, event.seconds)
            case PreparationOutdated():
                self._services.waste(event.service)
            case HookSent():
                self._hooks.send(event)
            case HookFailed():
                self._hooks.fail(event)
            case HookDropped():
                self._hooks.drop(event)
            case ClusteringAwaited():
                self._is_running.set(1)
            case Retrying():
                self._is_running.set(1)  # also after ``RunFailed``
                self._failures.retries.inc()
                self._failures.fail(event.error_type)
                self._failures.consecutive.set(event.attempt)
            case RunPaused():
                self._is_paused.set(1)
            case RunResumed():
                self._is_paused.set(0)
            case RunFailed():
                self._failures.fail(event.error_type)
                self._services.running.set(0)
                self._is_running.set(0)
                self._is_paused.set(0)
            case RunStopped():
                self._is_running.set(0)
                self._is_paused.set(0)
                self._batches.planned.set(0)
                self._services.running.set(0)
            case SnapshotRead():
                self._batches.planned.set(0)
                self._services.running.set(0)
            case WarningLogged():
                self._failures.warnings.inc()
            case TopicsFound():
                self._failures.consecutive.set(0)
            case MetricsServed() | Alive() | RunStopping() | ActionRequested():
                pass  # these events change no metric
            case GroupCommitFailed():
                self._failures.group_commits.inc()
            case _:
                assert_never(event)

    def use_clock(self, clock: TimelineClock) -> None:
        """Parse instant times with the clock of the pipeline's table; the default is UTC."""
        self._batches.clock = self._table.clock = clock

    def record_lag(self, lag: Mapping[int, int], oldest: Mapping[int, float]) -> None:
        """Record how much of the topic is unread.

        Args:
            lag: the number of unread offsets of each partition.
            oldest: Kafka's timestamp of the first unread record of each partition, in seconds since
                1970. Partitions without a known timestamp are omitted.
        """
        self._lag.note(lag, oldest)

    def record_table(self, name: str, shape: TableShape) -> None:
        """Record the shape of one of the pipeline's tables.

        Args:
            name: ``ROWS`` or ``DEAD_LETTERS``.
            shape: the shape of the table.
        """
        self._tables.note(name, shape)
        self._shapes[name] = shape
        if name == ROWS:
            self._table.note(shape)

    def record_failed_poll(self) -> None:
        """Count a failed poll of the topic or the tables. Their metrics keep the last values."""
        self._lag.failed_polls.inc()


class _Batches:
    """Metrics of batches."""

    def __init__(self, factory: MetricFactory, now: Callable[[], float]) -> None:
        self._run, self._now = factory.run, now
        self.clock = UTC_CLOCK
        one = factory.one_counter
        text = "Seconds of a batch without the time in which the previous batch was written"
        self._seconds = factory.one_seconds("batch_seconds", text)
        self._stages = factory.counter("stage_seconds", "Seconds spent in a stage", "stage")
        self._stage_name = BoundedLabel()
        self._records = one("records_read", "Records read from Kafka")
        self._skipped = one(
            "skipped_offsets", "Offsets in batches at which the topic has no record"
        )
        self._rows = one(
            "rows_written", "Rows written, after each batch was reduced to one change per key"
        )
        self._deletes = one("rows_deleted", "Deletes among the written rows")
        self._moves = one("rows_moved", "Rows that moved to another partition")
        self._duplicates = one("duplicates_dropped", "Records whose keys were stored already")
        self._bytes = one("bytes_written", "Size of the files that batches wrote")
        self._files = one("files_written", "Files that batches wrote")
        self._ignored = one("tombstones_ignored", "Tombstones that were skipped")
        self._filtered = one("records_filtered", "Records that transforms dropped on purpose")
        self.rejects = one("records_rejected", "Records sent to the dead letters")
        text = "Record keys that are in more partitions after a batch than before it"
        self.partition_changes = one("partition_changes", text)
        self.planned = factory.one_gauge(
            "batch_in_progress_records", "Offsets of the batch being written"
        )
        self._committed = factory.one_gauge(
            "last_commit_timestamp_seconds", "When this process last committed"
        )
        self._instant = factory.one_gauge(
            "last_instant_timestamp_seconds", "Instant time of this process's last commit"
        )

    def plan(self, event: BatchPlanned) -> None:
        self.planned.set(event.records)

    def add(self, event: BatchWritten) -> None:
        self.planned.set(0)
        self._seconds.observe(event.seconds)
        for stage, seconds in event.stage_s.items():
            self._stages.labels(*self._run, self._stage_name(stage)).inc(seconds)
        self._records.inc(event.records_read)
        self._skipped.inc(event.offsets_skipped)
        self._rows.inc(event.rows_written)
        self._deletes.inc(event.rows_deleted)
        self._moves.inc(event.rows_moved)
        self._duplicates.inc(event.duplicates)
        self._bytes.inc(event.bytes_written)
        self._files.inc(event.files_written)
        self._ignored.inc(event.ignored)
        self._filtered.inc(event.filtered)
        if event.instant is not None:
            self._committed.set(self._now())
            self._instant.set(self.clock.parse(event.instant).timestamp())


class _Rules:
    """Metrics of the rules that judge the rows."""

    def __init__(self, factory: MetricFactory, rules: Sequence[Rule]) -> None:
        self._run = factory.run
        text = "Rows that violated a rule"
        self._violations = factory.counter("rule_violations", text, "rule", "outcome")
        for rule in rules:
            self._violations.labels(*self._run, rule.name, rule.outcome.value)

    def add(self, event: RulesViolated) -> None:
        for one in event.violations:
            self._violations.labels(*self._run, one.rule, one.outcome).inc(one.count)


class _Checks:
    """Metrics of the checks that judge batches."""

    def __init__(self, factory: MetricFactory, checks: Sequence[BatchCheck]) -> None:
        self._run = factory.run
        text = "Batches that violated a check"
        self._violated = factory.counter("check_violations", text, "check", "outcome")
        for check in checks:
            self._violated.labels(*self._run, check.name, check.outcome.value)

    def add(self, event: ChecksViolated) -> None:
        for one in event.violations:
            self._violated.labels(*self._run, one.check, one.outcome).inc()


class _Lag:
    """Metrics of the lag: how far the table is behind each partition of its topic."""

    def __init__(self, factory: MetricFactory, now: Callable[[], float]) -> None:
        self._run, self._now = factory.run, now
        self._lock = threading.Lock()
        self._offsets: dict[int, int] = {}
        self._planned: Mapping[int, int] = {}
        self._unread: dict[int, int] = {}
        self._oldest: dict[int, float] = {}
        self._is_started = False
        self.seen_at: float | None = None
        gauge = factory.gauge
        self._records = gauge("lag_records", "Offsets that are not committed", "partition")
        self._seconds = gauge("lag_seconds", "Age of the oldest unread record", "partition")
        self._next = gauge("next_offset", "The first offset that is not committed", "partition")
        self._seen = factory.one_gauge(
            "lag_timestamp_seconds", "When the lag was last read from Kafka"
        )
        self.failed_polls = factory.one_counter(
            "failed_polls", "Failed attempts to read the lag or the tables"
        )

    @property
    def position(self) -> KafkaCheckpoint | None:
        with self._lock:
            topic = self._run[1]
            has_partitions = self._is_started and self._offsets
            return KafkaCheckpoint(topic, dict(self._offsets)) if has_partitions else None

    def by_partition(self) -> tuple[PartitionLag, ...]:
        with self._lock:
            partitions = sorted({*self._offsets, *self._unread})
            return tuple(self._lag_of(one) for one in partitions)

    def _lag_of(self, partition: int) -> PartitionLag:
        unread = self._unread.get(partition)
        seconds = math.nan if unread is None else self._age_s(partition)
        known_s = None if math.isnan(seconds) else seconds
        return PartitionLag(partition, self._offsets.get(partition), unread, known_s)

    def start(self, event: RunStarted) -> None:
        with self._lock:
            self._offsets, self._planned, self._is_started = dict(event.start), {}, True
            self._show_position()

    def plan(self, event: BatchPlanned) -> None:
        with self._lock:
            self._planned = event.offsets
            for partition, count in event.offsets.items():
                self._show(partition, max(count, self._unread.get(partition, 0)))

    def advance(self, event: BatchWritten) -> None:
        with self._lock:
            for partition, count in self._planned.items():
                self._offsets[partition] = self._offsets.get(partition, 0) + count
            self._planned = {}
            self._show_position()
            for partition, count in event.lag.items():
                self._show(partition, count)

    def note(self, lag: Mapping[int, int], oldest: Mapping[int, float]) -> None:
        with self._lock:
            self.seen_at = self._now()
            self._seen.set(self.seen_at)
            self._oldest.update(oldest)
            for partition, count in lag.items():
                self._show(partition, count)

    def _show(self, partition: int, unread: int) -> None:
        if partition not in self._unread:
            shown = self._seconds.labels(*self._run, partition)
            shown.set_function(lambda: self._age_s(partition))
        self._unread[partition] = unread
        if not unread:
            self._oldest.pop(partition, None)
        self._records.labels(*self._run, partition).set(unread)

    def _show_position(self) -> None:
        for partition, offset in self._offsets.items():
            self._next.labels(*self._run, partition).set(offset)

    def _age_s(self, partition: int) -> float:
        """Return the age. It grows with the clock between two polls, even while polls fail."""
        if not self._unread[partition]:
            return 0.0
        oldest = self._oldest.get(partition)
        return math.nan if oldest is None else max(0.0, self._now() - oldest)


class _Table:
    """Metrics of the table's files."""

    def __init__(self, factory: MetricFactory, now: Callable[[], float]) -> None:
        one, self._now = factory.one_gauge, now
        self._pending_since: str | None = None
        self.clock = UTC_CLOCK
        self._groups = one("table_file_groups", "File groups that a query reads")
        self._logs = one("table_log_files", "Log files that are not compacted yet")
        self._base_bytes = one("table_base_bytes", "Size of the base files that a query reads")
        self._log_bytes = one("table_log_bytes", "Size of the log files that a query merges")
        self._pending = one("table_pending_compactions", "Compactions requested and not completed")
        one(
            "table_pending_compaction_age_seconds",
            "Age of the oldest pending compaction; 0 if there is none",
        ).set_function(self._age_s)
        self._since = one(
            "table_delta_commits_since_compaction", "Delta commits since the last compaction"
        )
        self._uncompacted = one(
            "table_delta_commits_uncompacted",
            "Delta commits that no completed compaction has merged",
        )
        self.schema_changes = factory.one_counter(
            "schema_changes", "Columns that were added or widened"
        )

    def note(self, shape: TableShape) -> None:
        self._groups.set(shape.file_groups)
        self._logs.set(shape.log_files)
        self._base_bytes.set(shape.base_bytes)
        self._log_bytes.set(shape.log_bytes)
        self._pending.set(shape.pending_compactions)
        self._pending_since = shape.pending_since
        self._since.set(shape.delta_commits)
        self._uncompacted.set(shape.uncompacted_delta_commits)

    def _age_s(self) -> float:
        """Return the age, which grows with the clock between two polls."""
        since = self._pending_since
        return 0.0 if since is None else max(0.0, self._now() - self.clock.parse(since).timestamp())


class _Tables:
    """Metrics of the pipeline's two tables: the rows and the dead letters."""

    def __init__(self, factory: MetricFactory) -> None:
        self._run, gauge = factory.run, factory.gauge
        self._instants = gauge("table_active_instants", "Instants of the active timeline", "table")
        self._pending = gauge(
            "table_pending_services", "Services requested and not completed", "table", "action"
        )
        self._files = gauge(
            "table_files", "Files that a query reads, by size", "table", "kind", "size"
        )

    def note(self, name: str, shape: TableShape) -> None:
        self._instants.labels(*self._run, name).set(shape.active_instants)
        for action, count in shape.pending.items():
            self._pending.labels(*self._run, name, action).set(count)
        for (kind, size), count in shape.files.items():
            self._files.labels(*self._run, name, kind, size).set(count)


class _Services:
    """Metrics of table services, inline and asynchronous."""

    def __init__(self, factory: MetricFactory, now: Callable[[], float]) -> None:
        self._run, self._name, self._now = factory.run, BoundedLabel(), now
        self._seconds = factory.seconds("service_seconds", "Seconds of a table service", "service")
        self._compacted_rows = factory.one_counter("compacted_rows", "Rows that compaction wrote")
        self._compacted_bytes = factory.one_counter(
            "compacted_bytes", "Bytes that compaction wrote"
        )
        self._expired = factory.one_counter(
            "expired_partitions", "Partitions that were deleted because their lifetime had ended"
        )
        self._expired_bytes = factory.one_counter(
            "expired_bytes", "Size of the files that queries read in expired partitions"
        )
        self.expired_letters = factory.one_counter(
            "expired_unresolved_letters", "Unresolved dead letters that the retention deleted"
        )
        self._failed = factory.counter(
            "service_failures", "Failures of table services between batches", "service"
        )
        self._outdated = factory.counter(
            "outdated_preparations",
            "Preparations of table services that were not published, or only in part",
            "service",
        )
        self.running = factory.one_gauge(
            "compaction_running", "1 while an asynchronous compaction runs"
        )
        self._lock = threading.Lock()  # two threads write below: the loop's and the compaction's
        self._failing: dict[str, int] = {}
        self._failures = factory.one_counter(
            "compaction_failures", "Failures of asynchronous compactions"
        )
        self._consecutive = factory.one_gauge(
            "consecutive_compaction_failures",
            "Consecutive failures of the pending compaction that has failed most often",
        )
        self._failed_at = factory.one_gauge(
            "last_compaction_failure_timestamp_seconds",
            "When an asynchronous compaction last failed; 0 for never",
        )

    def compact(self, event: CompactionCompleted) -> None:
        self.add("compaction", event.seconds)
        self._compacted_rows.inc(event.rows_written)
        self._compacted_bytes.inc(event.bytes_written)
        self.running.set(0)
        self.resolve(event.instant)

    def resolve(self, compaction: str) -> None:
        """Forget the failures of a compaction that is no longer pending."""
        with self._lock:
            self._failing.pop(compaction, None)
            self._consecutive.set(max(self._failing.values(), default=0))

    def fail(self, event: CompactionFailed) -> None:
        self.running.set(0)
        self._failures.inc()
        with self._lock:
            self._failing[event.instant] = self._failing.get(event.instant, 0) + 1
            self._consecutive.set(max(self._failing.values()))
        self._failed_at.set(self._now())

    def expire(self, event: PartitionsExpired) -> None:
        self.add("partition_expiry", event.seconds)
        self._expired.inc(len(event.partitions))
        self._expired_bytes.inc(event.bytes_expired)

    def fail_between_batches(self, service: str) -> None:
        self._failed.labels(*self._run, self._name(service)).inc()

    def waste(self, preparation: str) -> None:
        self._outdated.labels(*self._run, self._name(preparation)).inc()

    def add(self, service: str, seconds: float) -> None:
        self._seconds.labels(*self._run, self._name(service)).observe(seconds)


class _Hooks:
    """Metrics of the hooks, whose names the configuration limits."""

    def __init__(self, factory: MetricFactory, now: Callable[[], float]) -> None:
        self._run, self._now = factory.run, now
        self._sent = factory.counter("hook_sent", "Notices that receivers have accepted", "hook")
        self._failed = factory.counter("hook_failures", "Failed attempts to send a notice", "hook")
        self._dropped = factory.counter(
            "hook_dropped", "Notices that were dropped and not delivered", "hook"
        )
        self._pending = factory.gauge("hook_pending", "Notices that wait", "hook")
        self._succeeded = factory.gauge(
            "hook_last_success_timestamp_seconds", "When a receiver last accepted a notice", "hook"
        )

    def send(self, event: HookSent) -> None:
        self._sent.labels(*self._run, event.hook).inc()
        self._pending.labels(*self._run, event.hook).set(event.pending)
        self._succeeded.labels(*self._run, event.hook).set(self._now())

    def fail(self, event: HookFailed) -> None:
        self._failed.labels(*self._run, event.hook).inc()
        self._pending.labels(*self._run, event.hook).set(event.pending)

    def drop(self, event: HookDropped) -> None:
        self._dropped.labels(*self._run, event.hook).inc(event.count)


class _Failures:
    """Metrics of failures, retries and losses."""

    def __init__(self, factory: MetricFactory) -> None:
        self._run, self._type = factory.run, BoundedLabel()
        one = factory.one_counter
        self.starts = one(
            "stream_starts", "Starts from the table's checkpoint; more than 1 after failures"
        )
        self.retries = one("retries", "Failures after which the stream was restarted")
        self._lost_ranges = one(
            "lost_ranges", "Ranges of offsets that Kafka deleted before they were read"
        )
        self._lost = factory.counter(
            "lost_offsets", "Offsets in the lost ranges, as far as known", "partition"
        )
        self.group_commits = one(
            "group_commit_failures", "Failed commits of offsets to the consumer group"
        )
        self.warnings = one("warnings", "Warnings about problems that do not stop the run")
        self.consecutive = factory.one_gauge(
            "consecutive_failures", "Failures since the last commit"
        )
        self._by_type = factory.counter("failures", "Failures, by class of error", "type")

    def lose(self, event: OffsetsLost) -> None:
        self._lost_ranges.inc(len(event.ranges))
        for lost in event.lost:
            if isinstance(count := lost["count"], int):
                self._lost.labels(*self._run, lost["partition"]).inc(count)

    def fail(self, error_type: str) -> None:
        self._by_type.labels(*self._run, self._type(error_type)).inc()
