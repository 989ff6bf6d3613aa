"""Writes batches of records to a Hudi table, each batch as one commit with its position.

``HudiSink.write`` makes attempts until the batch is published. ``batch_writer`` describes the steps
of an attempt.

- If another writer has committed to the same buckets, the attempt is rolled back, and the batch is
  written again from the same offsets.
- If records have fields that need new or wider columns, the attempt is rolled back before readers
  can see it. Then the batch is written again with these columns (``batch_columns``).
- In a table with keys of the whole table, rows move to other partitions in the same commit.
- If rows are refused because their key exists in another partition, the batch is written again, and
  these rows become dead letters (``partition_rule``).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from checkpoints.position import Position
from checkpoints.progress import Progress
from lakemark.config.merge_settings import merge_settings
from lakemark.errors import InvalidConfig, WriteConflict
from lakemark.model.action import REPLACING
from lakemark.model.instant import Instant
from lakemark.operations.cluster import is_clusterable
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.transaction.conflicts import ClusteringExecuted, ReplacementPending
from lakemark.transaction.multi_writer import has_heartbeat
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from lakemark.write.early_conflicts import EarlyConflict
from lakemark.write.partitioner import Bucket
from sinks.batch import AnyBatch, BatchResult
from sinks.hudi.batch_columns import BatchColumns, SavedColumns
from sinks.hudi.batch_writer import BatchWriter, StageTimer
from sinks.hudi.exchange import Exchange
from sinks.hudi.partition_rule import ChangedRows, PartitionChange
from sinks.hudi.prepare import FindBuckets, PrepareChunk
from sinks.hudi.sink_progress import SinkProgress
from sinks.hudi.written_batch import WrittenBatch
from sinks.reject_limit import RejectCounter, RejectLimit

#: The second attempt has all columns that the first one requested. Further attempts are needed when
#: other writers add columns.
_MAX_ATTEMPTS = 5

#: After more conflicts than this with other writers, the stream is restarted, with longer pauses.
_MAX_CONFLICTS = 2
_MAX_PAUSE_S = 0.5

#: How long the sink waits for the end of an earlier commit that is writing the same file groups.
_MAX_WAIT_S = 30.0


class HudiSink:
    """Writes batches to a table, and their rejects to the dead-letter table.

    Args:
        rows: the writer of the pipeline's table.
        rejects: the writer of the dead-letter table; None if there is no such table.
        prepare: converts raw records to changes; runs in the workers.
        limit: how many rejects a batch may have; a batch with more is not published.
        identity: the name under which the table records the progress of this streamer
            (``checkpoints.progress``).
        partition_change: the rule for rows whose key exists in another partition.
        duplicates: what an insert does with stored keys; None for upserts and deletes.
        notes: returns further metadata for each commit; called before the commit is published.
    """

    def __init__(
        self,
        rows: TableWriter,
        rejects: TableWriter | None,
        prepare: PrepareChunk,
        limit: RejectLimit,
        identity: str = DEFAULT_IDENTITY,
        partition_change: PartitionChange = PartitionChange.ALLOW,
        duplicates: Duplicates | None = None,
        notes: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._rows, self._rejects = rows, rejects
        if partition_change.compares_partitions:
            prepare = replace(prepare, looked_up=merge_settings(rows.table.properties))
        self._columns = BatchColumns(rows, prepare)
        self._progress = SinkProgress(rows, identity)
        self._reject_counter = RejectCounter(limit)
        self._writer = BatchWriter(
            rows,
            rejects,
            columns=self._columns,
            progress=self._progress,
            reject_counter=self._reject_counter,
            partition_change=partition_change,
            duplicates=duplicates,
            notes=notes,
        )
        self._is_first_batch = True
        self._last_files = 0

    @property
    def table(self) -> OpenTable:
        """The pipeline's table."""
        return self._rows.table

    @property
    def columns(self) -> pa.Schema:
        """The columns that batches write, without meta columns. Any thread may use this property.

        A batch may add columns, and widen them.
        """
        return self._rows.schema

    @property
    def url(self) -> str:
        """The URL of the pipeline's table."""
        return self.table.location.url

    @property
    def restart_due_in_s(self) -> None:
        """None: the stream of one table starts again only after a failure."""
        return None

    @property
    def looks_up_keys(self) -> bool:
        """Whether the table has no bucket index, so that only ``DriverExchange`` can write."""
        return self._rows.settings.index is None

    @property
    def dead_letters(self) -> str:
        """The URL of the dead-letter table; "" if there is none."""
        return self._rejects.table.location.url if self._rejects else ""

    @property
    def expected_buckets(self) -> int:
        """The number of buckets that the next batch probably changes: as many as the last one.

        It is 0 before the first batch.
        """
        return self._last_files

    def recover(self) -> list[str]:
        """Roll back the pending instants of dead writers in both tables, and return them."""
        self._writer.forget_rejects()
        writers = [writer for writer in (self._rows, self._rejects) if writer is not None]
        return [name for writer in writers for name in writer.recover()]

    def progress(self) -> Progress | None:
        """Return how far the table has read its source; None if it records no progress.

        The next batch is committed only if the table still has this checkpoint.
        """
        return self._progress.find()

    def checkpoint(self) -> Position | None:
        """Return the checkpoint of ``progress``; None at the start."""
        progress = self.progress()
        return None if progress is None else progress.checkpoint

    def can_be_clustered(self, refusal: ReplacementPending) -> bool:
        """Return whether a writer can execute the clustering that refuses a batch.

        No writer can, if the rows of the table must stay in their buckets. Then the plan is one
        that must be removed, or a resize.
        """
        for writer in (self._rows, self._rejects):
            if writer is not None and writer.table.timeline.find(refusal.planned.requested_at):
                return is_clusterable(writer.table)
        return True

    def still_refuses(self, refusal: ReplacementPending) -> bool:
        """Return whether a batch would still be refused, as of the last ``recover``.

        Args:
            refusal: why the batch was refused.
        """
        planned = refusal.planned
        for writer in (self._rows, self._rejects):
            pending = () if writer is None else writer.table.timeline.pending(*REPLACING)
            if writer is None or all(i.requested_at != planned.requested_at for i in pending):
                continue
            context = writer.table.context
            return not isinstance(refusal, ClusteringExecuted) or has_heartbeat(
                context.storage, planned, context.multi_writer
            )
        return False

    def write(self, batch: AnyBatch, exchange: Exchange[AnyBatch]) -> BatchResult:
        """Publish a whole batch together with its position. On failure, publish nothing.

        Raises:
            TooManyRejects: there are more rejects than the limit allows.
            SchemaRefused: a record does not fit the schema, and the policy stops the run.
            TooManyColumns: the records request more columns than a table should have.
            AuditFailed: records were lost or doubled between reading and writing.
            ClusteringPlanned: a planned clustering will replace a file group of the batch.
            ClusteringExecuted: a live writer executes such a clustering.
            ResizePlanned: a dead process has planned to resize a bucket of the batch. A restart of
                the stream executes the plan.
            Fenced: another writer moved this streamer's checkpoint, or rolled back the instant.
        """
        saved = self._columns.save()
        self._writer.begin_batch()
        try:
            if self._is_first_batch:
                self._check_not_clustered(batch, exchange)
            result = self._write(batch, exchange, saved)
        except BaseException:
            self._columns.restore(saved)
            self._writer.forget_rejects()
            raise
        # As in the check of an attempt, ignored tombstones do not count.
        self._reject_counter.add(result.rejected, result.records - result.ignored)
        self._is_first_batch = False
        self._last_files = result.files
        return result

    def commit_start(
        self, start: Position, topic_id: str = "", lost: Sequence[Mapping[str, object]] = ()
    ) -> Instant:
        """Record where reading starts, in a commit without rows.

        Args:
            start: how far the source counts as read.
            topic_id: Kafka's id of the topic; "" if it is not known.
            lost: ranges of offsets that were deleted before they were read.

        Raises:
            Fenced: another writer moved this streamer's checkpoint.
            WriteConflict: another writer changed the columns of the table; call this again.
        """
        return self._writer.commit_start(start, topic_id, lost)

    def _check_not_clustered(self, batch: AnyBatch, exchange: Exchange[AnyBatch]) -> None:
        """Check the first batch of a run against planned clusterings, before requesting an instant.

        Otherwise each start would add a rollback to the timeline, until an operator removes the
        clustering plan. The check reads the batch a second time. So later batches are only checked
        when they are committed, and so are all batches of a table with a lookup index. If the
        records request columns, the buckets are known only when the records are rows with these
        columns, so the columns are changed before the first attempt.
        """
        if not self._rows.may_be_clustered or self._rows.settings.index is None:
            return
        for _ in range(_MAX_ATTEMPTS):
            found = exchange.run(batch, self._columns.prepare, lambda may_reject: FindBuckets())
            self._rows.check_not_clustered(one for one in found if isinstance(one, Bucket))
            proposal = WrittenBatch.merge(found).proposal()
            if not proposal:
                return
            self._columns.evolve(proposal)

    def _write(
        self, batch: AnyBatch, exchange: Exchange[AnyBatch], saved: SavedColumns
    ) -> BatchResult:
        timer = StageTimer()
        conflicts = 0
        refused: ChangedRows | None = None
        for _ in range(_MAX_ATTEMPTS):
            began = time.monotonic()
            try:
                outcome = self._writer.attempt(batch, exchange, timer, refused)
            except InvalidConfig:
                if not self._columns.has_changed_since(saved):
                    raise
                # Another writer has added a requested column with another type.
                self._columns.restore(saved)
                continue
            except ReplacementPending:
                raise  # the stream is restarted, which executes, removes or awaits the plan
            except WriteConflict as conflict:  # model: retry
                conflicts, refused = conflicts + 1, None
                if conflicts > _MAX_CONFLICTS:
                    raise
                self._columns.restore(saved)
                if isinstance(conflict, EarlyConflict):
                    conflict.rival.wait(self._rows.table.storage, _MAX_WAIT_S)
                time.sleep(random.uniform(0, _MAX_PAUSE_S))
                seconds = timer.seconds.get("conflict", 0.0) + time.monotonic() - began
                timer = StageTimer({"conflict": seconds})
                continue
            if isinstance(outcome, BatchResult):
                return replace(outcome, schema_changes=self._columns.changes_since(saved))
            if isinstance(outcome, ChangedRows):
                refused = outcome if refused is None else refused + outcome
            else:
                self._columns.evolve(outcome)
        message = f"the schema still changed after {_MAX_ATTEMPTS} attempts to write one batch"
        raise WriteConflict(message)
