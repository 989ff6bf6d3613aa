"""Executes a plan that replaces file groups by new ones: a clustering, or a resize of buckets.

Both are clusterings in the format. The steps are:

1. request the clustering with its plan, under the lock
2. begin an attempt: create the inflight instant
3. read the rows of the old file groups, and write them to base files of new ones
4. under the lock: compare the old file groups with the plan again, and write the new hash rings of
   a resize
5. publish the replace commit, which makes the new files and rings valid
6. mark the rings as completed, for Apache Hudi

After a crash before step 5, readers and writers use the old file groups, and the plan is executed
again, with the same file ids and rings. After a crash in step 6, Apache Hudi finds the replace
commit on the timeline, and marks the rings itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeAlias, TypeVar

from lakemark.errors import Fenced, StorageUnavailable, WriteConflict
from lakemark.execution.runner import Runner
from lakemark.index.hash_ring import HashRing
from lakemark.index.ring_files import mark_completed, write_ring
from lakemark.model.action import REPLACING
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.operations.service_commit import TableFacts, publish_service
from lakemark.operations.service_context import service_context
from lakemark.services import clustering
from lakemark.services.clustering import PlanOutdated
from lakemark.services.plan_execution import PlanExecution
from lakemark.services.planned_files import recorded_log_sizes
from lakemark.services.resize_plan import bytes_of
from lakemark.storage.storage import NotFound
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback import recover, roll_back, roll_back_abandoned
from lakemark.transaction.table_context import LOCK_WAIT_S
from lakemark.write.write_context import WriteContext


class SliceTask(Protocol):
    """A task that rewrites file slices."""

    @property
    def slices(self) -> tuple[FileSlice, ...]:
        """The file slices."""
        ...


Task = TypeVar("Task", bound=SliceTask)

_log = logging.getLogger(__name__)

#: The instant of a requested clustering or resize, and its plan.
PlannedReplacement: TypeAlias = tuple[Instant, ClusteringPlan]

#: Executes a task in a worker, and returns the write stats of its new files.
Rewriter: TypeAlias = Callable[[Task], Sequence[WriteStat]]


@dataclass(frozen=True, slots=True)
class CheckedPlan(Generic[Task]):
    """What to do for a plan that fits the table as of its timeline.

    Attributes:
        tasks: the task of each group of the plan.
        create_rewriter: returns what executes a task. The arguments are the write context of the
            attempt, and the result of ``recorded_log_sizes``.
        rings: the hash rings of all partitions of a resize, as they are after it.
    """

    tasks: Sequence[Task]
    create_rewriter: Callable[[WriteContext, Mapping[str, int]], Rewriter[Task]]
    rings: tuple[HashRing, ...] = ()


#: Compares a plan with the table. It raises ``PlanOutdated`` if other writers have changed the file
#: groups of the plan.
CheckPlan: TypeAlias = Callable[[OpenTable, PlannedReplacement], CheckedPlan[Task]]


def pending_replacements(table: OpenTable) -> Iterator[PlannedReplacement]:
    """Yield the pending clusterings and resizes of all writers, with their plans."""
    for instant in table.timeline.pending(*REPLACING):
        with suppress(NotFound):  # another writer has removed the plan
            plan = table.store.read_clustering_plan(instant)
            if plan is not None:
                yield instant, plan


def plan_at(
    table: OpenTable, plan: Callable[[], ClusteringPlan | None]
) -> Callable[[Timeline], ClusteringPlan | None]:
    """Return a function that refreshes the table to a timeline, then makes the plan."""

    def refresh_and_plan(timeline: Timeline) -> ClusteringPlan | None:
        table.refresh(timeline)
        return plan()

    return refresh_and_plan


def recover_table(table: OpenTable) -> None:
    """Roll back the writes of dead writers; see ``lakemark.transaction.rollback.recover``."""
    if table.store.pending_writes(table.timeline):
        recover(table.context)
        table.refresh()


@dataclass(frozen=True, slots=True)
class GroupReplacement(Generic[Task]):
    """A plan of an open table that this process executes.

    ``request``, ``begin``, ``publish`` and ``remove`` update the cached state of the open table.
    ``rewrite`` does not, so another thread may commit to the open table while ``rewrite`` runs.

    Attributes:
        table: the open table.
        execution: the execution of the plan.
        checked: the plan as it was when the execution began.
        rewriter: executes the tasks.
    """

    table: OpenTable
    execution: PlanExecution[ClusteringPlan]
    checked: CheckedPlan[Task]
    rewriter: Rewriter[Task]
    _check: CheckPlan[Task]

    @classmethod
    def request(
        cls,
        table: OpenTable,
        plan: Callable[[], ClusteringPlan | None],
        check: CheckPlan[Task],
        merger_class: str | None = None,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> GroupReplacement[Task] | None:
        """Write a plan to the timeline, and begin to execute it.

        The result is None if there is no plan, or while a write is pending.

        Args:
            table: the open table.
            plan: returns the plan as of the table's last refresh; None if there is nothing to do.
            check: compares the plan with the table.
            merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.
            lock_wait_s: the time in seconds for which this call, and later ``publish``, wait for
                the table's lock.

        Raises:
            LockTimeout: another writer held the lock for too long.
            Refused: a restore is pending.
        """
        execution = clustering.request(table.context, plan_at(table, plan), lock_wait_s)
        if execution is None:
            return None
        table.snapshot.carry_clustering_request(execution.instant, execution.plan)
        return cls._of(table, execution, check, merger_class)

    @classmethod
    def begin(
        cls,
        table: OpenTable,
        planned: PlannedReplacement,
        check: CheckPlan[Task],
        merger_class: str | None = None,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> GroupReplacement[Task]:
        """Begin to execute a pending plan. If the plan is outdated, it is removed.

        Args:
            table: the open table.
            planned: the pending instant and its plan.
            check: as for ``request``.
            merger_class: as for ``request``.
            lock_wait_s: as for ``request``.

        Raises:
            LockTimeout: another writer held the lock for too long.
            WriteConflict: another writer is executing, has completed or has removed the plan; or
                the plan was outdated.
            Refused: lakemark does not understand the plan.
        """
        try:
            check(table, planned)
        except PlanOutdated:
            _remove(table, planned)
            raise
        execution = PlanExecution.begin(table.context, *planned, lock_wait_s)
        table.snapshot.carry_start(execution.instant)
        return cls._of(table, execution, check, merger_class)

    @classmethod
    def _of(
        cls,
        table: OpenTable,
        execution: PlanExecution[ClusteringPlan],
        check: CheckPlan[Task],
        merger_class: str | None,
    ) -> GroupReplacement[Task]:
        instant, plan = execution.instant, execution.plan
        try:
            checked = check(table, (instant, plan))
            context = service_context(table, instant.requested_at, merger_class)
        except BaseException:
            execution.stop_heartbeat()
            raise
        context = replace(context, attempt=instant.attempt).use_storage(table.storage)
        log_sizes = recorded_log_sizes(plan.log_paths, table.timeline, table.store)
        return cls(table, execution, checked, checked.create_rewriter(context, log_sizes), check)

    @property
    def num_bytes(self) -> int:
        """The size of the file slices that are rewritten."""
        return sum(bytes_of(one) for task in self.checked.tasks for one in task.slices)

    def rewrite(self, runner: Runner) -> list[WriteStat]:
        """Write the new base files, which no reader sees before ``publish``.

        Raises:
            CorruptData, Refused, StorageUnavailable: see the rewriters.
        """
        written = self.execution.rewrite(self.rewriter, self.checked.tasks, runner)
        return [stat for stats in written for stat in stats]

    def publish(
        self, stats: Sequence[WriteStat], table_facts: TableFacts | None = None
    ) -> tuple[Instant, CommitMetadata]:
        """Replace the old file groups by the new ones, and copy the streamers' checkpoints.

        Args:
            stats: the write stats that ``rewrite`` returned.
            table_facts: see ``publish_service``.

        Raises:
            PlanOutdated: other writers changed the file groups; nothing was published.
            AttemptLost, Fenced: another writer rolled the attempt back; nothing was published.
            LockTimeout: another writer held the lock for too long; ``publish`` may be called again.
        """
        metadata = CommitMetadata(
            write_stats=tuple(stats),
            operation=Operation.CLUSTER,
            replaced_file_ids=self.execution.plan.replaced_file_ids,
        )
        published = publish_service(
            self.table, self.execution, metadata, table_facts, self._check_and_write_rings
        )
        with suppress(StorageUnavailable):  # the replacement is already completed
            for ring in self.checked.rings:
                mark_completed(self.table.storage, ring)
        return published

    def _check_and_write_rings(self) -> None:
        instant, rings = self.execution.instant, self.checked.rings
        if self._check(self.table, (instant, self.execution.plan)).rings != rings:
            message = f"the hash rings have changed since {instant} began"
            raise PlanOutdated(message)
        try:
            for ring in rings:
                write_ring(self.table.storage, ring, instant)
        except NotFound:
            reason = "its prepared content was removed by a rollback"
            raise Fenced(instant.requested_at, reason) from None

    def remove(self) -> bool:
        """Remove the plan and the files of this attempt; return False if it was published.

        If ``rewrite`` still runs in another thread, call this again after it has ended, which
        deletes the files that it has written meanwhile.
        """
        try:
            return roll_back(self.table.context, self.execution.instant)
        finally:
            self.table.refresh()

    def stop_heartbeat(self) -> None:
        """Stop the heartbeat. If the plan is not completed, other writers may execute it."""
        self.execution.stop_heartbeat()


def execute_replacement(
    table: OpenTable,
    begin: Callable[[], GroupReplacement[Task] | None],
    runner: Runner,
    table_facts: TableFacts | None = None,
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute a plan; return nothing if there is none, or if it conflicts with other writers.

    A conflict after the plan was created is logged. The plan stays pending.

    Args:
        table: the open table.
        begin: begins to execute the plan.
        runner: runs the tasks.
        table_facts: see ``publish_service``.
    """
    try:
        begun = begin()
        if begun is None:
            return []
        try:
            return [begun.publish(begun.rewrite(runner), table_facts)]
        except WriteConflict as error:
            _log.warning("%s was not executed: %s", begun.execution.instant, error)
            raise
        finally:
            begun.stop_heartbeat()
    except WriteConflict:
        table.refresh()
        return []


def _remove(table: OpenTable, planned: PlannedReplacement) -> None:
    """Remove an outdated plan, so that writers can continue with the old file groups.

    Rows that commits have written to its new file groups, too, are deleted there.

    Raises:
        WriteConflict: another writer is or may be executing the plan, or is writing.
    """
    roll_back_abandoned(table.context, planned[0].requested_at)
    table.refresh()
