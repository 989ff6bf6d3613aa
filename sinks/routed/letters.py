"""Writes the records of a stream that belong to no table to a dead-letter table.

The table records how far it has read the stream, as every table does, so that a record becomes one
dead letter even if the stream reads it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from lakemark.config import keys
from lakemark.errors import Retriable
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import PARTITION_PATH
from lakemark.operations.table_writer import TableWriter
from lakemark.write.partitioner import Bucket
from lakemark.write.write_context import WriteContext
from sinks.hudi.prepare import BucketWriter
from sinks.hudi.rejection_times import utc_now
from sinks.hudi.sink_progress import SinkProgress
from sinks.letter_layout import LetterLayout
from transforms.rejects import Rejects


class LetterSink:
    """Commits dead letters together with the position of the stream.

    Args:
        writer: the writer of the dead-letter table.
        identity: the name under which its commits record the position.
    """

    def __init__(self, writer: TableWriter, identity: str) -> None:
        self._writer = writer
        self._progress = SinkProgress(writer, identity)

    def recover(self) -> tuple[list[str], Progress | None]:
        """Roll back the instants of dead writers; return them, and how far the table has read."""
        return self._writer.recover(), self._progress.find()

    def write(
        self, rejects: Rejects, start: KafkaCheckpoint, end: KafkaCheckpoint, topic_id: str
    ) -> pa.Table:
        """Commit rejects, and the position ``end``; return them as changes of the table.

        Raises:
            Fenced: another writer moved the position.
            HudiError: the table cannot be written. Nothing was published.
        """
        layout = replace(LetterLayout.of(self._writer.table.properties), rejected_at=utc_now())
        changes = layout.to_changes(rejects)
        with self._undo_on_failure():
            stats = self._write_files(self._writer.begin(), changes)
            facts = {keys.SOURCE_START: str(start), **self._progress.metadata(end, topic_id)}
            self._writer.commit(stats, facts, self._progress.check)
        self._progress.advance(end)
        return changes

    def _write_files(self, context: WriteContext, changes: pa.Table) -> list[WriteStat]:
        """Write the changes of each partition, which has one file group."""
        writer = BucketWriter(context, self._writer.assigner.assign_file_groups())
        paths = changes.column(PARTITION_PATH)
        return [
            stat
            for path in pc.unique(paths).to_pylist()
            for stat in writer.write(Bucket(path, 0), [changes.filter(pc.equal(paths, path))])
        ]

    @contextmanager
    def _undo_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(Retriable):  # if this fails, the next start rolls the instant back
                self._writer.abandon()
            raise
