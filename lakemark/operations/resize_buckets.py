"""Resizes the buckets of an open table with consistent hashing: plans and executes resizes.

A resize is a clustering. Its plan contains the new buckets, with their file ids. Its steps are:

1. request the clustering with its plan, under the lock
2. begin an attempt: create the inflight instant
3. read the rows of the old buckets once, and write them to base files of the new buckets
4. under the lock: compare the old buckets with the plan again, and write the new hash rings
5. publish the replace commit, which makes the new files and rings valid
6. mark the rings as completed, for Apache Hudi

After a crash before step 5, readers and writers use the old buckets. The next writer executes the
plan again, with the same file ids and rings. After a crash in step 6, Apache Hudi finds the replace
commit on the timeline, and marks the rings itself.

The plans of Apache Hudi are executed, too. It may have planned to sort buckets, which lakemark
rewrites without sorting them.

Source: ``HoodieSparkConsistentBucketIndex.updateLocation`` and
``SparkConsistentBucketClusteringExecutionStrategy`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import Fenced, Refused, StorageUnavailable, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.index.hash_ring import RINGS_FOLDER, HashRing
from lakemark.index.ring_files import load_ring, mark_completed, write_ring
from lakemark.metadata.partition_kind import has_record_index
from lakemark.model.action import REPLACING
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.file_slice import join
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.operations.planned_resize import (
    PlannedResize,
    ResizeGroups,
    changes_of,
)
from lakemark.operations.service_context import service_context
from lakemark.services.bucket_rewriter import BucketRewriter
from lakemark.services.clustering import ClusteringExecution, PlanOutdated
from lakemark.services.planned_files import recorded_log_sizes
from lakemark.services.resize_plan import ResizePolicy, plan_resize
from lakemark.storage.storage import NotFound
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.carried_metadata import carry_progress, carry_table_facts
from lakemark.transaction.rollback import recover, roll_back_named


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


def pending_resizes(table: OpenTable) -> list[PlannedResize]:
    """Return the pending resizes of all writers, with their plans.

    Raises:
        Refused: a plan has buckets that lakemark does not understand.
    """
    found = []
    for instant in table.timeline.pending(*REPLACING):
        with suppress(NotFound):  # another writer has removed the plan
            plan = table.store.read_clustering_plan(instant)
            if plan is not None and changes_of(instant, plan):
                found.append((instant, plan))
    return found


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
    table_facts: Callable[[], Mapping[str, str]],
    merger_class: str | None = None,
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute pending resizes of any writer; then plan a resize and execute it.

    A resize that another writer executes is skipped. A pending resize whose buckets have been
    changed by others is removed, or refused if Apache Hudi has written rows for it.

    Args:
        table: the open table.
        policy: decides which buckets are resized; None to plan nothing.
        runner: runs the tasks.
        table_facts: see ``Resize.publish``.
        merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.

    Raises:
        Unsupported: see ``check_resizable``.
        Refused: lakemark cannot execute or remove a pending plan.
    """
    done = []
    for planned in pending_resizes(table):
        check_resizable(table)
        done += _execute(table, planned, runner, table_facts, merger_class)
    requested = None if policy is None else Resize.request(table, policy, merger_class)
    return done if requested is None else done + _complete(requested, runner, table_facts)


def resize_table(
    table: OpenTable, policy: ResizePolicy, merger_class: str | None = None
) -> list[tuple[Instant, CommitMetadata]]:
    """Roll back dead writers, and resize the buckets of a table; see ``resize_buckets``.

    Raises:
        WriteConflict: buckets should be resized, but another writer is writing.
        WriterAlive: another writer is writing, but this process is configured as the only one.
    """
    check_resizable(table)
    if table.store.pending_writes(table.timeline):
        recover(table.context)
        table.refresh()

    def table_facts() -> dict[str, str]:
        newest = table.newest_metadata()
        return carry_table_facts(newest.extra_metadata) if newest else {}

    runner = table.runner or LocalRunner()
    done = resize_buckets(table, policy, runner, table_facts, merger_class)
    if not done and plan_buckets(table, policy) is not None:
        message = (
            f"the buckets of {table.location.url} were not resized, because another writer is "
            "writing to the table; try again between its commits"
        )
        raise WriteConflict(message)
    return done


