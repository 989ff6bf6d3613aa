"""Clusters a table in two parts, so that the next commit does not wait while rows are sorted.

1. ``begin_preparation`` plans a clustering, and ``ClusteringPreparation.run`` sorts and encodes its
   files in a folder on this machine's disk. It does not change the table, so commits continue to
   write to all file groups. A crash leaves only the folder.
2. ``PreparedClustering.request`` compares the table with the preparation. The groups of the plan
   whose file slices are still the same are requested and executed with the prepared files. A group
   that a commit has changed is left out. Rows in other file groups do not matter.

The plan on the timeline is that of an ordinary clustering of one process. So after a crash in step
2, the next writer removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.file_slice import FileGroupId
from lakemark.operations.cluster import check_clustering, plan_clusters
from lakemark.operations.compact_logs import log_compacted_groups
from lakemark.operations.group_replacement import (
    CheckedPlan,
    GroupReplacement,
    PlannedReplacement,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.partition_deletion import ChoosePartitions
from lakemark.operations.preparation import (
    Preparation,
    completed_undoings,
    find_outdated,
    newest_slice,
    unnamed_instant,
)
from lakemark.operations.service_context import service_context
from lakemark.services.cluster_preparation import (
    ClusterPreparation,
    GroupKey,
    PreparedClusterRewriter,
    PreparedGroup,
    key_of,
)
from lakemark.services.cluster_rewriter import ClusterRewriter, ClusterTask
from lakemark.services.clustering import PlanOutdated
from lakemark.services.clustering_plan import ClusteringPolicy, mark_executed_at_once, order_of
from lakemark.services.planned_files import recorded_log_sizes
from lakemark.services.prepared_files import check_files, is_same_but_instant
from lakemark.write.prepared_base_file import NO_INSTANT
from lakemark.write.write_context import WriteContext


@dataclass(frozen=True)
class ClusteringPreparation(Preparation[ClusterTask]):
    """A planned clustering, whose files another thread may encode."""

    def run(
        self, folder: Path, is_cancelled: Callable[[], bool] = lambda: False
    ) -> PreparedClustering:
        """Sort the rows and encode the files, one group after the other; the table is only read.

        Args:
            folder: an empty folder on this machine's disk, which must exist until the clustering
                is published.
            is_cancelled: returns whether to stop.

        Raises:
            Cancelled: ``is_cancelled`` returned true.
            Refused, DiskFull: see ``ClusterPreparation``.
        """
        order = order_of(self.plan)
        prepare = ClusterPreparation(self.context, order, self.log_sizes, folder, is_cancelled)
        return PreparedClustering(self, {key_of(task): prepare(task) for task in self.tasks})

    @property
    def groups(self) -> frozenset[FileGroupId]:
        """The file groups that the plan rewrites."""
        return frozenset(one.group for task in self.tasks for one in task.slices)

    def plan_now(self, table: OpenTable) -> ClusteringPlan:
        """Return the plan without the groups whose file slices have changed.

        Raises:
            PlanOutdated: nothing is left of the plan.
        """
        self.check_table(table)
        view, busy = table.view(), log_compacted_groups(table)

        def is_unchanged(task: ClusterTask) -> bool:
            return all(
                one.group not in busy and newest_slice(view, one.group) == one
                for one in task.slices
            )

        pairs = zip(self.plan.input_groups, self.tasks, strict=True)
        kept = tuple(group for group, task in pairs if is_unchanged(task))
        if not kept:
            message = "commits have changed all groups of file groups since they were prepared"
            raise PlanOutdated(message)
        return replace(self.plan, input_groups=kept)


@dataclass(frozen=True)
class PreparedClustering:
    """A clustering whose files are encoded.

    Attributes:
        preparation: the preparation.
        groups: the files of each group of the plan.
        copies: the number of files that are copied to the table at the same time.
    """

    preparation: ClusteringPreparation
    groups: Mapping[GroupKey, PreparedGroup]
    copies: int = 2

    def request(self, table: OpenTable) -> GroupReplacement[ClusterTask] | None:
        """Write the plan as of now to the timeline, and begin to execute it.

        The result is None while a write is pending.

        Raises:
            PlanOutdated: nothing is left of the plan, or prepared files are missing.
            CorruptData, SnapshotChanged: a group could not be read, although it is unchanged.
            Refused: a restore is pending.
        """
        merger = self.preparation.context.merge.merger_class
        return GroupReplacement.request(table, partial(self._plan_now, table), self._check, merger)

    def find_outdated(self, table: OpenTable) -> PlanOutdated | None:
        """Return why nothing can be published as of the table's last refresh; None if it can."""
        return find_outdated(lambda: self._prepared_now(self.preparation.plan_now(table)))

    def _plan_now(self, table: OpenTable) -> ClusteringPlan:
        plan = self.preparation.plan_now(table)
        for prepared in self._prepared_now(plan):
            if prepared.error is not None:
                raise prepared.error
        return mark_executed_at_once(plan)

    def _prepared_now(self, plan: ClusteringPlan) -> list[PreparedGroup]:
        """Return the groups of a plan.

        Raises:
            PlanOutdated: prepared files of the groups are missing.
        """
        found = [
            self.groups[tuple(one.group for one in group.slices)] for group in plan.input_groups
        ]
        check_files(file for group in found for file in group.files)
        return found

    def _check(self, table: OpenTable, planned: PlannedReplacement) -> CheckedPlan[ClusterTask]:
        """Compare a plan with the table; a ``CheckPlan`` that executes with the prepared files."""
        return replace(check_clustering(table, planned), create_rewriter=self._rewriter)

    def _rewriter(
        self, context: WriteContext, log_sizes: Mapping[str, int]
    ) -> PreparedClusterRewriter | ClusterRewriter:
        if not is_same_but_instant(context, self.preparation.context):
            return ClusterRewriter(context, order_of(self.preparation.plan), log_sizes)
        return PreparedClusterRewriter(context, self.groups, self.copies)


def begin_preparation(
    table: OpenTable,
    policy: ClusteringPolicy,
    choose: ChoosePartitions | None = None,
    merger_class: str | None = None,
) -> ClusteringPreparation | None:
    """Plan a clustering as of the table's last refresh, without changing the table.

    The result is None if there is nothing to rewrite, or while a write is pending.

    Args:
        table: the open table, which must not have buckets.
        policy: as for ``plan_clusters``.
        choose: as for ``plan_clusters``.
        merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.
    """
    is_written = table.store.pending_writes(table.timeline)
    plan = None if is_written else plan_clusters(table, policy, choose)
    if plan is None:
        return None
    checked = check_clustering(table, (unnamed_instant(table), plan))
    return ClusteringPreparation(
        plan,
        tuple(checked.tasks),
        service_context(table, NO_INSTANT, merger_class).use_storage(table.storage),
        recorded_log_sizes(plan.log_paths, table.timeline, table.store),
        completed_undoings(table),
    )
