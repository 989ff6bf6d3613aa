"""Compacts a table in the background (``streamer.background_services``).

Batches write their logs to the new file slices that the plan has opened, so they never conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from lakemark.execution.runner import Runner
from lakemark.model.action import Action
from lakemark.model.commit_metadata import WriteStat
from lakemark.operations.compact import Compaction, Planned
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy, delta_commits_uncompacted
from lakemark.write.write_status import ContentMismatch
from streamer.background_services import BackgroundService, Work
from streamer.events import CompactionCompleted
from streamer.wording import counted

#: The name of this service in events and metrics.
SERVICE = "compaction"


class BackgroundCompaction(BackgroundService):
    """Compacts one table.

    Args:
        writer: the writer of the table.
        policy: when a compaction is planned.
        backlog_commits: batches wait if more than this number of delta commits are not compacted.
    """

    name = SERVICE

    def __init__(
        self, writer: TableWriter, policy: CompactionPolicy, backlog_commits: int = 20
    ) -> None:
        super().__init__(writer)
        self._policy, self._backlog_commits = policy, backlog_commits

    def find_work(self, skipped: Collection[str], lock_wait_s: float) -> Work | None:
        """See ``BackgroundService.find_work``."""
        todo = self.writer.compactions_to_do(self._policy, skipped)
        return Work(todo[0][0].requested_at, partial(self._begin, todo[0])) if todo else None

    def pending(self) -> Collection[str]:
        """See ``BackgroundService.pending``."""
        return {one.requested_at for one in self.writer.table.timeline.pending(Action.COMPACTION)}

    def backlog(self) -> str:
        """See ``BackgroundService.backlog``."""
        behind = delta_commits_uncompacted(self.writer.table.timeline)
        return f"{counted(behind, 'commit')} behind" if behind > self._backlog_commits else ""

    def _begin(self, planned: Planned, lock_wait_s: float) -> _Attempt | None:
        compaction = self.writer.begin_compaction(planned, lock_wait_s)
        return None if compaction is None else _Attempt(self.writer, compaction)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt to execute a compaction; see ``Attempt``."""

    writer: TableWriter
    compaction: Compaction

    @property
    def file_groups(self) -> int:
        return len(self.compaction.execution.plan.operations)

    @property
    def num_bytes(self) -> int:
        return sum(one.log_bytes for one in self.compaction.execution.plan.operations)

    def rewrite(self, runner: Runner) -> Sequence[WriteStat]:
        return self.compaction.rewrite(runner)

    def publish(self, stats: Sequence[WriteStat]) -> None:
        self.writer.publish_compaction(self.compaction, stats)

    def completed(self, stats: Sequence[WriteStat], seconds: float) -> CompactionCompleted:
        instant = self.compaction.execution.instant.requested_at
        return CompactionCompleted.of(instant, stats, seconds, self.writer.table.location.url)

    def clean_up(self, error: Exception) -> None:
        if isinstance(error, ContentMismatch):
            self.compaction.undo()

    def remove(self) -> bool:
        return False  # no batch conflicts with a compaction

    def stop_heartbeat(self) -> None:
        self.compaction.stop_heartbeat()
