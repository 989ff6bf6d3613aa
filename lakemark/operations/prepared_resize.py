"""Resizes buckets in two parts, so that the next commit does not wait while rows are encoded.

1. ``begin_preparation`` plans a resize, and ``ResizePreparation.run`` encodes its base files in a
   folder on this machine's disk. It does not change the table, so commits continue to write logs.
   ``ResizeRound.run`` encodes the changes in these logs, and may be repeated. A crash leaves only
   the folder.
2. ``publish_prepared`` compares the table with the preparation. If the old buckets only have more
   logs, the resize is requested for the buckets as they are now, and executed with the prepared
   files (``lakemark.services.bucket_preparation``). Otherwise nothing happens.

The plan on the timeline is that of an ordinary resize. So after a crash in step 2, the next writer
executes it by encoding all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lakemark.config.merge_settings import merge_settings
from lakemark.errors import Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.model.clustering_plan import ClusteringGroup, ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.operations.compact_logs import check_logs_compactable
from lakemark.operations.group_replacement import (
    CheckedPlan,
    GroupReplacement,
    PlannedReplacement,
    execute_replacement,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.planned_resize import check_resize
from lakemark.operations.preparation import (
    Preparation,
    completed_undoings,
    find_outdated,
    newest_slice,
    unnamed_instant,
)
from lakemark.operations.resize_buckets import plan_buckets
from lakemark.operations.service_commit import TableFacts
from lakemark.operations.service_context import service_context
from lakemark.services.bucket_preparation import (
    BucketPreparation,
    ChangePreparation,
    PreparedRewriter,
    PreparedTask,
    has_same_buckets,
    is_continued,
    later_logs,
)
from lakemark.services.bucket_rewriter import BucketRewriter, RewriteTask
from lakemark.services.clustering import PlanOutdated
from lakemark.services.planned_files import recorded_log_sizes
from lakemark.services.prepared_files import is_same_but_instant
from lakemark.services.resize_plan import ResizePolicy
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.prepared_base_file import NO_INSTANT
from lakemark.write.write_context import WriteContext

_ONE_AT_A_TIME = LocalRunner(1)


@dataclass(frozen=True)
class ResizePreparation(Preparation[RewriteTask]):
    """A planned resize, whose base files another thread may encode.

    The tasks, the context and the sizes of logs are those of the last round.

    Attributes:
        key_fields: the fields of the record key.
    """

    key_fields: tuple[str, ...]

    def run(self, folder: Path, is_cancelled: Callable[[], bool] = lambda: False) -> PreparedResize:
        """Encode the base files; the table is only read.

        Args:
            folder: an empty folder on this machine's disk, which must exist until the resize is
                published.
            is_cancelled: returns whether to stop.

        Raises:
            Cancelled: ``is_cancelled`` returned true.
            Refused, CorruptData: see ``BucketRewriter``. The reason may be that other writers have
                changed the table, see ``find_outdated``.
        """
        prepare = BucketPreparation(
            self.context, self.key_fields, self.log_sizes, folder, is_cancelled
        )
        return PreparedResize(self, tuple(map(prepare, self.tasks)))

    def plan_now(self, table: OpenTable) -> ClusteringPlan:
        """Return the plan for the buckets as they are now.

        Raises:
            PlanOutdated: the buckets are not those of the preparation with more logs.
        """
        self.check_table(table)
        pairs = zip(self.tasks_now(table), self.plan.input_groups, strict=True)
        groups = [
            ClusteringGroup.of(task.slices, group.output_groups, group.extra_metadata)
            for task, group in pairs
        ]
        plan = replace(self.plan, input_groups=tuple(groups))
        checked = check_resize(table, (unnamed_instant(table), plan))
        rings = zip(checked.tasks, self.tasks, strict=True)
        if not all(has_same_buckets(now.ring, before.ring) for now, before in rings):
            message = "the hash rings have changed since the buckets were prepared"
            raise PlanOutdated(message)
        return plan

    def tasks_now(self, table: OpenTable) -> tuple[RewriteTask, ...]:
        """Return the tasks for the buckets as they are now.

        Raises:
            PlanOutdated: see ``plan_now``.
        """
        view = table.view()
        return tuple(
            replace(task, slices=tuple(_slice_now(view, one) for one in task.slices))
            for task in self.tasks
        )

    def added_log_bytes(self, table: OpenTable) -> int:
        """Return the size of the logs that were added to the buckets since the last round.

        Raises:
            PlanOutdated: see ``plan_now``.
        """
        now, before = (
            [one for task in tasks for one in task.slices]
            for tasks in (self.tasks_now(table), self.tasks)
        )
        return sum(log.size_bytes for logs in map(later_logs, now, before) for log in logs)


@dataclass(frozen=True)
class PreparedResize:
    """A resize whose base files are encoded.

    Attributes:
        preparation: the preparation.
        prepared: the files of each task.
        copies: the number of files that are copied to the table at the same time.
    """

    preparation: ResizePreparation
    prepared: tuple[PreparedTask, ...]
    copies: int = 2

    def begin_round(self, table: OpenTable) -> ResizeRound:
        """Return a round that encodes the changes since the last one, as of the last refresh.

        Raises:
            PlanOutdated: the buckets are not those of the preparation with more logs.
        """
        before = self.preparation
        paths = before.plan_now(table).log_paths
        context = service_context(table, NO_INSTANT, before.context.merge.merger_class)
        preparation = replace(
            before,
            tasks=before.tasks_now(table),
            context=context.use_storage(table.storage),
            log_sizes=recorded_log_sizes(paths, table.timeline, table.store),
        )
        return ResizeRound(preparation, self.prepared)

    def find_outdated(self, table: OpenTable) -> PlanOutdated | None:
        """Return why nothing can be published as of the table's last refresh; None if it can."""
        return find_outdated(lambda: self.plan_now(table))

    def plan_now(self, table: OpenTable) -> ClusteringPlan:
        """Return the plan for the buckets as they are now.

        Raises:
            PlanOutdated: see ``ResizePreparation.plan_now``; or prepared files are missing.
        """
        for task in self.prepared:
            task.check_files()
        return self.preparation.plan_now(table)

    def check(self, table: OpenTable, planned: PlannedReplacement) -> CheckedPlan[RewriteTask]:
        """Compare a plan with the table; a ``CheckPlan`` that executes with the prepared files.

        Raises:
            PlanOutdated, Refused: see ``check_resize``.
        """
        checked = check_resize(table, planned)
        return replace(checked, create_rewriter=self._rewriter)

    def _rewriter(
        self, context: WriteContext, log_sizes: Mapping[str, int]
    ) -> PreparedRewriter | BucketRewriter:
        fields = self.preparation.key_fields
        if not is_same_but_instant(context, self.preparation.context):
            return BucketRewriter(context, fields, log_sizes)
        prepared = {one.task.new_file_ids: one for one in self.prepared}
        return PreparedRewriter(context, prepared, fields, log_sizes, self.copies)


