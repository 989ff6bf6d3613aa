"""Creates and deletes savepoints, which protect the files of one commit's state from cleaning.

A savepoint has the requested time of the commit whose state it keeps. Source:
``SavepointActionExecutor``, ``SavepointHelpers`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime

from lakemark.errors import InvalidConfig, Refused
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.timeline.content import encode_savepoint
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.publication import Publication
from lakemark.transaction.rollback import forget_refused_rollbacks
from lakemark.transaction.rollback_checks import (
    check_no_restore,
    rollbacks_of_completed_commits,
)
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext

#: Returns the slices that a savepoint of an instant keeps, given a timeline and the instant.
SlicesToKeep = Callable[[Timeline, str], Iterable[FileSlice]]


def savepoints(timeline: Timeline, store: TimelineStore) -> dict[str, SavepointMetadata]:
    """Return every savepoint by its instant, oldest first.

    Raises:
        CorruptData: a savepoint is damaged.
    """
    found = sorted(timeline.completed(Action.SAVEPOINT), key=lambda i: i.requested_at)
    return {instant.requested_at: store.read_savepoint(instant) for instant in found}


def plan_savepoint(
    context: TableContext, requested_at: str, slices_to_keep: SlicesToKeep, user: str, comment: str
) -> SavepointMetadata:
    """Return what ``create_savepoint`` would keep if it ran now; errors as for that function."""
    timeline = context.timeline.load()
    return _plan(timeline, context.timeline, requested_at, slices_to_keep, user, comment)


def create_savepoint(
    context: TableContext, requested_at: str, slices_to_keep: SlicesToKeep, user: str, comment: str
) -> SavepointMetadata:
    """Create a savepoint of the state as of a completed commit; a pending savepoint is completed.

    Raises:
        InvalidConfig: no such commit is on the active timeline.
        Refused: the commit has a savepoint, files of its state were cleaned, or a clean, a restore
            or a rollback of the commit is pending.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        metadata = _plan(timeline, context.timeline, requested_at, slices_to_keep, user, comment)
        pending = Instant(requested_at, Action.SAVEPOINT, State.INFLIGHT)
        lease.check()
        context.timeline.create(pending)
        publication = Publication(context.timeline, lease, pending)
        publication.prepare(encode_savepoint(metadata))
        publication.publish(context.generate_time(timeline.newest_time))
    context.timeline.withdraw(pending)
    return metadata


def plan_deletion(context: TableContext, requested_at: str) -> SavepointMetadata:
    """Return the files that ``delete_savepoint`` would release; errors as for that function."""
    found = _find(context.timeline.load(), requested_at)
    return context.timeline.read_savepoint(found) if found.is_completed else SavepointMetadata()


def delete_savepoint(context: TableContext, requested_at: str) -> None:
    """Delete a completed or pending savepoint, so that cleaning may delete its files again.

    Raises:
        InvalidConfig: the instant has no savepoint.
        Refused: a restore is pending.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        _delete(context, _find(timeline, requested_at), timeline, lease)


def expired_savepoints(
    timeline: Timeline, store: TimelineStore, created_before: datetime
) -> dict[str, SavepointMetadata]:
    """Return the savepoints that were created before a time; see ``savepoints``."""
    end_ms = created_before.timestamp() * 1000
    found = savepoints(timeline, store).items()
    return {instant: kept for instant, kept in found if kept.created_at_ms < end_ms}


def expire_savepoints(
    context: TableContext, created_before: datetime
) -> dict[str, SavepointMetadata]:
    """Delete the savepoints that were created before a time; return them, oldest first.

    Raises:
        Refused: a restore is pending.
        CorruptData: a savepoint is damaged.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        check_no_restore(timeline)
        expired = expired_savepoints(timeline, context.timeline, created_before)
        for instant in timeline.completed(Action.SAVEPOINT):
            if instant.requested_at in expired:
                _delete(context, instant, timeline, lease)
    return expired


