"""Plans of compactions that appeared late, and cannot be executed as they are.

A writer may be paused right before it creates a plan, lose the table's lock, and create the plan
after others have compacted, cleaned or restored what it names. It notices, and executes nothing; if
it dies instead, whoever finds the plan removes it. That a plan came late is known from what others
would not have done beside it: compact one of its file groups, delete one of its files, restore the
table, or archive what is newer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from lakemark.errors import WriteConflict
from lakemark.model.action import Action, State
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import join
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.multi_writer import has_heartbeat
from lakemark.transaction.rollback import roll_back_named
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import TableContext

_log = logging.getLogger(__name__)


def check_in_time(
    access: TableContext, pending: Instant, plan: CompactionPlan, lock_wait_s: float
) -> None:
    """Pass if a plan may be executed; one that came late is removed.

    Args:
        access: the table.
        pending: the compaction.
        plan: of it.
        lock_wait_s: how long to wait for the table's lock.

    Raises:
        WriteConflict: it came late, or another writer has completed or removed it.
        LockTimeout: another writer kept the lock.
    """
    timeline = access.timeline.load()
    standing = timeline.find(pending.requested_at)
    if standing is None or standing.is_completed:
        message = f"{pending} was completed or removed by another writer"
        raise WriteConflict(message)
    reason = _late(pending, plan, timeline, access.timeline)
    if not reason or _is_followed(access, pending, plan):
        return
    if has_heartbeat(access.storage, pending, access.sharing):
        message = f"{pending} is being executed by another writer, whose heartbeat is alive"
        raise WriteConflict(message)
    if pending.state is State.INFLIGHT:
        roll_back_named(access, pending.requested_at)
    with access.lock.hold(lock_wait_s) as lease:
        timeline = access.timeline.load()
        check_no_restore(timeline)
        standing = timeline.find(pending.requested_at)
        if standing is not None and standing.state is State.REQUESTED:
            lease.check()
            access.timeline.forget(standing)
    _log.warning("%s was removed without being executed: %s", pending, reason)
    message = f"{pending} was removed: {reason}"
    raise WriteConflict(message)


def _late(pending: Instant, plan: CompactionPlan, timeline: Timeline, store: TimelineStore) -> str:
    """What shows that a plan came late; empty if nothing does."""
    name = pending.requested_at
    newer = next((i for i in timeline.completed() if i.action.is_write), None)
    if timeline.has_history and newer is not None and name < newer.requested_at:
        return f"what came before {newer} was archived"
    later = (i for i in timeline.completed() if (i.completed_at or "") > name)
    return next((f"{i} came after it" for i in later if _contradicts(i, name, plan, store)), "")


def _contradicts(done: Instant, name: str, plan: CompactionPlan, store: TimelineStore) -> bool:
    """Whether a completed instant would not have been begun beside the plan."""
    if done.action is Action.RESTORE:
        return True
    if done.action is Action.ROLLBACK:
        gone = store.read_rollback(done).files
        return not _files(plan).isdisjoint(_names(gone))
    if done.action is Action.CLEAN and done.requested_at > name:
        planned = store.read_clean_plan(done.requested_at)
        return planned is not None and not _files(plan).isdisjoint(planned.paths)
    if done.action is not Action.COMMIT or done.requested_at < name:
        return False
    metadata = store.read_commit(done)
    groups = {(one.group.partition_path, one.group.file_id) for one in plan.operations}
    written = {(stat.partition_path or "", stat.file_id) for stat in metadata.write_stats}
    return metadata.compacted and not groups.isdisjoint(written)


def _is_followed(access: TableContext, pending: Instant, plan: CompactionPlan) -> bool:
    """Whether logs are named after the slice that the plan opens, as in table version 6."""
    if not access.timeline.version.logs_name_their_slice:
        return False
    folders = {one.group.partition_path for one in plan.operations}
    objects = (info for folder in folders for info in access.storage.list_folder(folder)[1])
    logs = (LogFileName.parse(info.name) for info in objects)
    return any(log is not None and log.instant == pending.requested_at for log in logs)


def _files(plan: CompactionPlan) -> set[str]:
    return {
        join(one.group.partition_path, name)
        for one in plan.operations
        for name in (one.data_file, *one.log_files)
        if name
    }


def _names(files: Mapping[str, Sequence[str]]) -> set[str]:
    return {
        join(folder, path.rpartition("/")[2]) for folder, paths in files.items() for path in paths
    }
