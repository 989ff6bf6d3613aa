"""Clusters an open table: rewrites small file slices into fewer files, whose rows may be sorted.

The plan is made by size (``lakemark.services.clustering_plan``). Its steps are those of a resize of
buckets, without hash rings (``lakemark.operations.resize_buckets``): request, begin, rewrite, and
publish. After a crash before the replace commit is published, queries read the old file groups, and
the next clustering executes the plan again. Plans of Apache Hudi are executed, too, if they sort
and divide rows in the same way.

In a table with a bucket index, each file group belongs to a bucket, so that its rows must stay in
it. Such tables are refused. So Apache Hudi cannot execute such a plan, either.

Source: ``BaseCommitActionExecutor.executeClustering`` and ``SparkSortAndSizeExecutionStrategy`` of
Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import InvalidConfig, Refused, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.index.bucket import find_bucket
from lakemark.model.action import REPLACING
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.file_slice import FileGroupId, FileSlice, join
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import FILE_NAME
from lakemark.model.row_order import Curve, RowOrder
from lakemark.operations.open_table import OpenTable
from lakemark.operations.partition_deletion import ChoosePartitions
from lakemark.operations.planned_resize import changes_of
from lakemark.operations.service_context import service_context
from lakemark.services.cluster_rewriter import ClusterRewriter, ClusterTask
from lakemark.services.clustering import (
    ClusteringExecution,
    PlanOutdated,
    added_files,
    find_slice,
    schedule,
)
from lakemark.services.clustering_plan import ClusteringPolicy, order_of, plan_clustering
from lakemark.services.planned_files import recorded_log_sizes
from lakemark.storage.storage import NotFound
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.carried_metadata import carry_progress, carry_table_facts
from lakemark.transaction.rollback import recover, roll_back_named
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.sort_keys import MAX_CURVE_COLUMNS, is_sortable

#: More buckets than a partition has.
_MOST_BUCKETS = 1_000_000

#: The instant of a requested clustering, and its plan.
PlannedClustering = tuple[Instant, ClusteringPlan]


def check_clusterable(table: OpenTable) -> None:
    """Check that lakemark may rewrite the rows of a table into other file groups.

    Raises:
        Unsupported: the table has a bucket index or consistent hashing; or lakemark does not write
            such a table.
    """
    url = table.location.url
    check_allows(table.properties, Purpose.WRITE, url)
    if table.first_ring_count is not None:
        message = (
            f"table {url} has consistent hashing, so that the rows of each file group must stay "
            "together; split and merge its buckets instead (lakemark table resize-buckets TABLE)"
        )
        raise Unsupported(message)
    if table.bucket_count is not None or _are_buckets(g.id for g in table.view().file_groups()):
        message = (
            f"table {url} has a bucket index, so that the rows of each file group must stay "
            "together, and a clustering cannot combine them; merge its logs (lakemark table "
            "compact TABLE), or copy it to a table without buckets"
        )
        raise Unsupported(message)


def check_order(table: OpenTable, order: RowOrder) -> None:
    """Check that the rows of a table can be sorted in an order.

    Raises:
        InvalidConfig: the table has no such column, or the curve has too many.
        Unsupported: a column has a nested type.
    """
    schema, url = table.known_schema, table.location.url
    for name in order.columns if schema is not None else ():
        _check_column(schema, name, url)
    if order.curve is not Curve.LINEAR and len(order.columns) > MAX_CURVE_COLUMNS:
        message = (
            f"a {order.curve} curve of {len(order.columns)} columns would hardly order any of "
            f"them; choose at most {MAX_CURVE_COLUMNS} columns"
        )
        raise InvalidConfig(message)


def pending_clusterings(table: OpenTable) -> list[PlannedClustering]:
    """Return the pending clusterings of all writers, with their plans; resizes are left out."""
    found = []
    for instant in table.timeline.pending(*REPLACING):
        with suppress(NotFound):  # another writer has removed the plan
            plan = table.store.read_clustering_plan(instant)
            if plan is not None and not changes_of(instant, plan):
                found.append((instant, plan))
    return found


def plan_clusters(
    table: OpenTable, policy: ClusteringPolicy, choose: ChoosePartitions | None = None
) -> ClusteringPlan | None:
    """Return the plan that a clustering would have as of the table's last refresh.

    Args:
        table: the open table.
        policy: the limits and the order of the rows.
        choose: returns the partitions whose slices may be rewritten; None for all.

    Raises:
        InvalidConfig: a partition does not exist.
    """
    view = table.view()
    return plan_clustering(view, policy, None if choose is None else choose(view))


def schedule_clustering(
    table: OpenTable, policy: ClusteringPolicy, choose: ChoosePartitions | None = None
) -> PlannedClustering | None:
    """Write a plan to the timeline, which lakemark or Apache Hudi executes later.

    The result is None if there is nothing to rewrite. Dead writers are rolled back first.

    Args:
        table: the open table.
        policy: as for ``plan_clusters``.
        choose: as for ``plan_clusters``.

    Raises:
        InvalidConfig, Unsupported: see ``check_clusterable``, ``check_order``, ``plan_clusters``.
        Refused: a restore is pending.
        WriteConflict, WriterAlive: as for ``cluster_table``.
    """
    check_clusterable(table)
    check_order(table, policy.order)
    _recover(table)
    planned = schedule(table.context, _plan_at(table, policy, choose))
    if planned is None:
        _check_idle(table, policy, choose)
    else:
        table.snapshot.carry_clustering_request(*planned)
    return planned


def cluster_table(
    table: OpenTable,
    policy: ClusteringPolicy,
    choose: ChoosePartitions | None = None,
    merger_class: str | None = None,
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute pending clusterings of any writer; if there are none, plan one and execute it.

    Dead writers are rolled back first. A clustering that another writer executes is skipped. A
    pending clustering whose file slices have been changed by others is removed.

    Args:
        table: the open table.
        policy: as for ``plan_clusters``.
        choose: as for ``plan_clusters``.
        merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.

    Raises:
        InvalidConfig, Unsupported: see ``check_clusterable``, ``check_order``, ``plan_clusters``.
        Refused: lakemark cannot execute a pending plan.
        WriteConflict: there are slices to rewrite, but another writer is writing.
        WriterAlive: another writer is writing, but this process is configured as the only one.
    """
    check_clusterable(table)
    check_order(table, policy.order)
    _recover(table)
    done = []
    for planned in pending_clusterings(table):
        done += _execute(table, partial(Clustering.begin, table, planned, merger_class))
    if not done:
        done = _execute(table, partial(Clustering.request, table, policy, choose, merger_class))
    if not done:
        _check_idle(table, policy, choose)
    return done


