"""A planned resize or clustering whose files are encoded before it is requested.

The plan is not on the timeline, so commits may change its file groups meanwhile. Before the plan is
requested, it is therefore made again for the file groups as they are now (``plan_now``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from lakemark.model.action import Action, State
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.operations.service_context import service_context
from lakemark.services.clustering import PlanOutdated
from lakemark.services.prepared_files import is_same_but_instant
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.prepared_base_file import NO_INSTANT
from lakemark.write.write_context import WriteContext

Task = TypeVar("Task")


@dataclass(frozen=True)
class Preparation(ABC, Generic[Task]):
    """A plan whose files another thread may encode.

    Attributes:
        plan: the plan, which is not on the timeline.
        tasks: the task of each group of the plan.
        context: the write context of the table service as of now.
        log_sizes: see ``recorded_log_sizes``.
        undone: the rollbacks and restores that had completed.
    """

    plan: ClusteringPlan
    tasks: tuple[Task, ...]
    context: WriteContext
    log_sizes: Mapping[str, int]
    undone: frozenset[Instant]

    @abstractmethod
    def plan_now(self, table: OpenTable) -> ClusteringPlan:
        """Return the plan for the file groups as they are at the table's last refresh.

        Raises:
            PlanOutdated: the prepared files cannot be published any more.
        """

    def find_outdated(self, table: OpenTable) -> PlanOutdated | None:
        """Return why nothing can be published as of the table's last refresh; None if it can."""
        return find_outdated(lambda: self.plan_now(table))

    def check_table(self, table: OpenTable) -> None:
        """Compare the table with the preparation, except for its file groups.

        Raises:
            PlanOutdated: a commit was rolled back, whose rows may be in the prepared files; or
                other files would be written now.
        """
        if not completed_undoings(table) <= self.undone:
            message = "a commit was rolled back since the files were prepared"
            raise PlanOutdated(message)
        context = service_context(table, NO_INSTANT, self.context.merge.merger_class)
        if not is_same_but_instant(context, self.context):
            message = "columns or settings of the table have changed since the files were prepared"
            raise PlanOutdated(message)


def find_outdated(check: Callable[[], object]) -> PlanOutdated | None:
    """Return why a function raises ``PlanOutdated``; None if it does not."""
    try:
        check()
    except PlanOutdated as error:
        return error
    return None


def unnamed_instant(table: OpenTable) -> Instant:
    """Return an instant for a plan that is not on the timeline."""
    return Instant(NO_INSTANT, table.version.clustering_action, State.REQUESTED)


def completed_undoings(table: OpenTable) -> frozenset[Instant]:
    """Return the completed rollbacks and restores of the active timeline."""
    return frozenset(table.timeline.completed(Action.ROLLBACK, Action.RESTORE))


def newest_slice(view: FileSystemView, group: FileGroupId) -> FileSlice | None:
    """Return the newest slice of a file group that no compaction or clustering will replace."""
    is_busy = group in view.replaced or group in view.compactions or group in view.clusterings
    return None if is_busy or group not in view.groups else view.groups[group].for_readers
