"""Clusters a pipeline's table between two batches, and executes the clusterings of other writers.

While a clustering is pending, no batch can write to its file groups. So the next batch waits for
the clustering, and clusterings that other writers have planned are executed, too, or removed, but
only if no other writer may be executing them (``lakemark.transaction.plan_owner``). A clustering
that fails is reported, and the stream continues: a plan of this pipeline is removed, and made again
later. So is the plan of a process that died while it executed the plan, because the clustering may
be the reason, for example if it needed too much memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
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
from streamer.events import Listener, ServiceCompleted
from streamer.service_guard import ServiceGuard
from streamer.wording import counted

#: The name of this service in events and metrics.
SERVICE = "clustering"

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
    """

    def __init__(
        self,
        writer: TableWriter,
        rules: ClusteringRules,
        runner: Runner,
        listener: Listener,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.writer, self._rules = writer, rules
        self._runner, self._listener, self._monotonic_s = runner, listener, monotonic_s
        self._guard = ServiceGuard(SERVICE, writer.table.location.url, listener, monotonic_s)

    def run(self, refused: str = "") -> None:
        """Execute or remove pending clusterings, then cluster the table if a clustering is due.

        Call this between two batches. The cached timeline decides what is pending or due.

        Args:
            refused: the requested time of the clustering that prevented the last batch; "" if none
                did.
        """
        table = self.writer.table
        pending: list[PlannedReplacement] = []
        if table.timeline.pending(*REPLACING):
            pending = self._guard.attempt(_LISTING, partial(pending_clusterings, table))
        for planned in pending:
            self._attempt(planned[0].requested_at, partial(self._resolve, planned, refused))
        self._attempt(_PLANNING, self._cluster_if_due)

    @property
    def plans(self) -> bool:
        """Whether this pipeline plans clusterings of the table."""
        return self._rules.policy is not None

    def run_now(self) -> bool:
        """Cluster the table, even if no clustering is due; return whether files were rewritten.

        Call this between two batches, after ``run``.

        Raises:
            HudiError: the clustering failed; its plan was removed.
        """
        table, policy, began = self.writer.table, self._rules.policy, self._monotonic_s()
        if policy is None or plan_clusters(table, policy, self._choose) is None:
            return False
        done = self._cluster(policy)
        for instant, metadata in done:
            self._report(_summary(instant, metadata), began)
        return bool(done)

    def _attempt(self, name: str, work: Callable[[], _Done]) -> None:
        began = self._monotonic_s()
        for instant, metadata in self._guard.attempt(name, work):
            self._report(_summary(instant, metadata), began)

    def _resolve(self, planned: PlannedReplacement, refused: str) -> _Done:
        """Execute, keep or remove a pending clustering that no other writer may be executing.

        If the plan is that of a lakemark process that has died, it is removed in any case.
        """
        (instant, plan), table = planned, self.writer.table
        if is_executed_at_once(plan):
            if self._remove(instant, "the process that executed it has died"):
                self._guard.pause(_PLANNING)
        elif may_be_executed_by_others(table.context, instant):
            pass
        elif self._rules.pending is PendingPlans.EXECUTE:
            check_clusterable(table)
            return execute_clustering(
                table, planned, self._runner, self.writer.settings.merger_class
            )
        elif self._rules.pending is PendingPlans.REMOVE and instant.requested_at == refused:
            self._remove(instant, "a batch conflicts")
        return []

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
            self._report(f"{planned.requested_at}: removed, because {reason}", began)
        return is_removed

    def _cluster_if_due(self) -> _Done:
        """Plan a clustering and execute it, if one is due and there are files to rewrite."""
        table, rules = self.writer.table, self._rules
        if rules.policy is None or not is_clustering_due(
            table.timeline, table.store.read_commit, rules.after_commits
        ):
            return []
        if plan_clusters(table, rules.policy, self._choose) is None:
            return []
        return self._cluster(rules.policy)

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

    def _report(self, summary: str, began: float) -> None:
        seconds = self._monotonic_s() - began
        self._listener(ServiceCompleted(SERVICE, summary, seconds, self.writer.table.location.url))


def _summary(instant: Instant, metadata: CommitMetadata) -> str:
    before = sum(map(len, metadata.replaced_file_ids.values()))
    after = counted(len(metadata.write_stats), "file")
    return f"{instant.requested_at}: {counted(before, 'file group')} rewritten into {after}"