@dataclass(frozen=True, slots=True)
class Clustering:
    """A clustering of an open table that this process executes.

    Attributes:
        table: the open table.
        execution: the execution of the plan.
    """

    table: OpenTable
    execution: ClusteringExecution
    _tasks: Sequence[ClusterTask]
    _rewriter: ClusterRewriter

    @classmethod
    def request(
        cls,
        table: OpenTable,
        policy: ClusteringPolicy,
        choose: ChoosePartitions | None = None,
        merger_class: str | None = None,
    ) -> Clustering | None:
        """Plan a clustering, and begin to execute it; the arguments are those of ``cluster_table``.

        The result is None if there is nothing to rewrite, or while a write is pending.

        Raises:
            InvalidConfig: a partition does not exist.
            Refused: a restore is pending.
        """
        execution = ClusteringExecution.request(table.context, _plan_at(table, policy, choose))
        if execution is None:
            return None
        table.snapshot.carry_clustering_request(execution.instant, execution.plan)
        return cls._of(table, execution, merger_class)

    @classmethod
    def begin(
        cls, table: OpenTable, planned: PlannedClustering, merger_class: str | None = None
    ) -> Clustering:
        """Begin to execute a pending plan. If the plan is outdated, it is removed.

        Args:
            table: the open table.
            planned: the pending clustering and its plan.
            merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.

        Raises:
            WriteConflict: another writer is executing, has completed or has removed the clustering;
                or the plan was outdated.
            Refused: lakemark does not execute such a plan.
        """
        instant, plan = planned
        _check_understood(table, planned)
        try:
            _tasks_of(table.view(), planned)
        except PlanOutdated:
            roll_back_named(table.context, instant.requested_at)
            table.refresh()
            raise
        execution = ClusteringExecution.begin(table.context, instant, plan)
        table.snapshot.carry_start(execution.instant)
        return cls._of(table, execution, merger_class)

    @classmethod
    def _of(
        cls, table: OpenTable, execution: ClusteringExecution, merger_class: str | None
    ) -> Clustering:
        instant, plan = execution.instant, execution.plan
        try:
            tasks = _tasks_of(table.view(), (instant, plan))
            context = service_context(table, instant.requested_at, merger_class)
        except BaseException:
            execution.stop_heartbeat()
            raise
        context = replace(context, attempt=instant.attempt).use_storage(table.storage)
        paths = {join(s.group.partition_path, name) for s in plan.slices for name in s.log_files}
        log_sizes = recorded_log_sizes(paths, table.timeline, table.store)
        return cls(table, execution, tasks, ClusterRewriter(context, order_of(plan), log_sizes))

    def rewrite(self, runner: Runner) -> list[WriteStat]:
        """Write the new base files, which no reader sees before ``publish``.

        Raises:
            CorruptData, StorageUnavailable: see ``ClusterRewriter``.
        """
        return self.execution.rewrite(self._rewriter, self._tasks, runner)

    def publish(self, stats: Sequence[WriteStat]) -> tuple[Instant, CommitMetadata]:
        """Replace the old file groups by the new ones, and copy the streamers' checkpoints.

        Args:
            stats: the write stats that ``rewrite`` returned.

        Raises:
            PlanOutdated: other writers changed the file slices; nothing was published.
            AttemptLost: another writer rolled the clustering back; nothing was published.
            LockTimeout: another writer held the lock for too long; ``publish`` may be called again.
        """

        def prepare(timeline: Timeline) -> None:
            self.table.refresh(timeline)
            _tasks_of(self.table.view(), (self.execution.instant, self.execution.plan))

        def extra_at(_: Timeline) -> dict[str, str]:
            newest = self.table.newest_metadata()
            extra = newest.extra_metadata if newest else {}
            return {**carry_table_facts(extra), **carry_progress(extra)}

        instant, metadata, timeline = self.execution.complete(stats, prepare, extra_at)
        self.table.snapshot.carry_commit(instant, metadata, timeline)
        return instant, metadata

    def stop_heartbeat(self) -> None:
        """Stop the heartbeat. If the clustering is unpublished, other writers may execute it."""
        self.execution.stop_heartbeat()


