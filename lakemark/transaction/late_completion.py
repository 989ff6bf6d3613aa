"""Commits that completed after they were rolled back.

The store makes a completed instant out of its prepared content. A store may carry out that copy
late: it has read the prepared content, its client got no answer and gave up, another writer rolled
the instant back, and then the copy lands. The instant is completed, its files are gone, and its
checkpoint says that its rows were read. The rollback is effective, so its target is undone again.

Compactions, log compactions and clusterings are not judged: their plans outlive a rollback, and
another attempt completes under the same requested time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.instant_files import (
    as_planned,
    files_of,
    is_taken_back,
    is_whole,
    names_of,
)
from lakemark.transaction.table_context import TableContext
from lakemark.write.markers import drop_markers

_INGEST = (Action.COMMIT, Action.DELTA_COMMIT)
_PLANS = (Action.COMPACTION, Action.LOG_COMPACTION)


def rolled_back_and_completed(store: TimelineStore, timeline: Timeline) -> list[Instant]:
    """Completed commits that a completed rollback or restore undid; reads each of those once.

    Args:
        store: reads the timeline's instants.
        timeline: the active one.
    """
    undone = dict(_undone(store, timeline))
    return [
        commit
        for commit in timeline.completed(*_INGEST)
        if undone.get(commit.requested_at) == commit.action
    ]


def undo_late_completions(context: TableContext, timeline: Timeline, lease: Lease) -> list[str]:
    """Undo commits that completed after they were rolled back; under the table's lock.

    A commit whose files are all there is kept: Apache Hudi may complete an instant that was rolled
    back before its files were written, and then its rows are acknowledged. So is one that has a
    savepoint.

    Args:
        context: the table.
        timeline: as just loaded.
        lease: of the lock.

    Returns:
        The requested times of the commits that were undone.

    Raises:
        LeaseLost: the lock was lost before the next step.
    """
    savepoints = {i.requested_at for i in timeline.completed(Action.SAVEPOINT)}
    late = [
        commit
        for commit in rolled_back_and_completed(context.timeline, timeline)
        if commit.requested_at not in savepoints
        and not _has_plan(context, commit)
        and not _has_its_rows(context, commit)
    ]
    for commit in late:
        _undo(context, commit, timeline, lease)
    return [commit.requested_at for commit in late]


def _undo(context: TableContext, commit: Instant, timeline: Timeline, lease: Lease) -> None:
    """Do what the rollback did; the instant goes first, so that no reader looks for its files."""
    name = commit.requested_at
    pending = Instant(name, commit.action, State.INFLIGHT)
    lease.check()
    context.timeline.withdraw(pending)
    context.timeline.unpublish(commit)
    files = files_of(context, name)
    lease.check()
    context.delete_files(files)
    gone = names_of(as_planned(context.storage, files))
    others = replace(timeline, instants=tuple(i for i in timeline.instants if i != commit))
    context.metadata_updater.on_rollback(name, gone, others, lease.check)
    context.timeline.forget(pending)
    drop_markers(context.storage, name)


def _undone(store: TimelineStore, timeline: Timeline) -> Iterator[tuple[str, str]]:
    for rollback in timeline.completed(Action.ROLLBACK):
        plan = store.read_rollback(rollback)
        yield plan.instant, plan.action
    for restore in timeline.completed(Action.RESTORE):
        for one in store.read_restore_plan(restore.requested_at).instants:
            yield one.requested_at, one.action


def _has_its_rows(context: TableContext, commit: Instant) -> bool:
    paths = [stat.path for stat in context.timeline.read_commit(commit).write_stats if stat.path]
    name = commit.requested_at
    is_hidden = any(is_taken_back(context, path, name) for path in paths)
    return bool(paths) and not is_hidden and is_whole(context, commit)


def _has_plan(context: TableContext, commit: Instant) -> bool:
    """Whether a commit is the completion of a planned service."""
    plans = (Instant(commit.requested_at, action, State.REQUESTED) for action in _PLANS)
    return any(context.timeline.is_requested(plan) for plan in plans)
