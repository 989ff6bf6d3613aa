"""One attempt to write a batch, from its instant to its commit.

1. ``TableWriter.begin``     requests the instant
2. ``Exchange.run``          reads the records, and writes the files of each bucket
3. ``WrittenBatch``          merges the results. If the batch must be written again, the attempt
                             ends here, and its instant is rolled back
4. rules, checks of the batch, rejects, audit     are checked by their results
5. dead letters              are committed before the batch. If the run dies in between, the batch
                             is read again, and its dead letters get the same keys
6. ``TableWriter.commit``    publishes the files and the checkpoint in one commit
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from checkpoints.position import Position
from lakemark.config import keys
from lakemark.errors import Retriable, WriteConflict
from lakemark.model.commit_metadata import Operation, WriteStat
from lakemark.model.instant import Instant
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.operations.table_writer import TableWriter
from lakemark.schema.evolution import Proposal
from lakemark.write.write_context import WriteContext
from sinks.audit import NOTHING_READ, Audit
from sinks.batch import AnyBatch, BatchResult
from sinks.hudi.batch_columns import BatchColumns
from sinks.hudi.check_run import CheckRun, StoredTable
from sinks.hudi.exchange import Exchange
from sinks.hudi.partition_rule import ChangedRows, PartitionChange
from sinks.hudi.placement import Placement
from sinks.hudi.prepare import BucketWriter, PrepareChunk, WriteBuckets
from sinks.hudi.rejection_times import RejectionTimes
from sinks.hudi.sink_progress import SinkProgress
from sinks.hudi.written_batch import WrittenBatch
from sinks.reject_limit import RejectCounter
from transforms.batch_checks import NOT_CHECKED, BatchCheck, CheckResults, columns_of_checks
from transforms.expectations import Rule
from transforms.violations import NO_VIOLATIONS, Violations


@dataclass(slots=True)
class StageTimer:
    """Measures the stages of a batch, and adds up the durations of all its attempts.

    Attributes:
        seconds: the duration of each stage.
    """

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the duration of the block to a stage."""
        started = time.monotonic()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - started