def _recover(table: OpenTable) -> None:
    if table.store.pending_writes(table.timeline):
        recover(table.context)
        table.refresh()


def _check_idle(
    table: OpenTable, policy: ClusteringPolicy, choose: ChoosePartitions | None
) -> None:
    """Check that there is no plan to make. Otherwise none was made because of another writer."""
    if plan_clusters(table, policy, choose) is not None:
        message = (
            f"{table.location.url} was not clustered, because another writer is writing to the "
            "table; try again between its commits"
        )
        raise WriteConflict(message)


def _execute(
    table: OpenTable, begin: Callable[[], Clustering | None]
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute a clustering; return nothing if it conflicts with other writers."""
    try:
        clustering = begin()
        if clustering is None:
            return []
        try:
            stats = clustering.rewrite(table.runner or LocalRunner())
            return [clustering.publish(stats)]
        finally:
            clustering.stop_heartbeat()
    except WriteConflict:
        table.refresh()
        return []


def _plan_at(
    table: OpenTable, policy: ClusteringPolicy, choose: ChoosePartitions | None
) -> Callable[[Timeline], ClusteringPlan | None]:
    def plan_at(timeline: Timeline) -> ClusteringPlan | None:
        table.refresh(timeline)
        return plan_clusters(table, policy, choose)

    return plan_at


def _tasks_of(view: FileSystemView, planned: PlannedClustering) -> list[ClusterTask]:
    """Compare a plan with the table, and return a task for each of its groups.

    Raises:
        PlanOutdated: the slices have changed since the plan was made.
    """
    instant, plan = planned
    tasks = []
    for number, group in enumerate(plan.input_groups):
        slices: list[FileSlice] = []
        for one in group.slices:
            found = find_slice(view, one)
            if found is None:
                message = f"{instant} would rewrite files of {one.group} that others have replaced"
                raise PlanOutdated(message)
            for name in sorted(added_files(view, one)):
                message = f"{name} was added to {one.group} after {instant} was planned"
                raise PlanOutdated(message)
            slices.append(found)
        tasks.append(ClusterTask(number, tuple(slices), group.output_groups))
    return tasks


def _check_understood(table: OpenTable, planned: PlannedClustering) -> None:
    """Check that lakemark executes a pending plan as its writer intended.

    Raises:
        Refused: lakemark does not execute it.
    """
    instant, plan = planned
    try:
        check_order(table, order_of(plan))
        return
    except (ValueError, InvalidConfig, Unsupported) as error:
        reason = error
    message = (
        f"lakemark does not execute {instant} of table {table.location.url}: {reason}; execute it "
        "with Apache Hudi, or remove it (lakemark table rollback TABLE "
        f"{instant.requested_at} --run)"
    )
    raise Refused(message) from reason


def _check_column(schema: pa.Schema, name: str, url: str) -> None:
    if name not in schema.names or name == FILE_NAME:
        message = f"table {url} has no column {name!r} by which its rows could be sorted"
        raise InvalidConfig(message)
    if not is_sortable(schema.field(name).type):
        message = (
            f"column {name!r} of table {url} has type {schema.field(name).type}, by which rows "
            "cannot be sorted; sort by columns of other types"
        )
        raise Unsupported(message)


def _are_buckets(groups: Iterable[FileGroupId]) -> bool:
    """Return whether the ids of all file groups begin with the number of a bucket.

    The random id of a single file group may begin with eight digits, too, but hardly with zeros.
    """
    numbers = [find_bucket(group.file_id) for group in groups]
    known = [number for number in numbers if number is not None]
    return bool(known) and len(known) == len(numbers) and min(known) < _MOST_BUCKETS