def _delete(context: TableContext, savepoint: Instant, timeline: Timeline, lease: Lease) -> None:
    if savepoint.is_completed:
        forget_refused_rollbacks(context, savepoint.requested_at, timeline, lease)
    lease.check()
    if savepoint.is_completed:
        context.timeline.unpublish(savepoint)
    inflight = Instant(savepoint.requested_at, Action.SAVEPOINT, State.INFLIGHT)
    context.timeline.forget(inflight)


def _plan(
    timeline: Timeline,
    store: TimelineStore,
    requested_at: str,
    slices_to_keep: SlicesToKeep,
    user: str,
    comment: str,
) -> SavepointMetadata:
    check_may_keep(timeline, store, requested_at)
    slices = slices_to_keep(timeline, requested_at)
    return SavepointMetadata.of(slices, user, comment, time.time_ns() // 1_000_000)


def _find(timeline: Timeline, requested_at: str) -> Instant:
    """Return the savepoint of that instant, completed or pending."""
    check_no_restore(timeline)
    for instant in timeline.instants:
        if instant.action is Action.SAVEPOINT and instant.requested_at == requested_at:
            return instant
    message = f"there is no savepoint {requested_at}; lakemark table savepoint lists them"
    raise InvalidConfig(message)


def check_may_keep(timeline: Timeline, store: TimelineStore, requested_at: str) -> None:
    """Check that a savepoint of the state as of an instant may be created.

    No pending clean or restore may delete files of that state. Errors as for ``create_savepoint``.
    """
    check_no_restore(timeline)
    if requested_at not in {i.requested_at for i in timeline.completed(*COMMITS)}:
        message = (
            f"{requested_at} is not the requested time of a completed commit of the active "
            "timeline; lakemark table timeline TABLE lists them"
        )
        raise InvalidConfig(message)
    if any(i.requested_at == requested_at for i in timeline.completed(Action.SAVEPOINT)):
        message = f"savepoint {requested_at} exists; delete it first to create it again"
        raise Refused(message)
    for clean in timeline.pending(Action.CLEAN):
        message = (
            f"{clean} may be deleting these files; complete it first: "
            "lakemark table clean TABLE --run"
        )
        raise Refused(message)
    check_not_rolled_back(timeline, store, requested_at)
    check_not_cleaned(timeline, store, requested_at)


def check_not_rolled_back(timeline: Timeline, store: TimelineStore, requested_at: str) -> None:
    """Check that no rollback has begun of a commit that belongs to the state as of an instant.

    The commit is still completed, but its files will be deleted.

    Raises:
        Refused: such a rollback has begun. The message contains the command that ends it.
    """
    for commit, rollback in rollbacks_of_completed_commits(timeline, store).items():
        if commit <= requested_at:
            message = (
                f"{commit}, which belongs to the state as of {requested_at}, is being rolled back "
                f"by {rollback}; first complete or remove that rollback with lakemark table "
                f"rollback TABLE {commit} --run"
            )
            raise Refused(message)


def check_not_cleaned(timeline: Timeline, store: TimelineStore, requested_at: str) -> None:
    """Check that no clean can have deleted files of the state as of an instant.

    Raises:
        Refused: a clean retained later commits only, or counted file versions; or the content of a
            clean is lost.
        CorruptData: a clean is damaged.
    """
    for clean in reversed(timeline.completed(Action.CLEAN)):  # the newest one retained the least
        if clean.requested_at < requested_at:
            continue
        metadata = store.read_clean(clean)
        if metadata is None:
            message = (
                f"the record of what {clean} deleted is lost; the state as of {requested_at} may "
                "be gone"
            )
            raise Refused(message)
        retained = metadata.earliest_retained
        if not retained or retained > requested_at:
            kept = f"from {retained} on" if retained else "by their versions"
            remedy = f"; choose {retained} or a later commit" if retained else ""
            message = (
                f"{clean} retained files {kept}; the state as of {requested_at} may be gone{remedy}"
            )
            raise Refused(message)
