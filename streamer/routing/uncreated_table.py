"""A table of a routed pipeline whose columns are not known yet, because no record was usable."""

from __future__ import annotations

import time

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from checkpoints.routed_positions import later
from sinks.batch import BatchResult, RoutedBatch
from sinks.dead_letters import describe_first
from sinks.reject_limit import NO_REJECTS, RejectCounter, RejectLimit
from sinks.routed.positions import keep_unread, position_in, topic_ids_differ
from streamer.batch_events import batch_written, report_batch
from streamer.config.pipeline import PipelineConfig
from streamer.events import BatchPlanned, Listener, RunStarted
from streamer.routing.stream_letters import StreamLetters
from streamer.routing.unusable_records import divide_first_records
from streamer.working_for import working_for
from transforms.rejects import Rejects


class UncreatedTable:
    """Writes unusable records to the dead letters of a table that does not exist yet.

    The commits of the dead-letter table record how far they have read the topic, so that a record
    becomes one dead letter even if it is read again. Implements ``RoutedTable``.

    Args:
        config: the pipeline of the table.
        listener: receives the events of the table.
    """

    def __init__(self, config: PipelineConfig, listener: Listener) -> None:
        self._config, self._listener = config, listener
        self._letters = StreamLetters(config, listener)
        bad = config.dead_letters
        limit = RejectLimit(bad.max_share, bad.tolerated) if bad.enabled else NO_REJECTS
        self._reject_counter = RejectCounter(limit)
        self._num_batches = 0

    @property
    def is_created(self) -> bool:
        """See ``RoutedTable``."""
        return False

    def recover(self) -> Progress | None:
        """See ``RoutedTable``: None, because there is no table."""
        return None

    def write(self, batch: RoutedBatch, threads: int) -> BatchResult:
        """See ``RoutedTable``. The result has no instant.

        Raises:
            TooManyRejects: more records are rejected than the pipeline allows.
            HudiError: the dead letters cannot be written.
        """
        with working_for(self._config.name):
            if not self._num_batches:
                self._announce()
            began, batch_id = time.monotonic(), self._num_batches
            records = pa.concat_tables(batch.tables)
            self._listener(BatchPlanned(batch_id, {}, records.num_rows))
            rejects = divide_first_records(self._config, records).rejects
            changes = self._write_letters(batch, rejects, records.num_rows)
            self._num_batches += 1
            ignored = records.column("value").null_count
            result = BatchResult.of_letters(records.num_rows, changes, ignored)
            written = batch_written(batch_id, result, time.monotonic() - began, {}, {})
            report_batch(self._listener, written, result, self._letters.url)
            return result

    def _announce(self) -> None:
        config = self._config
        self._listener(RunStarted(config.name, config.source.origin, config.table.path, {}, False))

    def _write_letters(self, batch: RoutedBatch, rejects: Rejects, records: int) -> pa.Table:
        """Commit the rejects that are no dead letters yet; return them."""
        if len(rejects):
            self._reject_counter.check(len(rejects), records, describe_first(rejects.rows))
        changes = self._commit_unread(batch, rejects) if len(rejects) else rejects.rows
        self._reject_counter.add(len(rejects), records)
        return changes

    def _commit_unread(self, batch: RoutedBatch, rejects: Rejects) -> pa.Table:
        start, end = batch.start, batch.end
        assert isinstance(start, KafkaCheckpoint), start
        assert isinstance(end, KafkaCheckpoint), end
        progress = self._letters.recover()
        is_other = progress is not None and topic_ids_differ(progress.topic_id, batch.topic_id)
        reached = later(start, (None if is_other else position_in(progress, start.topic)) or start)
        unread = Rejects(keep_unread(rejects.rows, reached))
        if not len(unread):
            return unread.rows
        return self._letters.write(unread, reached, later(reached, end), batch.topic_id)
