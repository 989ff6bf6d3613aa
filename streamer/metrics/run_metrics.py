"""A run's events, and what is seen of its topic and table between them, as Prometheus metrics."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import assert_never

from prometheus_client import CollectorRegistry, ProcessCollector

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock
from streamer.events import (
    Alive,
    BatchPlanned,
    BatchWritten,
    CompactionCompleted,
    CompactionFailed,
    CompactionResolved,
    CompactionStarted,
    Event,
    GroupCommitFailed,
    MetricsServed,
    OffsetsLost,
    PartitionsChanged,
    RecordsRejected,
    Retrying,
    RunFailed,
    RunStarted,
    RunStopped,
    RunStopping,
    SchemaEvolved,
    ServiceCompleted,
    WarningLogged,
)
from streamer.metrics.families import BoundedLabel, Families
from streamer.metrics.table_shape import ROWS, TableShape


class RunMetrics:
    """A listener that counts; ``docs/operating.md`` says what each metric means.

    Written by the run's threads and by the one that looks at topic and table, read by the endpoint.

    Args:
        pipeline: its name.
        topic: what it reads.
        now: seconds since 1970.
    """

    def __init__(self, pipeline: str, topic: str, now: Callable[[], float] = time.time) -> None:
        families = Families(pipeline, topic)
        self._batches = _Batches(families, now)
        self._lag = _Lag(families, now)
        self._table = _Table(families, now)
        self._tables = _Tables(families)
        self._troubles = _Troubles(families)
        self._services = _Services(families, now)
        build = families.gauge("build_info", "Always 1; the version that runs", "version")
        build.labels(*families.run, version("lakemark")).set(1)
        ProcessCollector(registry=families.registry)
        self._registry = families.registry

    @property
    def registry(self) -> CollectorRegistry:
        """All metrics, for whoever serves them."""
        return self._registry

    @property
    def position(self) -> KafkaCheckpoint | None:
        """What the run has committed; None before it has started from the table."""
        return self._lag.position

    def __call__(self, event: Event, /) -> None:
        """Count the event."""
        match event:
            case RunStarted():
                self._troubles.starts.inc()
                self._lag.start(event)
            case BatchPlanned():
                self._lag.plan(event)
                self._batches.plan(event)
            case BatchWritten():
                self._lag.advance(event)
                self._batches.add(event)
                self._troubles.in_a_row.set(0)
            case RecordsRejected():
                self._batches.rejects.inc(event.count)
            case PartitionsChanged():
                self._batches.partition_changes.inc(event.count)
            case OffsetsLost():
                self._troubles.lose(event)
            case SchemaEvolved():
                self._table.schema_changes.inc(len(event.changes))
            case CompactionStarted():
                self._services.compacting.set(1)
            case CompactionFailed():
                self._services.fail(event)
            case CompactionCompleted():
                self._services.compact(event)
            case CompactionResolved():
                self._services.settle(event.instant)
            case ServiceCompleted():
                self._services.add(event.service, event.seconds)
            case Retrying():
                self._troubles.retries.inc()
                self._troubles.fail(event.error_type)
                self._troubles.in_a_row.set(event.attempt)
            case RunFailed():
                self._troubles.fail(event.error_type)
                self._services.compacting.set(0)
            case RunStopped():
                self._batches.planned.set(0)
                self._services.compacting.set(0)
            case WarningLogged():
                self._troubles.warnings.inc()
            case MetricsServed() | Alive() | RunStopping():
                pass  # whoever reads this knows
            case GroupCommitFailed():
                self._troubles.group_commits.inc()
            case _:
                assert_never(event)

    def use_clock(self, clock: TimelineClock) -> None:
        """Read instant times with the clock of the pipeline's table; in UTC before that."""
        self._batches.clock = self._table.clock = clock

    def note_lag(self, lag: Mapping[int, int], oldest: Mapping[int, float]) -> None:
        """What the topic held beyond ``position``.

        Args:
            lag: offsets of each partition that are unread.
            oldest: Kafka's timestamp of the first unread record, in seconds since 1970; of the
                partitions where it is known.
        """
        self._lag.note(lag, oldest)

    def note_table(self, name: str, shape: TableShape) -> None:
        """What one of the pipeline's tables looks like.

        Args:
            name: ``ROWS`` or ``DEAD_LETTERS``.
            shape: of it.
        """
        self._tables.note(name, shape)
        if name == ROWS:
            self._table.note(shape)

    def note_failed_look(self) -> None:
        """Topic or table did not answer; what was seen before stands."""
        self._lag.failed_looks.inc()