@dataclass(frozen=True, slots=True)
class Resize:
    """A resize of an open table that this process executes.

    Attributes:
        table: the open table.
        execution: the execution of the plan.
    """

    table: OpenTable
    execution: ClusteringExecution
    _groups: ResizeGroups
    _rewriter: BucketRewriter

    @classmethod
    def request(
        cls, table: OpenTable, policy: ResizePolicy, merger_class: str | None = None
    ) -> Resize | None:
        """Plan a resize, and begin to execute it.

        The result is None if no bucket needs to be resized, or while a write is pending.

        Args:
            table: the open table.
            policy: decides which buckets are resized.
            merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.

        Raises:
            Unsupported: see ``check_resizable``.
            Refused: a restore is pending.
        """

        def plan_at(timeline: Timeline) -> ClusteringPlan | None:
            table.refresh(timeline)
            return plan_buckets(table, policy)

        execution = ClusteringExecution.request(table.context, plan_at)
        if execution is None:
            return None
        table.snapshot.carry_clustering_request(execution.instant, execution.plan)
        return cls._of(table, execution, merger_class)

    @classmethod
    def begin(
        cls, table: OpenTable, planned: PlannedResize, merger_class: str | None = None
    ) -> Resize:
        """Begin to execute a pending plan. If the plan is outdated, it is removed.

        Args:
            table: the open table.
            planned: the pending resize and its plan.
            merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.

        Raises:
            WriteConflict: another writer is executing, has completed or has removed the resize; or
                the plan was outdated.
            Refused: the plan is outdated, but Apache Hudi has written rows to its new buckets; or
                lakemark does not understand the plan.
        """
        try:
            ResizeGroups.of(table, planned)
        except PlanOutdated:
            _remove(table, planned)
            raise
        execution = ClusteringExecution.begin(table.context, *planned)
        table.snapshot.carry_start(execution.instant)
        return cls._of(table, execution, merger_class)

    @classmethod
    def _of(
        cls, table: OpenTable, execution: ClusteringExecution, merger_class: str | None
    ) -> Resize:
        instant, plan = execution.instant, execution.plan
        try:
            groups = ResizeGroups.of(table, (instant, plan))
            context = service_context(table, instant.requested_at, merger_class)
        except BaseException:
            execution.stop_heartbeat()
            raise
        context = replace(context, attempt=instant.attempt).use_storage(table.storage)
        paths = {join(s.group.partition_path, name) for s in plan.slices for name in s.log_files}
        log_sizes = recorded_log_sizes(paths, table.timeline, table.store)
        key_fields = table.properties.record_key_fields
        return cls(table, execution, groups, BucketRewriter(context, key_fields, log_sizes))

    def rewrite(self, runner: Runner) -> list[WriteStat]:
        """Write the new base files, which no reader sees before ``publish``.

        Raises:
            Refused, CorruptData: see ``BucketRewriter``.
        """
        return self.execution.rewrite(self._rewriter, self._groups.tasks, runner)

    def publish(
        self, stats: Sequence[WriteStat], table_facts: Callable[[], Mapping[str, str]]
    ) -> tuple[Instant, CommitMetadata]:
        """Replace the old buckets by the new ones, and copy the streamers' checkpoints.

        Args:
            stats: the write stats that ``rewrite`` returned.
            table_facts: returns the extra metadata of the commit except checkpoints; called under
                the lock, after the table was refreshed.

        Raises:
            PlanOutdated: other writers changed the buckets; nothing was published.
            Fenced: another writer rolled the resize back; nothing was published.
            LockTimeout: another writer held the lock for too long; ``publish`` may be called again.
        """
        rings, begun = self._groups.rings, self.execution

        def prepare(timeline: Timeline) -> None:
            self.table.refresh(timeline)
            if ResizeGroups.of(self.table, (begun.instant, begun.plan)).rings != rings:
                message = f"the hash rings have changed since {begun.instant} began"
                raise PlanOutdated(message)
            try:
                for ring in rings:
                    write_ring(self.table.storage, ring, begun.instant)
            except NotFound:
                reason = "its prepared content was removed by a rollback"
                raise Fenced(begun.instant.requested_at, reason) from None

        def extra_at(_: Timeline) -> dict[str, str]:
            newest = self.table.newest_metadata()
            carried = carry_progress(newest.extra_metadata) if newest else {}
            return {**table_facts(), **carried}

        instant, metadata, timeline = self.execution.complete(stats, prepare, extra_at)
        self.table.snapshot.carry_commit(instant, metadata, timeline)
        with suppress(StorageUnavailable):  # the resize is already completed
            for ring in rings:
                mark_completed(self.table.storage, ring)
        return instant, metadata

    def stop_heartbeat(self) -> None:
        """Stop the heartbeat. If the resize is unpublished, other writers may execute it."""
        self.execution.stop_heartbeat()


def _execute(
    table: OpenTable,
    planned: PlannedResize,
    runner: Runner,
    table_facts: Callable[[], Mapping[str, str]],
    merger_class: str | None,
) -> list[tuple[Instant, CommitMetadata]]:
    try:
        resize = Resize.begin(table, planned, merger_class)
    except WriteConflict:
        table.refresh()
        return []
    return _complete(resize, runner, table_facts)


def _complete(
    resize: Resize, runner: Runner, table_facts: Callable[[], Mapping[str, str]]
) -> list[tuple[Instant, CommitMetadata]]:
    try:
        return [resize.publish(resize.rewrite(runner), table_facts)]
    except WriteConflict:
        resize.table.refresh()
        return []
    finally:
        resize.stop_heartbeat()


def _remove(table: OpenTable, planned: PlannedResize) -> None:
    """Remove an outdated plan, so that writers can continue with the old buckets.

    Raises:
        Refused: rows were written to the new buckets, or a live writer executes the plan.
    """
    instant, plan = planned
    if table.timeline.has_reappeared(instant):  # its files are those of a completed resize
        roll_back_named(table.context, instant.requested_at)
        table.refresh()
        return
    groups = table.view().groups
    written = sorted(one for one in plan.new_groups if one in groups and groups[one].slices)
    if written:
        message = (
            f"{instant} of table {table.location.url} cannot be executed, because other writers "
            f"have changed its buckets, nor removed, because {written[0]} already has rows; "
            "execute the plan with Apache Hudi, or restore the table to a commit before the plan"
        )
        raise Refused(message)
    roll_back_named(table.context, instant.requested_at)
    table.refresh()
