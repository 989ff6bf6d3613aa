"""Resizes the buckets of an open table with consistent hashing: plans and executes resizes.

A resize is a clustering. Its plan contains the new buckets, with their file ids. The steps of its
execution are in ``lakemark.operations.group_replacement``. After a crash, the next writer executes
the plan again.

The plans of Apache Hudi are executed, too. It may have planned to sort buckets, which lakemark
rewrites without sorting them.

Source: ``HoodieSparkConsistentBucketIndex.updateLocation`` and
``SparkConsistentBucketClusteringExecutionStrategy`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from functools import partial

from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.index.hash_ring import RINGS_FOLDER, HashRing
from lakemark.index.ring_files import load_ring
from lakemark.metadata.partition_kind import has_record_index
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.group_replacement import (
    GroupReplacement,
    PlannedReplacement,
    execute_replacement,
    pending_replacements,
    recover_table,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.planned_resize import changes_of, check_resize
from lakemark.operations.service_commit import TableFacts
from lakemark.services.bucket_rewriter import RewriteTask
from lakemark.services.resize_plan import ResizePolicy, plan_resize
from lakemark.transaction.table_context import LOCK_WAIT_S


def check_resizable(table: OpenTable) -> int:
    """Check that lakemark may split and merge the buckets of a table.

    Returns:
        The number of buckets of a new partition.

    Raises:
        Unsupported: the table has no consistent hashing, is copy-on-write, or has a record index;
            or lakemark does not write such a table.
    """
    url, count = table.location.url, table.first_ring_count
    check_allows(table.properties, Purpose.WRITE, url)
    reason = None
    if count is None:
        reason = f"has no hash rings ({RINGS_FOLDER}), so that its number of buckets is fixed"
    elif not table.properties.is_merge_on_read:
        reason = "is copy-on-write, for which Apache Hudi does not support consistent hashing"
    elif has_record_index(table.properties):
        reason = "has a record index, which a resize of buckets does not update"
    if count is None or reason is not None:
        message = f"table {url} {reason}; lakemark cannot resize its buckets"
        raise Unsupported(message)
    return count


def pending_resizes(table: OpenTable) -> list[PlannedReplacement]:
    """Return the pending resizes of all writers, with their plans.

    Raises:
        Refused: a plan has buckets that lakemark does not understand.
    """
    return [planned for planned in pending_replacements(table) if changes_of(*planned)]


def plan_buckets(table: OpenTable, policy: ResizePolicy) -> ClusteringPlan | None:
    """Return the plan that a resize would have as of the table's last refresh."""
    count, timeline = check_resizable(table), table.timeline

    def ring_of(partition_path: str) -> HashRing | None:
        return load_ring(table.storage, partition_path, timeline)

    return plan_resize(table.view(), count, ring_of, policy)


def resize_buckets(
    table: OpenTable,
    policy: ResizePolicy | None,
    runner: Runner,
    table_facts: TableFacts | None = None,
    merger_class: str | None = None,
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute pending resizes of any writer; then plan a resize and execute it.

    A resize that another writer executes is skipped. A pending resize whose buckets have been
    changed by others is removed, or refused if Apache Hudi has written rows for it.

    Args:
        table: the open table.
        policy: decides which buckets are resized; None to plan nothing.
        runner: runs the tasks.
        table_facts: see ``publish_service``.
        merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.

    Raises:
        Unsupported: see ``check_resizable``.
        Refused: lakemark cannot execute or remove a pending plan.
    """
    done = []
    for planned in pending_resizes(table):
        begin = partial(begin_resize, table, planned, merger_class)
        done += execute_replacement(table, begin, runner, table_facts)
    if policy is not None:
        request = partial(request_resize, table, policy, merger_class)
        done += execute_replacement(table, request, runner, table_facts)
    return done


def resize_table(
    table: OpenTable, policy: ResizePolicy, merger_class: str | None = None
) -> list[tuple[Instant, CommitMetadata]]:
    """Roll back dead writers, and resize the buckets of a table; see ``resize_buckets``.

    Raises:
        WriteConflict: buckets should be resized, but another writer is writing.
        WriterAlive: another writer is writing, but this process is configured as the only one.
    """
    check_resizable(table)
    recover_table(table)
    runner = table.runner or LocalRunner()
    done = resize_buckets(table, policy, runner, merger_class=merger_class)
    if not done and plan_buckets(table, policy) is not None:
        message = (
            f"the buckets of {table.location.url} were not resized, because another writer is "
            "writing to the table; try again between its commits"
        )
        raise WriteConflict(message)
    return done


def begin_resize(
    table: OpenTable,
    planned: PlannedReplacement,
    merger_class: str | None = None,
    lock_wait_s: float = LOCK_WAIT_S,
) -> GroupReplacement[RewriteTask]:
    """Begin to execute a pending resize; see ``GroupReplacement.begin``.

    Raises:
        Unsupported: see ``check_resizable``.
        LockTimeout, WriteConflict, Refused: see ``GroupReplacement.begin``.
    """
    check_resizable(table)
    return GroupReplacement.begin(table, planned, check_resize, merger_class, lock_wait_s)


def request_resize(
    table: OpenTable,
    policy: ResizePolicy,
    merger_class: str | None = None,
    lock_wait_s: float = LOCK_WAIT_S,
) -> GroupReplacement[RewriteTask] | None:
    """Plan a resize, and begin to execute it; the arguments are those of ``resize_buckets``.

    The result is None if no bucket needs to be resized, or while a write is pending.

    Raises:
        LockTimeout: another writer held the table's lock for longer than ``lock_wait_s``.
        Unsupported: see ``check_resizable``.
        Refused: a restore is pending.
    """
    plan = partial(plan_buckets, table, policy)
    return GroupReplacement.request(table, plan, check_resize, merger_class, lock_wait_s)