class _Batches:
    """What batches were made of."""

    def __init__(self, families: Families, now: Callable[[], float]) -> None:
        self._run, self._now = families.run, now
        self.clock = UTC_CLOCK
        one = families.one_counter
        self._seconds = families.one_seconds("batch_seconds", "Seconds of a batch, all stages")
        self._stages = families.counter("stage_seconds", "Seconds spent in a stage", "stage")
        self._stage_name = BoundedLabel()
        self._records = one("records_read", "Records that Kafka gave")
        self._skipped = one("skipped_offsets", "Offsets of batches without a record in the topic")
        self._rows = one("rows_written", "Rows written, after older versions were dropped")
        self._deletes = one("rows_deleted", "Of these, deletes")
        self._bytes = one("bytes_written", "Size of the files that batches wrote")
        self._files = one("files_written", "Files that batches wrote")
        self._ignored = one("tombstones_ignored", "Tombstones that were passed over")
        self.rejects = one("records_rejected", "Records that went to the dead letters")
        text = "Record keys that a batch left in more partitions than before"
        self.partition_changes = one("partition_changes", text)
        self.planned = families.one_gauge("batch_in_progress_records", "Of the batch being written")
        self._committed = families.one_gauge(
            "last_commit_timestamp_seconds", "When the last commit of this process was completed"
        )
        self._instant = families.one_gauge(
            "last_instant_timestamp_seconds", "Its instant, as a time: when it was requested"
        )

    def plan(self, event: BatchPlanned) -> None:
        self.planned.set(event.records)

    def add(self, event: BatchWritten) -> None:
        self.planned.set(0)
        self._seconds.observe(event.total_s)
        for stage, seconds in event.stage_s.items():
            self._stages.labels(*self._run, self._stage_name(stage)).inc(seconds)
        self._records.inc(event.records_read)
        self._skipped.inc(event.offsets_skipped)
        self._rows.inc(event.rows_written)
        self._deletes.inc(event.rows_deleted)
        self._bytes.inc(event.bytes_written)
        self._files.inc(event.files_written)
        self._ignored.inc(event.ignored)
        if event.instant is not None:
            self._committed.set(self._now())
            self._instant.set(self.clock.parse(event.instant).timestamp())


class _Lag:
    """How far the table is behind its topic, by partition."""

    def __init__(self, families: Families, now: Callable[[], float]) -> None:
        self._run, self._now = families.run, now
        self._lock = threading.Lock()
        self._offsets: dict[int, int] = {}
        self._planned: Mapping[int, int] = {}
        self._unread: dict[int, int] = {}
        self._oldest: dict[int, float] = {}
        self._is_started = False
        gauge = families.gauge
        self._records = gauge("lag_records", "Offsets that are not committed", "partition")
        self._seconds = gauge("lag_seconds", "Age of the oldest unread record", "partition")
        self._next = gauge("next_offset", "The first offset that is not committed", "partition")
        self._seen = families.one_gauge("lag_timestamp_seconds", "When lag was last looked at")
        self.failed_looks = families.one_counter(
            "failed_polls", "Looks at topic and table that got no answer"
        )

    @property
    def position(self) -> KafkaCheckpoint | None:
        with self._lock:
            topic = self._run[1]
            return KafkaCheckpoint(topic, dict(self._offsets)) if self._is_started else None

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
            self._seen.set(self._now())
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
        """It grows between two looks, and while nobody can look."""
        if not self._unread[partition]:
            return 0.0
        oldest = self._oldest.get(partition)
        return math.nan if oldest is None else max(0.0, self._now() - oldest)


