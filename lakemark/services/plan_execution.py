"""Executes the plan of a compaction or a clustering, from its inflight instant to its commit.

Any writer may execute a plan, and may execute it again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from lakemark.errors import CorruptData
from lakemark.execution.runner import Runner
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.transaction.transaction import Precondition, Transaction

Plan = TypeVar("Plan")
Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PlanExecution(Generic[Plan]):
    """An attempt to execute a plan; its files are written, then it is completed or abandoned.

    Attributes:
        instant: the inflight instant, which identifies this attempt.
        plan: the plan.
    """

    instant: Instant
    plan: Plan
    _transaction: Transaction

    @classmethod
    def begin(
        cls,
        context: TableContext,
        pending: Instant,
        plan: Plan,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> PlanExecution[Plan]:
        """Begin an attempt to execute a plan, which any writer may have made and tried before.

        Args:
            context: the table.
            pending: the pending instant of the plan.
            plan: the plan.
            lock_wait_s: see ``Transaction.resume``.

        Raises:
            WriteConflict: another writer is executing the plan, or has completed or removed it.
        """
        transaction = Transaction.resume(context, pending, lock_wait_s)
        return cls(transaction.instant, plan, transaction)

    def rewrite(
        self, rewrite: Callable[[Task], Result], tasks: Sequence[Task], runner: Runner
    ) -> list[Result]:
        """Write the new base files, which no reader sees yet; the timeline does not change.

        The content of a file depends only on the plan, and its name on the plan and this attempt.
        So a task that runs twice finds its own file, and never a file of another attempt.

        Args:
            rewrite: executes one task, and describes the files that it wrote.
            tasks: the tasks of the plan.
            runner: runs the tasks.

        Raises:
            AttemptLost: another writer undid the attempt, and maybe deleted files of the plan.
            CorruptData: a file of the plan is damaged or missing.
        """
        try:
            return runner.map(rewrite, tasks)  # model: rewrite
        except CorruptData:
            self._transaction.check_inflight()
            raise

    def complete(
        self,
        metadata: CommitMetadata,
        prepare: Precondition,
        extra_metadata: Callable[[], Mapping[str, str]],
    ) -> tuple[Instant, CommitMetadata, Timeline]:
        """Publish the new base files; errors as for ``Transaction.commit``.

        Args:
            metadata: the metadata of the commit, without extra metadata.
            prepare: called under the lock with a timeline that contains the commits that completed
                while the files were written. It checks the plan again, and writes what must exist
                when the commit completes.
            extra_metadata: returns the extra metadata of the commit; called after ``prepare``.

        Returns:
            The completed instant, the metadata of the commit, and the timeline that contains it.
        """

        def describe(_: Timeline) -> CommitMetadata:
            nonlocal metadata
            metadata = replace(metadata, extra_metadata=extra_metadata())
            return metadata

        completed, timeline = self._transaction.commit(metadata, prepare, describe)
        return completed, metadata, timeline

    def stop_heartbeat(self) -> None:
        """Stop the heartbeat, so that other writers may execute the plan if it is not completed."""
        self._transaction.stop_heartbeat()
