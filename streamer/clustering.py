"""Clusters a pipeline's table, and executes the clusterings of other writers.

While a clustering is pending, no batch can write to its file groups. So the table is clustered
between two batches, and the next batch waits. In the background, a batch waits only if it writes to
these file groups, and no longer than a limit: then the plan is removed, and made again later.
Clusterings that other writers have planned are executed, too, or removed, but only if no other
writer may be executing them (``lakemark.transaction.plan_owner``).

A clustering that fails is reported, and the stream continues: a plan of this pipeline is removed,
and made again later. So is the plan of a process that died while it executed the plan, because the
clustering may be the reason, for example if it needed too much memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeAlias

from lakemark.errors import WriteConflict
from lakemark.execution.runner import Runner
from lakemark.model.action import REPLACING
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.cluster import (
    begin_clustering,
    check_clusterable,
    execute_clustering,
    pending_clusterings,
    plan_clusters,
    request_clustering,
)
from lakemark.operations.group_replacement import (
    GroupReplacement,
    PlannedReplacement,
    execute_replacement,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.services.cluster_rewriter import ClusterTask
from lakemark.services.clustering_plan import (
    ClusteringPolicy,
    is_clustering_due,
    is_executed_at_once,
)
from lakemark.transaction.plan_owner import may_be_executed_by_others
from lakemark.transaction.rollback import roll_back, roll_back_abandoned
from lakemark.view.file_system_view import FileSystemView
from streamer.background_replacement import Nouns, describe_commit
from streamer.events import Listener, ServiceCompleted
from streamer.service_guard import ServiceGuard

#: The name of this service in events and metrics.
SERVICE = "clustering"

#: What a clustering replaces, and what it writes.
NOUNS: Nouns = ("file group", "file")

#: Names of work that pauses after its own failures.
_LISTING, _PLANNING = "list pending clusterings", "plan a clustering"

_log = logging.getLogger(__name__)

_Done: TypeAlias = list[tuple[Instant, CommitMetadata]]


class PendingPlans(StrEnum):
    """What happens to clusterings that other writers have planned, but not begun to execute.

    Attributes:
        EXECUTE: they are executed.
        KEEP: they are kept for the other writers.
        REMOVE: they are removed if they prevent a batch.
    """

    EXECUTE = "execute"
    KEEP = "keep"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class ClusteringRules:
    """When a pipeline clusters its table, and what it does with the plans of other writers.

    Attributes:
        policy: which files are rewritten together, and how; None to plan no clustering.
        after_commits: a clustering is due after this number of commits.
        chooses: returns whether the files of a partition may be clustered.
        pending: what happens to the plans of other writers.
    """

    policy: ClusteringPolicy | None
    after_commits: int
    chooses: Callable[[str], bool]
    pending: PendingPlans


class TableClustering:
    """Clusters one table of a pipeline.

    Attributes:
        writer: the writer of the table, which also writes the batches.

    Args:
        writer: see above.
        rules: when the table is clustered.
        runner: sorts and rewrites the groups of files.
        listener: receives the events.
        monotonic_s: returns seconds of a clock that is never set back.
        in_background: whether ``BackgroundClustering`` executes the plans of this table.
    """

    def __init__(
        self,
        writer: TableWriter,
        rules: ClusteringRules,
        runner: Runner,
        listener: Listener,
        monotonic_s: Callable[[], float] = time.monotonic,
        *,
        in_background: bool = False,
    ) -> None:
        self.writer, self._rules, self._in_background = writer, rules, in_background
        self._runner, self._listener, self._monotonic_s = runner, listener, monotonic_s
        self._guard = ServiceGuard(SERVICE, writer.table.location.url, listener, monotonic_s)

    def run(self, refused: str = "", executed: str = "") -> None:
        """Execute or remove pending clusterings, then cluster the table if a clustering is due.

        Call this between two batches. The cached timeline decides what is pending or due. In the
        background, plans are only removed here.

        Args:
            refused: the requested time of the clustering that prevented the last batch; "" if none
                did.
            executed: the requested time of the plan that is executed in the background; "" if none
                is.
        """
        for planned in self._pending():
            name = planned[0].requested_at
            if name != executed:
                self._attempt(name, partial(self._resolve, planned, refused))
        if not self._in_background:
            self._attempt(_PLANNING, self._cluster_if_due)

    def executable(self, skipped: Collection[str]) -> PlannedReplacement | None:
        """Return a pending clustering of another writer that this pipeline should execute.

        Args:
            skipped: the requested times of clusterings to ignore.
        """
        for planned in self._pending():
            if planned[0].requested_at not in skipped and self._is_to_execute(planned):
                return planned
        return None

    def begin(
        self, planned: PlannedReplacement, lock_wait_s: float
    ) -> GroupReplacement[ClusterTask] | None:
        """Begin to execute a pending clustering; None if another writer executes it.

        Raises:
            Refused, Unsupported: lakemark cannot execute the plan.
            LockTimeout: another writer held the table's lock for longer than ``lock_wait_s``.
        """
        table = self.writer.table
        check_clusterable(table)
        table.refresh()
        try:
            merger = self.writer.settings.merger_class
            return begin_clustering(table, planned, merger, lock_wait_s)
        except WriteConflict:
            table.refresh()
            return None

    def request_if_due(self, lock_wait_s: float) -> GroupReplacement[ClusterTask] | None:
        """Request a clustering and begin to execute it, if one is due and there are files for it.

        A failure is reported, and the next attempt is made after a pause.
        """
        begun = self._guard.attempt(_PLANNING, partial(self._request_if_due, lock_wait_s))
        return begun[0] if begun else None

    def _request_if_due(self, lock_wait_s: float) -> list[GroupReplacement[ClusterTask]]:
        policy = self._due_policy()
        if policy is None:
            return []
        table, merger = self.writer.table, self.writer.settings.merger_class
        begun = request_clustering(table, policy, self._choose, merger, lock_wait_s)
        return [] if begun is None else [begun]

    def _pending(self) -> list[PlannedReplacement]:
        table = self.writer.table
        if not table.timeline.pending(*REPLACING):
            return []
        return self._guard.attempt(_LISTING, partial(pending_clusterings, table))

    def _attempt(self, name: str, work: Callable[[], _Done]) -> None:
        began = self._monotonic_s()
        for instant, metadata in self._guard.attempt(name, work):
            self._report(describe_commit(instant, metadata, NOUNS), began, instant)

    def _resolve(self, planned: PlannedReplacement, refused: str) -> _Done:
        """Execute, keep or remove a pending clustering that no other writer may be executing.

        If the plan is that of a lakemark process that has died, it is removed in any case.
        """
        (instant, plan), table = planned, self.writer.table
        if is_executed_at_once(plan):
            if self._remove(instant, "the process that executed it has died"):
                self._guard.pause(_PLANNING)
        elif self._is_to_execute(planned) and not self._in_background:
            check_clusterable(table)
            return execute_clustering(
                table, planned, self._runner, self.writer.settings.merger_class
            )
        elif (
            self._rules.pending is PendingPlans.REMOVE
            and instant.requested_at == refused
            and not may_be_executed_by_others(table.context, instant)
        ):
            self._remove(instant, "a batch conflicts")
        return []

    def _is_to_execute(self, planned: PlannedReplacement) -> bool:
        instant, plan = planned
        return (
            self._rules.pending is PendingPlans.EXECUTE
            and not is_executed_at_once(plan)
            and not may_be_executed_by_others(self.writer.table.context, instant)
        )

    def _remove(self, planned: Instant, reason: str) -> bool:
        """Remove a plan, unless another writer may be executing it or has completed it."""
        table, began = self.writer.table, self._monotonic_s()
        try:
            is_removed = roll_back_abandoned(table.context, planned.requested_at)
        except WriteConflict:
            is_removed = False
        finally:
            table.refresh()
        if is_removed:
            self._report(f"{planned.requested_at}: removed, because {reason}", began, planned)
        return is_removed

    def _cluster_if_due(self) -> _Done:
        """Plan a clustering and execute it, if one is due and there are files to rewrite."""
        policy = self._due_policy()
        return [] if policy is None else self._cluster(policy)

    def _due_policy(self) -> ClusteringPolicy | None:
        """Return the policy of a clustering that is due; None if none is, or without files."""
        table, rules = self.writer.table, self._rules
        if rules.policy is None or not is_clustering_due(
            table.timeline, table.store.read_commit, rules.after_commits
        ):
            return None
        is_needed = plan_clusters(table, rules.policy, self._choose) is not None
        return rules.policy if is_needed else None

    def _cluster(self, policy: ClusteringPolicy) -> _Done:
        table, requested = self.writer.table, list[Instant]()

        def begin() -> GroupReplacement[ClusterTask] | None:
            merger = self.writer.settings.merger_class
            begun = request_clustering(table, policy, self._choose, merger)
            if begun is not None:
                requested.append(begun.execution.instant)
            return begun

        try:
            done = execute_replacement(table, begin, self._runner)
        except Exception:
            self._undo(requested)
            raise
        if not done:
            self._undo(requested)
        return done

    def _undo(self, attempts: Sequence[Instant]) -> None:
        """Remove plans of this pipeline that were not executed, so that batches can continue.

        If this fails, only the first error is reported, and the next call of ``run`` removes the
        plan.
        """
        try:
            for attempt in attempts:
                roll_back(self.writer.table.context, attempt)
            self.writer.table.refresh()
        except Exception as error:
            _log.warning("the plan of a clustering was not removed: %s", error)

    def _choose(self, view: FileSystemView) -> Sequence[str]:
        return [path for path in view.partitions if self._rules.chooses(path)]

    def _report(self, summary: str, began: float, instant: Instant) -> None:
        seconds, url = self._monotonic_s() - began, self.writer.table.location.url
        self._listener(ServiceCompleted(SERVICE, summary, seconds, url, instant.requested_at))
