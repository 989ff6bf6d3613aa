"""Clusters an open table: rewrites small file slices into fewer files, whose rows may be sorted.

The plan is made by size (``lakemark.services.clustering_plan``). The steps of its execution are in
``lakemark.operations.group_replacement``. After a crash, the next clustering executes the plan
again. Plans of Apache Hudi are executed, too, if they sort and divide rows in the same way.

In a table with a bucket index, each file group belongs to a bucket, so that its rows must stay in
it. Such tables are refused. So Apache Hudi cannot execute such a plan, either.

Source: ``BaseCommitActionExecutor.executeClustering`` and ``SparkSortAndSizeExecutionStrategy`` of
Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import pyarrow as pa

from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import InvalidConfig, Refused, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.index.bucket import find_bucket
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import FILE_NAME
from lakemark.model.row_order import Curve, RowOrder
from lakemark.operations.compact_logs import log_compacted_groups
from lakemark.operations.group_replacement import (
    CheckedPlan,
    GroupReplacement,
    PlannedReplacement,
    execute_replacement,
    pending_replacements,
    plan_at,
    recover_table,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.partition_deletion import ChoosePartitions
from lakemark.operations.planned_resize import changes_of
from lakemark.services.cluster_rewriter import ClusterRewriter, ClusterTask
from lakemark.services.clustering import PlanOutdated, added_files, find_slice, schedule
from lakemark.services.clustering_plan import (
    ClusteringPolicy,
    mark_executed_at_once,
    order_of,
    plan_clustering,
)
from lakemark.write.sort_keys import MAX_CURVE_COLUMNS, is_sortable
from lakemark.write.write_context import WriteContext

#: More buckets than a partition has.
_MOST_BUCKETS = 1_000_000


def check_clusterable(table: OpenTable) -> None:
    """Check that lakemark may rewrite the rows of a table into other file groups.

    Raises:
        Unsupported: the table has a bucket index or consistent hashing; or lakemark does not write
            such a table.
    """
    check_allows(table.properties, Purpose.WRITE, table.location.url)
    check_no_buckets(table)


def check_no_buckets(table: OpenTable) -> None:
    """Check that the rows of a table need not stay in buckets.

    Raises:
        Unsupported: the table has a bucket index or consistent hashing.
    """
    url = table.location.url
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


def is_clusterable(table: OpenTable) -> bool:
    """Return whether the rows of a table may be rewritten into other file groups."""
    try:
        check_no_buckets(table)
    except Unsupported:
        return False
    return True


def check_order(table: OpenTable, order: RowOrder) -> None:
    """Check that the rows of a table can be sorted in an order.

    Raises:
        InvalidConfig: the table has no such column, or the curve has too many.
        Unsupported: a column has a nested type.
    """
    check_sortable(table.known_schema, order, table.location.url)


def check_sortable(schema: pa.Schema | None, order: RowOrder, url: str) -> None:
    """Check that rows can be sorted in an order; the errors are those of ``check_order``.

    Args:
        schema: the columns, with meta columns; None if they are not known.
        order: the order.
        url: the URL of the table, for messages.
    """
    for name in order.columns if schema is not None else ():
        _check_column(schema, name, url)
    if order.curve is not Curve.LINEAR and len(order.columns) > MAX_CURVE_COLUMNS:
        message = (
            f"a {order.curve} curve of {len(order.columns)} columns would hardly order any of "
            f"them; choose at most {MAX_CURVE_COLUMNS} columns"
        )
        raise InvalidConfig(message)


def pending_clusterings(table: OpenTable) -> list[PlannedReplacement]:
    """Return the pending clusterings of all writers, with their plans; resizes are left out."""
    return [planned for planned in pending_replacements(table) if not changes_of(*planned)]


def plan_clusters(
    table: OpenTable, policy: ClusteringPolicy, choose: ChoosePartitions | None = None
) -> ClusteringPlan | None:
    """Return the plan that a clustering would have as of the table's last refresh.

    File groups in a pending log compaction are kept as they are, as in Apache Hudi.

    Args:
        table: the open table.
        policy: the limits and the order of the rows.
        choose: returns the partitions whose slices may be rewritten; None for all.

    Raises:
        InvalidConfig: a partition does not exist.
    """
    view = table.view()
    partitions = None if choose is None else choose(view)
    return plan_clustering(view, policy, partitions, log_compacted_groups(table))


def schedule_clustering(
    table: OpenTable, policy: ClusteringPolicy, choose: ChoosePartitions | None = None
) -> PlannedReplacement | None:
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
    recover_table(table)
    planned = schedule(table.context, plan_at(table, partial(plan_clusters, table, policy, choose)))
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
    recover_table(table)
    runner, done = table.runner or LocalRunner(), []
    for planned in pending_clusterings(table):
        done += execute_clustering(table, planned, runner, merger_class)
    if not done:
        request = partial(request_clustering, table, policy, choose, merger_class)
        done = execute_replacement(table, request, runner)
    if not done:
        _check_idle(table, policy, choose)
    return done


def execute_clustering(
    table: OpenTable,
    planned: PlannedReplacement,
    runner: Runner,
    merger_class: str | None = None,
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute a pending clustering; see ``cluster_table`` for clusterings that are skipped.

    Args:
        table: the open table.
        planned: the clustering.
        runner: runs the tasks.
        merger_class: as for ``cluster_table``.

    Raises:
        Refused: lakemark cannot execute the plan.
        HudiError: a file cannot be read or written.
    """
    begin = partial(_begin, table, planned, merger_class)
    return execute_replacement(table, begin, runner)


def request_clustering(
    table: OpenTable,
    policy: ClusteringPolicy,
    choose: ChoosePartitions | None = None,
    merger_class: str | None = None,
) -> GroupReplacement[ClusterTask] | None:
    """Plan a clustering, and begin to execute it; the arguments are those of ``cluster_table``.

    The result is None if there is nothing to rewrite, or while a write is pending.

    Raises:
        InvalidConfig: a partition does not exist.
        Refused: a restore is pending.
    """

    def plan() -> ClusteringPlan | None:
        made = plan_clusters(table, policy, choose)
        return made and mark_executed_at_once(made)

    return GroupReplacement.request(table, plan, check_clustering, merger_class)


def check_clustering(table: OpenTable, planned: PlannedReplacement) -> CheckedPlan[ClusterTask]:
    """Compare a plan with the table; a ``CheckPlan``.

    Raises:
        PlanOutdated: the slices have changed since the plan was made.
    """
    (instant, plan), view = planned, table.view()
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

    def create_rewriter(context: WriteContext, log_sizes: Mapping[str, int]) -> ClusterRewriter:
        return ClusterRewriter(context, order_of(plan), log_sizes)

    return CheckedPlan(tasks, create_rewriter)


def _begin(
    table: OpenTable, planned: PlannedReplacement, merger_class: str | None
) -> GroupReplacement[ClusterTask]:
    _check_understood(table, planned)
    return GroupReplacement.begin(table, planned, check_clustering, merger_class)


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


def _check_understood(table: OpenTable, planned: PlannedReplacement) -> None:
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
