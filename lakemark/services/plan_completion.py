"""Adds the files of planned slices that a compaction plan does not name.

The plan closes the slices, so the compaction must merge all of their files. Apache Hudi does not
look for such files.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from lakemark.log.log_writers import writers_in
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_slice import LogFile
from lakemark.storage.storage import NotFound, Storage
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_system_view import FileSystemView


def complete_plan(
    plan: CompactionPlan, requested_at: str, view: FileSystemView, storage: Storage
) -> CompactionPlan:
    """Return a plan with all files of its slices, including files that the plan does not name.

    A planner may have missed a commit for two reasons. It used a metadata table that lacked the
    commit. Or it lost the lock right before it created the plan, and the commit completed before
    the plan was created. The files of such a commit belong to the slices that the compaction
    closes, so without this function their rows would be lost. In table
    version 6 a slice may have logs without committed rows, so only logs with rows of completed
    commits are added.

    Args:
        plan: the plan of a pending compaction.
        requested_at: requested time of the compaction.
        view: a view of the table in which the compaction is pending.
        storage: the table's root.
    """
    if view.version.logs_name_their_slice:
        operations = (_with_committed_logs(view, one, storage) for one in plan.operations)
        return CompactionPlan(tuple(operations))
    found = (_slice_to_rewrite(view, operation, requested_at) for operation in plan.operations)
    return CompactionPlan(
        tuple(
            operation if there is None or _has_all(operation, there) else there
            for operation, there in zip(plan.operations, found, strict=True)
        )
    )


def _with_committed_logs(
    view: FileSystemView, operation: CompactionOperation, storage: Storage
) -> CompactionOperation:
    """Return the operation with all logs of its slice that contain rows of completed commits."""
    group = view.groups.get(operation.group)
    slices = group.slices if group else ()
    planned = next((s for s in slices if s.base_instant == operation.base_instant), None)
    logs = planned.logs if planned else ()
    missing = [log for log in logs if str(log.name) not in operation.log_files]
    added = [log for log in missing if _holds_committed_rows(log, view.timeline, storage)]
    return replace(
        operation,
        log_files=(*operation.log_files, *(str(log.name) for log in added)),
        log_bytes=operation.log_bytes + sum(log.size_bytes for log in added),
    )


def _holds_committed_rows(log: LogFile, timeline: Timeline, storage: Storage) -> bool:
    with suppress(NotFound):  # a rollback deleted it after it was listed
        return any(timeline.is_committed(writer) for writer in writers_in(storage, log))
    return False


def _slice_to_rewrite(
    view: FileSystemView, operation: CompactionOperation, requested_at: str
) -> CompactionOperation | None:
    """Return an operation for the group's newest slice from before the plan's request, if any."""
    group = view.groups.get(operation.group)
    before = [s for s in group.slices if s.base_instant < requested_at] if group else []
    return CompactionOperation.of(before[-1]) if before else None


def _has_all(operation: CompactionOperation, there: CompactionOperation) -> bool:
    is_same_base = there.data_file is None or operation.data_file == there.data_file
    return is_same_base and set(there.log_files) <= set(operation.log_files)
