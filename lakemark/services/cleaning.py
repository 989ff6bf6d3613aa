"""Cleans a table: deletes files that no query within the retention reads.

``propose`` only reads the timeline and the view. ``request`` writes a plan to the timeline under
the lock. Any writer, including Apache Hudi, may ``execute`` a plan. After a crash a plan may be
executed again, because the clean is published only after the files were deleted.

The folder and the metafile of an emptied partition are kept, even if a plan of Apache Hudi drops
the partition. A writer that began before may be about to write to the partition. It does not create
the metafile again, so that readers would not find its rows. Apache Hudi deletes the folder with all
files that it has by then. Source: ``CleanPlanActionExecutor``, ``CleanActionExecutor`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

from lakemark.errors import Fenced
from lakemark.model.action import Action, State
from lakemark.model.clean_plan import CleanMetadata, CleanPlan
from lakemark.model.instant import Instant
from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.services.cleaning_plan import (
    CleaningPolicy,
    Retention,
    Savepointed,
    commits_by_request,
    earliest_retained,
    plan,
)
from lakemark.timeline.clock import ClockSlot, TimelineClock
from lakemark.timeline.content import encode_clean_metadata, encode_clean_plan
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.heartbeat import forget_heartbeat, is_fresh
from lakemark.transaction.metadata_updater import recording_in
from lakemark.transaction.multi_writer import has_heartbeat
from lakemark.transaction.publication import Publication
from lakemark.transaction.rollback_checks import (
    check_no_restore,
    rollbacks_of_completed_commits,
)
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.view.file_system_view import FileSystemView

_log = logging.getLogger(__name__)


def propose(
    store: TimelineStore,
    timeline: Timeline,
    view: Callable[[], FileSystemView],
    policy: CleaningPolicy,
    now: datetime | None = None,
) -> CleanPlan | None:
    """Return the plan of a clean as of now; None if no clean is needed.

    The result is also None if the rollback of a completed commit has begun. The store may still
    execute the request that makes the commit pending again. Then queries need older files.

    The function reads the newest clean, the commits since then (each once), and the savepoints. It
    reads nothing while the table has fewer commits than the policy retains.

    Args:
        store: reads the timeline's instants.
        timeline: the table's timeline.
        view: returns the latest state of the table as of ``timeline``.
        policy: which files are retained.
        now: the current time; None for the time of this machine.
    """
    moment = now or datetime.now(UTC)
    earliest = earliest_retained(timeline, policy, moment, store.clock)
    if earliest is None and policy.retention is not Retention.FILE_VERSIONS:
        return None
    if rollbacks_of_completed_commits(timeline, store):
        return None
    last = last_clean(timeline)
    # After a clean whose content is lost, every partition is searched.
    metadata = (store.read_clean(last) if last else None) or CleanMetadata()
    earliest = _not_before(earliest, metadata, timeline)
    new = [i for i in commits_by_request(timeline) if i.requested_at > metadata.last_completed]
    if len(new) < policy.every_commits:
        return None
    savepointed = _savepointed(store, timeline)
    partitions = _touched(store, timeline, metadata, savepointed, earliest)
    proposed = plan(timeline, view(), policy, earliest, partitions, savepointed)
    is_worth_noting = earliest is not None and _is_empty_clean_due(
        last, policy, moment, store.clock
    )
    return proposed if proposed.files or is_worth_noting else None


def request(
    context: TableContext,
    view_at: Callable[[Timeline], FileSystemView],
    policy: CleaningPolicy,
) -> tuple[Instant, CleanPlan] | None:
    """Write a plan to the timeline; None if a clean is pending, or if ``propose`` returns None.

    Args:
        context: the table.
        view_at: returns the view of the latest state as of a timeline.
        policy: which files are retained.

    Raises:
        Refused: a restore is pending, which needs older files.
        LeaseLost: the lock was lost before the plan was created. If the plan was created after
            that, ``claim`` removes it.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        check_no_restore(timeline)
        if timeline.pending(Action.CLEAN):  # its plan may name the same files
            return None
        proposed = propose(context.timeline, timeline, lambda: view_at(timeline), policy)
        if proposed is None:
            return None
        name = context.generate_time(timeline.newest_time, ClockSlot.SERVICE)
        requested = Instant(name, Action.CLEAN, State.REQUESTED)
        lease.check()
        root = context.storage.location.url
        context.timeline.create(requested, encode_clean_plan(proposed, root))
        lease.check()  # if the plan was created late, ``claim`` removes it
        return requested, proposed