class _Table:
    """What the table's files look like."""

    def __init__(self, families: Families, now: Callable[[], float]) -> None:
        one, self._now = families.one_gauge, now
        self._pending_since: str | None = None
        self.clock = UTC_CLOCK
        self._groups = one("table_file_groups", "File groups in sight")
        self._logs = one("table_log_files", "Log files that are not compacted yet")
        self._base_bytes = one("table_base_bytes", "Size of the base files that a query reads")
        self._log_bytes = one("table_log_bytes", "Size of the log files that a query merges")
        self._pending = one("table_pending_compactions", "Compactions requested, not completed")
        one("table_pending_compaction_age_seconds", "Of the oldest; 0 without").set_function(
            self._age_s
        )
        self._since = one(
            "table_delta_commits_since_compaction", "Delta commits since the last compaction"
        )
        self._uncompacted = one(
            "table_delta_commits_uncompacted", "Delta commits no completed compaction has merged"
        )
        self.schema_changes = families.one_counter(
            "schema_changes", "Columns that were added or became wider"
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
        """It grows between two looks."""
        since = self._pending_since
        return 0.0 if since is None else max(0.0, self._now() - self.clock.parse(since).timestamp())


class _Tables:
    """What is told of the dead letters as well."""

    def __init__(self, families: Families) -> None:
        self._run, gauge = families.run, families.gauge
        self._instants = gauge("table_active_instants", "Of the active timeline", "table")
        self._pending = gauge(
            "table_pending_services", "Services requested, not completed", "table", "action"
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
    """What was done for the table between batches, and beside them."""

    def __init__(self, families: Families, now: Callable[[], float]) -> None:
        self._run, self._name, self._now = families.run, BoundedLabel(), now
        self._seconds = families.seconds("service_seconds", "Seconds of a table service", "service")
        self._compacted_rows = families.one_counter("compacted_rows", "Rows that compaction wrote")
        self._compacted_bytes = families.one_counter("compacted_bytes", "Bytes of these")
        self.compacting = families.one_gauge(
            "compaction_running", "Whether one is at work beside batches"
        )
        self._lock = threading.Lock()  # the loop's thread and the compaction's tell of the same
        self._failing: dict[str, int] = {}
        self._failures = families.one_counter("compaction_failures", "Of those beside the batches")
        self._in_a_row = families.one_gauge(
            "consecutive_compaction_failures", "Of one that is neither done nor gone"
        )
        self._failed_at = families.one_gauge(
            "last_compaction_failure_timestamp_seconds", "When the last one failed; 0 for never"
        )

    def compact(self, event: CompactionCompleted) -> None:
        self.add("compaction", event.seconds)
        self._compacted_rows.inc(event.rows_written)
        self._compacted_bytes.inc(event.bytes_written)
        self.compacting.set(0)
        self.settle(event.instant)

    def settle(self, compaction: str) -> None:
        """It fails no more: it is done, or has gone."""
        with self._lock:
            self._failing.pop(compaction, None)
            self._in_a_row.set(max(self._failing.values(), default=0))

    def fail(self, event: CompactionFailed) -> None:
        self.compacting.set(0)
        self._failures.inc()
        with self._lock:
            self._failing[event.instant] = self._failing.get(event.instant, 0) + 1
            self._in_a_row.set(max(self._failing.values()))
        self._failed_at.set(self._now())

    def add(self, service: str, seconds: float) -> None:
        self._seconds.labels(*self._run, self._name(service)).observe(seconds)


class _Troubles:
    """What went wrong."""

    def __init__(self, families: Families) -> None:
        self._run, self._type = families.run, BoundedLabel()
        one = families.one_counter
        self.starts = one("stream_starts", "Starts from the table; more than 1 after failures")
        self.retries = one("retries", "Failures after which the stream was started again")
        self._lost_ranges = one("lost_ranges", "Ranges of offsets gone before they were read")
        self._lost = families.counter("lost_offsets", "Offsets in these, if known", "partition")
        self.group_commits = one(
            "group_commit_failures", "Offsets that Kafka did not take for a consumer group"
        )
        self.warnings = one("warnings", "Warnings of parts that go on all the same")
        self.in_a_row = families.one_gauge("consecutive_failures", "Since the last commit")
        self._failures = families.counter("failures", "Failures, by class of error", "type")

    def lose(self, event: OffsetsLost) -> None:
        self._lost_ranges.inc(len(event.ranges))
        for lost in event.lost:
            if isinstance(count := lost["count"], int):
                self._lost.labels(*self._run, lost["partition"]).inc(count)

    def fail(self, error_type: str) -> None:
        self._failures.labels(*self._run, self._type(error_type)).inc()
