"""Clusters a pipeline's table, and executes the clusterings of other writers between two batches.

Inline, the next batch waits while the rows of the files are sorted and encoded. In the background,
a thread does this while batches are written, and the next batch waits only while the prepared files
are copied to the table (``lakemark.operations.prepared_clustering``). Groups of files that batches
have changed meanwhile are left out. So this pipeline writes no new keys to the files that are being
prepared, and its compactions wait for the preparation.

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
from pathlib import Path

from lakemark.errors import WriteConflict
from lakemark.execution.runner import LocalRunner, Runner
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
from lakemark.operations.prepared_clustering import (
    ClusteringPreparation,
    PreparedClustering,
    begin_preparation,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.services.cluster_rewriter import ClusterTask
from lakemark.services.clustering import PlanOutdated
from lakemark.services.clustering_plan import (
    ClusteringPolicy,
    is_clustering_due,
    is_executed_at_once,
)
from lakemark.transaction.plan_owner import may_be_executed_by_others
from lakemark.transaction.rollback import roll_back, roll_back_abandoned
from lakemark.view.file_system_view import FileSystemView
from streamer.background_preparation import BackgroundPreparation, Done, PreparedWork
from streamer.events import Listener, ServiceCompleted
from streamer.service_guard import ServiceGuard
from streamer.wording import counted

#: The names of this service, and of its preparation, in events and metrics.
SERVICE, PREPARATION = "clustering", "clustering_preparation"

#: Names of work that pauses after its own failures.
_LISTING, _PLANNING = "list pending clusterings", "plan a clustering"

#: After this number of preparations of which nothing was published, the table is clustered inline.
_MAX_USELESS = 1

_ONE_AT_A_TIME = LocalRunner(1)

_log = logging.getLogger(__name__)


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
        in_background: whether clusterings are prepared while batches are written.
    """

    policy: ClusteringPolicy | None
    after_commits: int
    chooses: Callable[[str], bool]
    pending: PendingPlans
    in_background: bool = False


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
        self._in_background = rules.in_background
        self._preparation = BackgroundPreparation(
            PREPARATION,
            self._begin_preparation,
            self._cluster_if_due,
            listener,
            max_useless=_MAX_USELESS,
            monotonic_s=monotonic_s,
        )

    def run(self, refused: str = "") -> None:
        """Execute or remove pending clusterings, then cluster the table if a clustering is due.

        In the background, a clustering that is due is prepared, and what was prepared is published.

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
        cluster = self._preparation.run if self._in_background else self._cluster_if_due
        self._attempt(_PLANNING, partial(cluster, self.writer))
        if not self.is_preparing:
            self.writer.spare_groups(frozenset())

    @property
    def plans(self) -> bool:
        """Whether this pipeline plans clusterings of the table."""
        return self._rules.policy is not None

    @property
    def is_preparing(self) -> bool:
        """Whether a clustering is being prepared, or is about to be published."""
        return self._preparation.is_preparing(self.writer)

    def end(self, within_s: float) -> bool:
        """Discard a preparation; return whether its thread is still running after the time."""
        self._in_background = False
        return self._preparation.end(within_s)

    def run_now(self) -> bool:
        """Cluster the table, even if no clustering is due; return whether files were rewritten.

        Call this between two batches, after ``run``. A preparation of the table is discarded.

        Raises:
            HudiError: the clustering failed; its plan was removed.
        """
        table, policy, began = self.writer.table, self._rules.policy, self._monotonic_s()
        if policy is None or plan_clusters(table, policy, self._choose) is None:
            return False
        self._preparation.discard()
        self.writer.spare_groups(frozenset())
        done = self._cluster(policy)
        for instant, metadata in done:
            self._report(_summary(instant, metadata), began)
        return bool(done)

    def _attempt(self, name: str, work: Callable[[], Done]) -> None:
        began = self._monotonic_s()
        for instant, metadata in self._guard.attempt(name, work):
            self._report(_summary(instant, metadata), began)

    def _resolve(self, planned: PlannedReplacement, refused: str) -> Done:
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

    def _begin_preparation(self, writer: TableWriter) -> PreparedWork | None:
        """Plan a clustering to prepare, if one is due and there are files to rewrite."""
        rules, merger = self._rules, writer.settings.merger_class
        if rules.policy is None or not self._is_due():
            return None
        preparation = begin_preparation(writer.table, rules.policy, self._choose, merger)
        if preparation is None:
            return None
        writer.spare_groups(preparation.groups)
        return _PreparedFiles(writer, preparation, self._execute)

    def _cluster_if_due(self, writer: TableWriter) -> Done:
        """Plan a clustering and execute it, if one is due and there are files to rewrite."""
        policy = self._rules.policy
        if policy is None or not self._is_due():
            return []
        if plan_clusters(writer.table, policy, self._choose) is None:
            return []
        return self._cluster(policy)

    def _is_due(self) -> bool:
        table = self.writer.table
        return is_clustering_due(table.timeline, table.store.read_commit, self._rules.after_commits)

    def _cluster(self, policy: ClusteringPolicy) -> Done:
        table, merger = self.writer.table, self.writer.settings.merger_class
        request = partial(request_clustering, table, policy, self._choose, merger)
        return self._execute(request, self._runner)

    def _execute(
        self, request: Callable[[], GroupReplacement[ClusterTask] | None], runner: Runner
    ) -> Done:
        """Execute a plan that ``request`` writes to the timeline, or remove it again."""
        requested: list[Instant] = []

        def begin() -> GroupReplacement[ClusterTask] | None:
            begun = request()
            if begun is not None:
                requested.append(begun.execution.instant)
            return begun

        try:
            done = execute_replacement(self.writer.table, begin, runner)
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


class _PreparedFiles:
    """A clustering that a thread prepares; a ``PreparedWork``.

    Attributes:
        left_out: see ``PreparedWork``.

    Args:
        writer: the writer of the table.
        preparation: the planned clustering.
        execute: executes a plan that a function writes to the timeline.
    """

    def __init__(
        self,
        writer: TableWriter,
        preparation: ClusteringPreparation,
        execute: Callable[[Callable[[], GroupReplacement[ClusterTask] | None], Runner], Done],
    ) -> None:
        self._writer, self._preparation, self._execute = writer, preparation, execute
        self._prepared: PreparedClustering | None = None
        self.left_out = ""

    def run(self, folder: Path, is_cancelled: Callable[[], bool]) -> None:
        self._prepared = self._preparation.run(folder, is_cancelled)

    def find_outdated(self) -> PlanOutdated | None:
        return (self._prepared or self._preparation).find_outdated(self._writer.table)

    def next_round(self) -> None:
        """Return None: a group of files that was changed is left out."""

    def publish(self) -> Done:
        assert self._prepared is not None
        done = self._execute(partial(self._prepared.request, self._writer.table), _ONE_AT_A_TIME)
        for _, metadata in done:
            replaced = sum(map(len, metadata.replaced_file_ids.values()))
            left = len(self._preparation.groups) - replaced
            if left:
                text = "left out, because commits have changed files of their groups"
                self.left_out = f"{counted(left, 'file group')} {text}"
        return done

    def describe(self) -> str:
        return counted(len(self._preparation.groups), "file group") + " prepared"


def _summary(instant: Instant, metadata: CommitMetadata) -> str:
    before = sum(map(len, metadata.replaced_file_ids.values()))
    after = counted(len(metadata.write_stats), "file")
    return f"{instant.requested_at}: {counted(before, 'file group')} rewritten into {after}"
