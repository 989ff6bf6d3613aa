"""Table services that run between two batches."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sinks.hudi.table_writer import TableWriter
from streamer.events import CompactionDone, Listener
from table.execution.runner import Runner
from table.services.compaction import CompactionPolicy


class InlineServices:
    """Keeps the pipeline's tables in shape; does nothing when nothing is due.

    Args:
        writers: the pipeline's table and its dead letters.
        policy: when to compact; None leaves it to others.
        runner: where the work is done.
        listener: is told of what was done.
    """

    def __init__(
        self,
        writers: Sequence[TableWriter],
        policy: CompactionPolicy | None,
        runner: Runner,
        listener: Listener,
    ) -> None:
        self._writers, self._policy = writers, policy
        self._runner, self._listener = runner, listener

    def run(self) -> None:
        """Do what is due now."""
        if self._policy is None:
            return
        for writer in self._writers:
            started = time.monotonic()
            for instant, metadata in writer.compact_if_due(self._policy, self._runner):
                stats = metadata.write_stats
                self._listener(
                    CompactionDone(
                        instant.requested_at,
                        len(stats),
                        sum(stat.num_writes for stat in stats),
                        sum(stat.file_size_in_bytes for stat in stats),
                        time.monotonic() - started,
                    )
                )
