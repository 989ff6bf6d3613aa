"""Undoing what a dead writer left, so that its files can never become visible.

A file of an instant that is missing from the timeline counts as committed once the timeline starts
later than the instant. So files go first, the instant last (``BaseRollbackActionExecutor``):
withdraw the prepared content, plan, delete the files, complete the rollback, forget the instant.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from table.errors import Fenced, Unsupported
from table.model.action import COMMITS, Action, State
from table.model.instant import Instant
from table.model.rollback import RollbackPlan
from table.timeline.clock import Turn, next_instant
from table.timeline.lock import Lease
from table.timeline.timeline import Timeline
from table.timeline.timeline_store import rollback_metadata_content, rollback_plan_content
from table.transaction.access import LOCK_WAIT_S, TableAccess
from table.view.file_lister import data_file, objects_beside_timeline
from table.write.markers import drop_markers, marked_files


def recover(access: TableAccess) -> list[str]:
    """Finish pending rollbacks, then roll back every commit that a dead writer left pending.

    Pending compactions, log compactions and clusterings stand: somebody planned them, and logs
    were written against the plan. Returns the instants that were rolled back.
    """
    timeline = access.timeline.load()
    if not timeline.pending(Action.ROLLBACK, *COMMITS):
        return []
    with access.lock.hold(LOCK_WAIT_S) as lease:
        finished = [
            _finish(access, rollback, access.timeline.load(), lease)
            for rollback in access.timeline.load().pending(Action.ROLLBACK)
        ]
        dead = access.timeline.load().pending(*COMMITS)
        return finished + [name for i in dead if (name := _roll_back(access, i, lease))]


def roll_back(access: TableAccess, target: Instant) -> bool:
    """Undo a pending instant of our own; False when it completed before we held the lock.

    Raises:
        Fenced: another writer rolled it back; what we wrote in its name since then is gone, too.
    """
    with access.lock.hold(LOCK_WAIT_S) as lease:
        if _roll_back(access, target, lease) is not None:
            return True
        timeline = access.timeline.load()
        if timeline.find(target.requested_at) is not None:
            return False
        _delete_late_files(access, target.requested_at, timeline)
    raise Fenced(target.requested_at, "another writer rolled it back; the newer writer goes on")


def _roll_back(access: TableAccess, target: Instant, lease: Lease) -> str | None:
    access.timeline.withdraw(target)
    timeline = access.timeline.load()
    standing = timeline.find(target.requested_at)
    if standing is None or standing.is_completed:
        return None
    rollback = Instant(
        next_instant(timeline.newest_time, Turn.SERVICE), Action.ROLLBACK, State.REQUESTED
    )
    files = _by_partition(access, _files_of(access, target.requested_at))
    plan = RollbackPlan(target.requested_at, target.action, files)
    access.timeline.create(rollback, rollback_plan_content(plan))
    return _finish(access, rollback, timeline, lease)


def _finish(access: TableAccess, rollback: Instant, timeline: Timeline, lease: Lease) -> str:
    """Execute a rollback from its plan, ours or another's, begun or not."""
    started = time.monotonic()
    plan = access.timeline.read_rollback_plan(rollback.requested_at)
    target = timeline.find(plan.instant)
    if target is not None and target.is_completed:
        message = (
            f"rollback {rollback.requested_at} would undo {target}, which is completed; "
            "let Apache Hudi finish it before this writer starts"
        )
        raise Unsupported(message)
    if rollback.state is State.REQUESTED:
        access.timeline.create(rollback.inflight())
    pending = rollback.inflight()
    # Looked up again, not only read from the plan: a late attempt of the dead writer may have
    # written since, and paths in another's plan are absolute in another's notation.
    files = _files_of(access, plan.instant)
    access.storage.delete(files)
    deleted = {**plan.files, **_by_partition(access, files)}
    done = RollbackPlan(plan.instant, plan.action, deleted)
    took_ms = int((time.monotonic() - started) * 1000)
    content = rollback_metadata_content(done, rollback.requested_at, took_ms)
    access.timeline.prepare(pending, content)
    if target is not None:
        access.timeline.withdraw(target)
    access.participant.on_rollback(pending, plan.instant, _names(deleted), timeline)
    completed_at = next_instant(access.timeline.load().newest_time)
    lease.check()
    access.timeline.publish(pending, completed_at)
    access.timeline.withdraw(pending)
    if target is not None:
        access.timeline.forget(target)
    drop_markers(access.storage, plan.instant)
    return plan.instant


def _names(files: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The files of a plan by their names alone."""
    return {folder: [path.rpartition("/")[2] for path in paths] for folder, paths in files.items()}


def _delete_late_files(access: TableAccess, instant: str, timeline: Timeline) -> None:
    """Delete files of an instant that is gone, if a rollback took it: else it was archived."""
    rollbacks = (i.requested_at for i in timeline.completed(Action.ROLLBACK))
    later = (name for name in rollbacks if name > instant)
    if any(access.timeline.read_rollback_plan(name).instant == instant for name in later):
        access.storage.delete(_files_of(access, instant))
        drop_markers(access.storage, instant)


def _files_of(access: TableAccess, instant: str) -> list[str]:
    """Paths (from the table's root) of every data file named after the instant.

    Folders that are no partition yet are searched, too.
    """
    found = set(marked_files(access.storage, instant))
    for info in objects_beside_timeline(access.storage):
        file = data_file(info.folder, info.name, info.size_bytes)
        if file is not None and file.name.instant == instant:
            found.add(info.path)
    return sorted(found)


def _by_partition(access: TableAccess, files: list[str]) -> dict[str, tuple[str, ...]]:
    """The same files as plans name them: absolute, by partition."""
    root = access.storage.location.url.rstrip("/")
    partitions: dict[str, tuple[str, ...]] = {}
    for path in files:
        partition = path.rpartition("/")[0]
        partitions[partition] = (*partitions.get(partition, ()), f"{root}/{path}")
    return partitions