def execute(
    context: TableContext, pending: Instant, planned: CleanPlan
) -> tuple[Instant, Timeline]:
    """Delete the files of a plan, and publish the clean.

    Returns:
        The completed instant, and the timeline that contains it.

    Raises:
        Fenced: the instant is no longer on the timeline.
    """
    with context.alive(pending.requested_at):
        return _execute(context, pending, planned)


def claim(context: TableContext, pending: Instant) -> CleanPlan | None:
    """Return the plan of a pending clean if the plan may be executed; remove it if it is obsolete.

    The result is None if the plan was removed, if the clean has completed, or if a living writer
    may still be writing the plan. A plan is removed in these cases:

    - The content of the plan is lost.
    - The clean has an inflight file but no plan. A process that was suspended created that file
      after the clean was completed and archived.
    - After the requested time of the clean, the table was restored.
    - After that time, a savepoint began to keep some of the plan's files.
    - After that time, an older instant was rolled back, and the clean has not begun.
    - Newer instants were archived, and the clean has not begun. Archival keeps the instants after a
      pending clean, except in table version 6, and the archive may contain such a restore.

    In the last four cases a writer created the plan after it had lost the lock. While a plan
    exists, restores, savepoints and rollbacks of completed commits refuse to begin. A plan that was
    created so late may name files that are needed again.

    After a rollback, a plan is kept if the undone instant was requested after the clean, or if the
    clean has begun. The undone instant had never completed, so the plan does not depend on it. The
    plan may have been executed in part, and only the completion of the clean records this.

    A plan is also kept if the metadata table records the clean, because then all files of the plan
    were deleted. If the clean never completed, the metadata table would be ahead of the timeline.
    Source for lost plans: ``CleanActionExecutor.execute``, ``deleteEmptyInstantIfExists`` of Apache
    Hudi 1.2.0.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        current = next((i for i in timeline.pending(Action.CLEAN) if _is_same(i, pending)), None)
        if current is None:
            return None
        is_planned = current.state is State.REQUESTED or context.timeline.is_requested(current)
        planned = context.timeline.read_clean_plan(pending.requested_at) if is_planned else None
        reason = _obsolete(planned, current, timeline, context.timeline)
        if planned is not None and (not reason or _is_recorded(context, pending)):
            return planned
        # While a living writer is writing its plan, the plan may be empty.
        clock, multi_writer = context.timeline.clock, context.multi_writer
        if planned is None and multi_writer and is_fresh(pending, multi_writer.heartbeats, clock):
            return None
        _log.warning("%s is removed, and deletes nothing: %s", pending, reason)
        lease.check()
        context.timeline.forget(current)
        forget_heartbeat(context.storage, pending.requested_at)  # the writer died
    return None


def _is_recorded(context: TableContext, pending: Instant) -> bool:
    """Return whether the metadata table records the clean.

    If so, all files of the clean were deleted, so the clean must complete.
    """
    return context.metadata_updater.has_commit(pending.requested_at)


def is_free(context: TableContext, pending: Instant) -> bool:
    """Return whether no other writer of a shared table executes a planned clean."""
    multi_writer = context.multi_writer
    return multi_writer is None or not has_heartbeat(context.storage, pending, multi_writer)


def _execute(
    context: TableContext, pending: Instant, planned: CleanPlan
) -> tuple[Instant, Timeline]:
    started = time.monotonic()
    inflight = pending.inflight()
    if pending.state is State.REQUESTED:
        context.timeline.create(inflight)
    context.delete_files(planned.paths)
    took_ms = int((time.monotonic() - started) * 1000)
    content = encode_clean_metadata(planned, pending.requested_at, took_ms)
    completed, timeline = _publish(context, inflight, planned, content)
    context.timeline.withdraw(inflight)
    context.timeline.note_clean(completed, CleanMetadata.of(planned))
    return completed, timeline


def last_clean(timeline: Timeline) -> Instant | None:
    """Return the completed clean that was requested last; None if there is none."""
    cleans = timeline.completed(Action.CLEAN)
    return max(cleans, key=lambda instant: instant.requested_at, default=None)


def _not_before(
    earliest: Instant | None, last: CleanMetadata, timeline: Timeline
) -> Instant | None:
    """Return the earliest commit to retain, or the one of the last clean if that is later.

    The last clean has retained fewer commits, for example because it ended time travel.
    """
    if earliest is None or earliest.requested_at >= last.earliest_retained:
        return earliest
    of_last = (i for i in commits_by_request(timeline) if i.requested_at == last.earliest_retained)
    return next(of_last, earliest)


def _savepointed(store: TimelineStore, timeline: Timeline) -> Savepointed:
    savepoints = sorted(timeline.completed(Action.SAVEPOINT), key=lambda i: i.requested_at)
    kept = (names for i in savepoints for names in store.read_savepoint(i).files.values())
    return Savepointed(
        tuple(i.requested_at for i in savepoints),
        frozenset(name for names in kept for name in names),
    )


def _touched(
    store: TimelineStore,
    timeline: Timeline,
    last: CleanMetadata,
    savepointed: Savepointed,
    earliest: Instant | None,
) -> Collection[str] | None:
    """Return the partitions in which slices may have expired since the last clean; None for all.

    All partitions must be searched if commits that the last clean retained were archived since.
    They must also be searched if a savepoint was deleted since, because the last clean kept the
    files of the savepoint.
    """
    start = timeline.start
    if not last.earliest_retained or start is None or earliest is None:
        return None
    if last.earliest_retained < start or not set(last.savepoints) <= set(savepointed.instants):
        return None
    touched: set[str] = set()
    for commit in commits_by_request(timeline):
        if last.earliest_retained <= commit.requested_at < earliest.requested_at:
            metadata = store.read_commit(commit)
            touched.update(stat.partition_path or "" for stat in metadata.write_stats)
            touched.update(metadata.replaced_file_ids)
    return touched


def _is_empty_clean_due(
    last: Instant | None, policy: CleaningPolicy, now: datetime, clock: TimelineClock
) -> bool:
    if policy.empty_clean_after_h is None:
        return False
    interval = timedelta(hours=policy.empty_clean_after_h)
    return last is None or now - clock.parse(last.requested_at) > interval


def _publish(
    context: TableContext, inflight: Instant, planned: CleanPlan, content: bytes
) -> tuple[Instant, Timeline]:
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        current = next((i for i in timeline.instants if _is_same(i, inflight)), None)
        if current is None:
            raise Fenced(inflight.requested_at, "its plan was removed; clean again")
        if current.is_completed:  # another executor of the same plan was faster
            return current, timeline
        if not context.timeline.is_requested(inflight):
            lease.check()
            context.timeline.forget(inflight)
            raise Fenced(inflight.requested_at, "it was completed and archived; clean again")
        publication = Publication(context.timeline, lease, inflight)
        publication.prepare(content)
        with recording_in(context.metadata_updater) as updater:
            with lease.reporting_loss():
                updater.on_clean(inflight, planned.files, timeline)
            completed = publication.publish(context.generate_time(timeline.newest_time))
    return completed, timeline.with_instant(completed)


def _obsolete(
    planned: CleanPlan | None, pending: Instant, timeline: Timeline, store: TimelineStore
) -> str:
    """Return why a plan must not be executed; an empty text if the plan may be executed."""
    if planned is None:
        return "its plan is empty or missing"
    if pending.state is State.REQUESTED and timeline.is_archived(pending.requested_at):
        return "newer instants were archived"
    later = (i for i in timeline.completed() if (i.completed_at or "") > pending.requested_at)
    for change in later:
        if change.action is Action.RESTORE or (
            change.action is Action.ROLLBACK
            and pending.state is State.REQUESTED
            and store.read_rollback(change).instant < pending.requested_at
        ):
            return f"{change} came after it"
        if change.action is Action.SAVEPOINT and _keeps_any(store.read_savepoint(change), planned):
            return f"{change}, which came after it, keeps some of its files"
    return ""


def _keeps_any(savepoint: SavepointMetadata, planned: CleanPlan) -> bool:
    return any(
        not set(names).isdisjoint(savepoint.files.get(partition, ()))
        for partition, names in planned.files.items()
    )


def _is_same(instant: Instant, other: Instant) -> bool:
    return instant.requested_at == other.requested_at and instant.action is other.action