@dataclass(frozen=True)
class ResizeRound:
    """A round of a preparation, which another thread may execute.

    Attributes:
        preparation: the preparation as it will be after the round.
        prepared: the files of each task before the round.
    """

    preparation: ResizePreparation
    prepared: tuple[PreparedTask, ...]

    def run(self, folder: Path, is_cancelled: Callable[[], bool] = lambda: False) -> PreparedResize:
        """Encode the changes since the last round; see ``ResizePreparation.run``."""
        of = self.preparation
        prepare = ChangePreparation(of.context, of.key_fields, of.log_sizes, folder, is_cancelled)
        return PreparedResize(of, tuple(map(prepare, self.prepared, of.tasks)))


def begin_preparation(
    table: OpenTable, policy: ResizePolicy, merger_class: str | None = None
) -> ResizePreparation | None:
    """Plan a resize as of the table's last refresh, without changing the table.

    The result is None if no bucket needs to be resized, or while a write is pending.

    Args:
        table: the open table.
        policy: decides which buckets are resized.
        merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.

    Raises:
        Unsupported: see ``check_resizable``; or the buckets of the table cannot be prepared.
    """
    _check_preparable(table)
    plan = None if table.store.pending_writes(table.timeline) else plan_buckets(table, policy)
    if plan is None:
        return None
    checked = check_resize(table, (unnamed_instant(table), plan))
    context = service_context(table, NO_INSTANT, merger_class).use_storage(table.storage)
    return ResizePreparation(
        plan,
        tuple(checked.tasks),
        context,
        recorded_log_sizes(plan.log_paths, table.timeline, table.store),
        completed_undoings(table),
        table.properties.record_key_fields,
    )


def _check_preparable(table: OpenTable) -> None:
    """Check that a resize of the table's buckets may write changes to logs.

    Raises:
        Unsupported: the table has no meta columns, so that a row without a commit time would get
            another one; or it has version 6; or logs of changed buckets would not contain all that
            readers need; or missing columns are filled from the old base files, which the new
            buckets do not have.
    """
    reason, partial_update = None, merge_settings(table.properties).partial_update
    if not table.properties.populates_meta_columns:
        reason = "has no meta columns"
    elif table.version.logs_name_their_slice:
        reason = (
            "has an old version, in which a rollback finds logs by the instants of their blocks"
        )
    elif partial_update is not None:
        reason = f"merges columns one by one ({partial_update})"
    if reason is not None:
        message = f"table {table.location.url} {reason}; its buckets cannot be prepared"
        raise Unsupported(message)
    check_logs_compactable(table)


def publish_prepared(
    table: OpenTable, prepared: PreparedResize, table_facts: TableFacts | None = None
) -> list[tuple[Instant, CommitMetadata]]:
    """Request a resize and execute it with its prepared files.

    The result is empty if the resize is outdated, if prepared files are missing, while a write is
    pending, or if the resize conflicts with other writers.

    Args:
        table: the open table.
        prepared: the resize.
        table_facts: see ``publish_service``.

    Raises:
        Refused: a restore is pending.
    """
    preparation = prepared.preparation
    request = partial(
        GroupReplacement.request,
        table,
        partial(prepared.plan_now, table),
        prepared.check,
        preparation.context.merge.merger_class,
    )
    return execute_replacement(table, request, _ONE_AT_A_TIME, table_facts)


def _slice_now(view: FileSystemView, before: FileSlice) -> FileSlice:
    """Return the newest slice of a bucket.

    Raises:
        PlanOutdated: it is not the slice of the preparation with more logs, or a table service
            will rewrite it.
    """
    found = newest_slice(view, before.group)
    if found is None or not is_continued(found, before):
        message = f"{before.group} was changed since it was prepared"
        raise PlanOutdated(message)
    return found