class BatchWriter:
    """Writes batches to a table, and their rejects to the dead-letter table.

    Args:
        rows: the writer of the table.
        rejects: the writer of the dead-letter table; None if there is no such table.
        columns: the columns of the rows.
        progress: the streamer's progress in the table.
        reject_counter: limits the number of rejects.
        partition_change: the rule for rows whose key exists in another partition.
        duplicates: what an insert does with stored keys; None for upserts and deletes.
        notes: returns further metadata for each commit.
    """

    def __init__(
        self,
        rows: TableWriter,
        rejects: TableWriter | None,
        *,
        columns: BatchColumns,
        progress: SinkProgress,
        reject_counter: RejectCounter,
        partition_change: PartitionChange,
        duplicates: Duplicates | None,
        notes: Callable[[], Mapping[str, str]],
    ) -> None:
        self._rows, self._rejects = rows, rejects
        self._columns, self._progress = columns, progress
        self._reject_counter, self._partition_change = reject_counter, partition_change
        self._duplicates, self._notes = duplicates, notes
        self._times = RejectionTimes(rejects, progress)

    @property
    def _rules(self) -> tuple[Rule, ...]:
        """The rules that judge the rows."""
        return self._columns.prepare.converter.rules

    @property
    def _checks(self) -> tuple[BatchCheck, ...]:
        """The checks that judge the batch."""
        return self._columns.prepare.converter.checks

    def attempt(
        self,
        batch: AnyBatch,
        exchange: Exchange[AnyBatch],
        timer: StageTimer,
        refused: ChangedRows | None,
    ) -> BatchResult | Proposal | ChangedRows:
        """Write and publish a batch; or undo everything, and return why to write it again.

        Args:
            batch: the batch.
            exchange: moves the batch's records to their buckets.
            timer: measures the stages.
            refused: rows to reject, because their key exists in another partition.

        Returns:
            The result of the published batch; or the schema change that its records request; or
            further rows to refuse.

        Raises:
            HudiError: see ``HudiSink.write``. Nothing was published.
        """
        with self._undo_on_failure():
            with timer.measure("begin"):
                context = self._begin()
            with timer.measure("write"):
                prepare, checks = self._prepare(refused), self._check_run()
                opener = self._opener(context, checks)
                written = WrittenBatch.merge(exchange.run(batch, prepare, opener))
            proposal, changed = written.proposal(), written.partition_changes
            if proposal:
                self.abandon()
                return proposal
            if len(changed) and self._partition_change is PartitionChange.REJECT:
                self.abandon()
                return changed
            written.violations.check(self._rules)
            checked = _with_result(written, checks)
            checked.check(self._checks, f"batch {batch.start} to {batch.end}")
            if written.rejects:
                first = written.first_reject or "unknown"
                self._reject_counter.check(written.rejected, written.records, first)
            audited = written.audit(f"batch {batch.start} to {batch.end}", batch.spans)
            lost = batch.check_source(written.read.gaps(batch.spans))
            audited = audited.with_elsewhere(batch.elsewhere).with_lost(lost)
            with timer.measure("commit"):
                self._commit_rejects(written)
                instant = self._publish(
                    written.row_stats,
                    batch.start,
                    batch.end,
                    batch.topic_id,
                    audited,
                    lost,
                    written.violations,
                    checked,
                )
        return replace(written, checked=checked).to_result(
            instant, timer.seconds, audited.skipped, self._rules, self._checks
        )

    def commit_start(
        self, start: Position, topic_id: str, lost: Sequence[Mapping[str, object]]
    ) -> Instant:
        """See ``HudiSink.commit_start``."""
        with self._undo_on_failure():
            self._begin()
            return self._publish([], start, start, topic_id, NOTHING_READ, lost)

    def begin_batch(self) -> None:
        """Begin the attempts to write a batch."""
        self._times.begin_batch()

    def forget_rejects(self) -> None:
        """Do not rely on what was known about the dead letters of unpublished batches."""
        self._times.forget()

    def abandon(self) -> None:
        """Roll back the pending instants of both tables.

        Raises:
            Fenced: another writer rolled back one of these instants, so this run must stop.
        """
        with ExitStack() as abandoned:
            for writer in (self._rows, self._rejects):
                if writer is not None:
                    abandoned.callback(writer.abandon)

    @contextmanager
    def _undo_on_failure(self) -> Iterator[None]:
        try:
            yield
        except WriteConflict:
            self.abandon()  # must succeed, because the batch is written again
            raise
        except BaseException:
            with suppress(Retriable):  # if this fails, the next start rolls the instants back
                self.abandon()
            raise

    def _begin(self) -> WriteContext:
        """Request the instant of an attempt, and use the current columns of the table."""
        context = self._rows.begin()
        self._columns.follow_table()
        return context

    def _prepare(self, refused: ChangedRows | None) -> PrepareChunk:
        """Return the function that prepares the chunks of an attempt."""
        prepare, checks = self._columns.prepare, self._checks
        prepare = replace(prepare, letters=self._times.layout())
        if checks:
            columns = columns_of_checks(checks, prepare.converter.table_schema)
            prepare = replace(prepare, checked=columns)
        return replace(prepare, refused=refused) if refused else prepare

    def _check_run(self) -> CheckRun | None:
        """Return what runs the checks of an attempt; None if there are no checks."""
        if not self._checks:
            return None
        columns = self._columns.prepare.converter.table_schema
        return CheckRun(self._checks, StoredTable.of(self._rows.table), columns)

    def _opener(
        self, context: WriteContext, checks: CheckRun | None
    ) -> Callable[[bool], WriteBuckets]:
        """Return the function that opens the writers; an exchange says if there may be rejects."""

        def open_write(may_reject: bool) -> WriteBuckets:
            write = open_row_buckets(self._rows, context, self._partition_change, self._duplicates)
            write = replace(write, checks=checks)
            if self._rejects is None or not may_reject:
                return write
            reject_context = self._rejects.begin()
            rejects = BucketWriter(reject_context, self._rejects.assigner.assign_file_groups())
            return replace(write, rejects=rejects)

        return open_write

    def _commit_rejects(self, written: WrittenBatch) -> None:
        if self._rejects is None or not self._rejects.is_writing:
            return
        if written.rejects:
            # If another writer has widened columns, these records may fit them.
            self._rows.check_columns(self._rows.table.store.load())
            self._rejects.commit(written.reject_stats, {})
        else:
            self._rejects.cancel()

    def _publish(
        self,
        stats: Sequence[WriteStat],
        start: Position,
        end: Position,
        topic_id: str,
        audited: Audit,
        lost: Sequence[Mapping[str, object]],
        violations: Violations = NO_VIOLATIONS,
        checked: CheckResults = NOT_CHECKED,
    ) -> Instant:
        """Commit files together with the offsets of their records, from ``start`` to ``end``."""
        facts = {keys.SOURCE_START: str(start), keys.AUDIT: audited.to_json()}
        if (chain := self._columns.prepare.converter.chain) is not None:
            facts[keys.TRANSFORM] = chain.fingerprint
        if self._rules or self._checks:
            of_checks = checked.facts(self._checks)
            facts[keys.EXPECTATIONS] = violations.to_json(self._rules, of_checks)
        if lost:
            facts[keys.SOURCE_LOST] = json.dumps(list(lost))
        progress = self._progress.metadata(end, topic_id)
        operation = Operation.UPSERT if self._duplicates is None else Operation.INSERT
        check = self._progress.check
        instant = self._rows.commit(stats, {**facts, **self._notes(), **progress}, check, operation)
        self._progress.advance(end)
        return instant


def _with_result(written: WrittenBatch, checks: CheckRun | None) -> CheckResults:
    """Return the results of the checks, also if all records were deletes or rejected."""
    if checks is None or written.checked.results or not written.read.count:
        return written.checked
    return checks([])


def open_row_buckets(
    rows: TableWriter,
    context: WriteContext,
    partition_change: PartitionChange,
    duplicates: Duplicates | None,
) -> WriteBuckets:
    """Return the function that writes the buckets of a table, and only counts rejects.

    Args:
        rows: the writer of the table, whose instant has begun.
        context: the context that ``begin`` returned.
        partition_change: the rule for rows whose key exists in another partition.
        duplicates: what an insert does with stored keys; None for upserts and deletes.
    """
    if rows.settings.index is None:
        unplaced = BucketWriter(context, FileGroupAssignment({}, frozenset()))
        placement = Placement(rows, context, duplicates)
        return WriteBuckets(unplaced, None, placement=placement)
    looks_up = partition_change.compares_partitions
    return WriteBuckets(BucketWriter(context, rows.assigner.assign_file_groups()), None, looks_up)
