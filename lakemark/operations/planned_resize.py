"""Compares the plan of a resize of buckets with the table.

This is done before the resize is executed, before it is published, and before changes are written
to its new buckets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lakemark.errors import Refused
from lakemark.index.hash_ring import HashRing
from lakemark.index.ring_changes import RingChange, change_ring
from lakemark.index.ring_files import load_ring
from lakemark.metadata.partition_kind import has_record_index
from lakemark.model.action import REPLACING
from lakemark.model.clustering_plan import ClusteringPlan, PlannedSlice
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.instant import Instant
from lakemark.operations.group_replacement import (
    CheckedPlan,
    PlannedReplacement,
    pending_replacements,
)
from lakemark.operations.open_table import OpenTable
from lakemark.services.bucket_rewriter import BucketRewriter, RewriteTask
from lakemark.services.clustering import PlanOutdated, added_files, find_slice
from lakemark.view.file_system_view import FileSystemView
from lakemark.write.write_context import WriteContext


@dataclass(frozen=True, slots=True)
class PendingResize:
    """A pending resize of the buckets of one partition.

    Attributes:
        instant: the instant of its plan.
        ring: the ring after it.
        replaced: the file groups that the plan replaces, in all partitions.
    """

    instant: Instant
    ring: HashRing
    replaced: frozenset[FileGroupId]


def copied_resizes(table: OpenTable) -> dict[str, PendingResize]:
    """Return the pending resizes to whose new buckets changes are written, too, by partition path.

    A plan that cannot be executed as of the table's timeline is left out, and so are all plans of a
    table in which copies would be wrong. In table version 6, the name of a log does not contain its
    commit. A record index would need to locate the keys of the copies. If the table logs its
    changes, CDC queries of Apache Hudi would return each change twice. A commit to a bucket of such
    a plan conflicts.
    """
    properties = table.properties
    if (
        not table.timeline.pending(*REPLACING)
        or table.version.logs_name_their_slice
        or has_record_index(properties)
        or properties.cdc_enabled
        or not properties.is_merge_on_read
    ):
        return {}
    found: dict[str, list[PendingResize]] = defaultdict(list)
    for planned in pending_replacements(table):
        with suppress(PlanOutdated, Refused):
            rings = check_resize(table, planned).rings if changes_of(*planned) else ()
            for ring in rings:
                one = PendingResize(planned[0], ring, frozenset(planned[1].groups))
                found[ring.partition_path].append(one)
    return {path: several[0] for path, several in found.items() if len(several) == 1}


def check_resize(table: OpenTable, planned: PlannedReplacement) -> CheckedPlan[RewriteTask]:
    """Compare a plan with the table; a ``CheckPlan``.

    Raises:
        PlanOutdated: the slices or the rings have changed since the plan was made.
        Refused: the plan does not replace the buckets whose slices it rewrites.
    """
    instant, plan = planned
    view, changes = table.view(), changes_of(instant, plan)
    _check_only_logs(view, instant, plan)
    rings = _rings_after(table, instant, changes)
    _check_replaced(view, instant, plan, rings)
    tasks = []
    for group, change in zip(plan.input_groups, changes, strict=True):
        slices = [_slice_of(table, view, instant, one, change) for one in group.slices]
        ring = rings[change.partition_path][1]
        tasks.append(RewriteTask(tuple(slices), ring, change.new_file_ids))

    def create_rewriter(context: WriteContext, log_sizes: Mapping[str, int]) -> BucketRewriter:
        return BucketRewriter(context, table.properties.record_key_fields, log_sizes)

    after = tuple(after for _, (_, after) in sorted(rings.items()))
    return CheckedPlan(tasks, create_rewriter, after)


def changes_of(instant: Instant, plan: ClusteringPlan) -> list[RingChange]:
    """Return the changes of each group; an empty list if the plan is another kind of clustering.

    Raises:
        Refused: the plan has buckets that lakemark does not understand.
    """
    try:
        changes = [RingChange.parse(group.extra_metadata) for group in plan.input_groups]
    except (ValueError, KeyError, TypeError) as error:
        raise _not_understood(instant, f"{type(error).__name__}: {error}") from error
    of_rings = [change for change in changes if change is not None]
    if of_rings and len(of_rings) < len(changes):
        raise _not_understood(instant, "some of its groups have no new buckets")
    return of_rings


def _rings_after(
    table: OpenTable, instant: Instant, changes: Sequence[RingChange]
) -> dict[str, tuple[HashRing, HashRing]]:
    """Return the ring of each changed partition, before and after the resize."""
    by_partition: dict[str, list[RingChange]] = defaultdict(list)
    for change in changes:
        by_partition[change.partition_path].append(change)
    rings = {}
    for path, own in by_partition.items():
        before = load_ring(table.storage, path, table.timeline)
        if before is None:
            message = f"{instant} would resize partition {path!r}, which has no hash ring"
            raise PlanOutdated(message)
        try:
            rings[path] = (before, change_ring(before, own, instant.requested_at))
        except ValueError as error:
            message = f"{instant} does not fit the hash ring of partition {path!r}: {error}"
            raise PlanOutdated(message) from error
    return rings


def _check_replaced(
    view: FileSystemView,
    instant: Instant,
    plan: ClusteringPlan,
    rings: Mapping[str, tuple[HashRing, HashRing]],
) -> None:
    """Check that the plan rewrites the rows of exactly those buckets whose hashes it moves.

    Buckets that had no file when the plan was made are not in it.

    Raises:
        PlanOutdated: such a bucket has a file now.
        Refused: the plan rewrites other buckets.
    """
    replaced = {*plan.groups}
    gone = {
        FileGroupId(path, file_id)
        for path, (before, after) in rings.items()
        for file_id in {*before.file_ids} - {*after.file_ids}
    }
    if not replaced <= gone:
        kept = min(replaced - gone)
        raise _not_understood(instant, f"file group {kept} would be replaced, but keep its hashes")
    for group in sorted(gone - replaced):
        if group in view.groups and view.groups[group].slices:
            message = f"{group}, whose hashes {instant} would move, has rows that it does not move"
            raise PlanOutdated(message)


def _check_only_logs(view: FileSystemView, instant: Instant, plan: ClusteringPlan) -> None:
    """Check that no visible base file is in a new bucket, which would hide the resized rows."""
    for group in plan.new_groups:
        slices = view.groups[group].slices if group in view.groups else ()
        if any(one.base is not None for one in slices):
            raise _not_understood(instant, f"{group} already has a base file")


def _slice_of(
    table: OpenTable,
    view: FileSystemView,
    instant: Instant,
    planned: PlannedSlice,
    change: RingChange,
) -> FileSlice:
    """Return the slice that a plan rewrites.

    Writers may add logs after the plan was made, if they write the same rows to logs of the new
    buckets (``lakemark.write.log_copies``). Such logs are not read
    here. They become part of the new slices, because they are later than the plan.
    """
    found = find_slice(view, planned)
    if found is None:
        message = f"{instant} would rewrite files of {planned.group} that others have replaced"
        raise PlanOutdated(message)
    for name in sorted(added_files(view, planned)):
        if not _is_written_twice(table, planned, name, change):
            message = f"{name} was added to {planned.group} after {instant} was planned"
            raise PlanOutdated(message)
    return found


def _is_written_twice(
    table: OpenTable, planned: PlannedSlice, name: str, change: RingChange
) -> bool:
    """Return whether the commit of a log also wrote to one of the new buckets.

    In table version 6, the name of a log does not contain its commit, so the result is False.
    """
    log = LogFileName.parse(name)
    if log is None or table.version.logs_name_their_slice:
        return False
    commit = table.timeline.find(log.instant)
    if commit is None or not commit.is_completed:
        return False
    stats = table.store.read_commit(commit).write_stats
    path = planned.group.partition_path
    written = {stat.file_id for stat in stats if (stat.partition_path or "") == path}
    return not written.isdisjoint(change.new_file_ids)


def _not_understood(instant: Instant, reason: str) -> Refused:
    return Refused(
        f"lakemark does not understand the plan of {instant} to resize buckets ({reason}); execute "
        "it with Apache Hudi, or remove it (lakemark table rollback TABLE "
        f"{instant.requested_at} --run)"
    )
