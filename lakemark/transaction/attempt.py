"""Attempts to execute a planned table service, for example a compaction.

A plan outlives the writer that executes it. If the writer dies, is rolled back, or is considered
dead, another writer executes the plan again. The instant and the file ids stay the same. The first
writer may resume at any time. So each attempt has a random name. This name is in the content of the
inflight instant, in the names of the attempt's data files and in the name of its prepared content.
Therefore:

- two attempts never write the same file, so no attempt replaces a file of another attempt;
- only the attempt whose name is in the inflight instant may publish;
- an attempt that has lost the instant to another attempt deletes only its own files;
- a rollback that resumes late deletes only files of earlier attempts, because no attempt begins
  while a rollback of the instant is pending.

An attempt that died leaves its inflight instant, and maybe data files. The next attempt deletes
these before it creates its own inflight instant. The first attempt may still write files after
that. Readers skip these files, because the completed commit does not name them.

Apache Hudi leaves the content of the inflight instant empty, so its attempts have no name. The
names of its data files contain the task. Before Apache Hudi begins an attempt, it rolls back every
earlier attempt, including lakemark's (``BaseHoodieTableServiceClient.compact``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import uuid4

from lakemark.config import keys
from lakemark.errors import CorruptData, WriteConflict
from lakemark.log.log_block import rollback_block
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, Operation
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.timeline.content import encode_commit
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.instant_files import awaited_logs, delete_unawaited, files_of
from lakemark.transaction.table_context import TableContext

#: The target of a rollback block that undoes nothing.
_NO_INSTANT = "0"

_log = logging.getLogger(__name__)


class AttemptLost(WriteConflict):
    """An attempt at a planned table service has lost its instant and has published nothing."""

    def __init__(self, instant: Instant, reason: str) -> None:
        super().__init__(f"{instant} was not published: {reason}")
        self.instant, self.reason = instant, reason


def new_attempt(planned: Instant) -> Instant:
    """Return the inflight instant of a new attempt at a planned table service."""
    return replace(planned.inflight(), attempt=uuid4().hex)


def inflight_content(
    action: Action,
    version: FormatVersion,
    writer_id: str,
    operation: Operation = Operation.UPSERT,
) -> bytes:
    """Return the content of an inflight instant, which contains the id of its writer.

    Because of the id, no other writer creates the same content. The content is commit metadata
    without files, as Apache Hudi writes it for an inflight commit. It writes the same kind of
    record for an inflight commit that replaces rows.
    """
    metadata = CommitMetadata(extra_metadata={keys.WRITER_ID: writer_id}, operation=operation)
    return encode_commit(Action.COMMIT if metadata.replaces_rows else action, metadata, version)


def clear_attempts(context: TableContext, planned: Instant, lease: Lease) -> None:
    """Delete the files and the inflight instant of earlier attempts at a planned table service.

    The plan is kept. The markers are kept, too. If a file of an earlier attempt is created late,
    the next attempt finds the file by its marker.

    Args:
        context: the table's context.
        planned: the planned service; the writers of earlier attempts are dead.
        lease: the lease of the table's lock.

    Raises:
        LeaseLost: another writer may have begun an attempt.
    """
    timeline = context.timeline.load()
    current = timeline.find(planned.requested_at)
    if current is None or current.state is not State.INFLIGHT:
        return
    if forget_unplanned(context, current):
        return
    context.timeline.withdraw_all(current.requested_at, lease.check)
    files = files_of(context, current.requested_at)
    awaited = awaited_logs(context.timeline, timeline)
    lease.check()
    delete_files_of(context, current, files, awaited)
    lease.check()
    context.timeline.forget(current, keep_plan=True)


def is_unplanned(context: TableContext, target: Instant) -> bool:
    """Return whether an instant is an inflight compaction, or log compaction, without its plan.

    A rollback, a restore or an archival removed the plan before the inflight file was created. The
    writer of the inflight file had lost the lock, or the store executed the request late.
    """
    return (
        target.action in (Action.COMPACTION, Action.LOG_COMPACTION)
        and target.state is State.INFLIGHT
        and not context.timeline.is_requested(target)
    )


def forget_unplanned(context: TableContext, target: Instant) -> bool:
    """Remove an inflight compaction without a plan; return whether ``target`` was one.

    The compaction may have completed and been archived. So its files may be in use, and are kept.
    """
    is_late = is_unplanned(context, target)
    if is_late:
        context.timeline.forget(target)
    return is_late


def has_instant(context: TableContext, attempt: Instant) -> bool:
    """Return whether the inflight instant still contains the attempt's name."""
    return context.timeline.writer_of(attempt) == attempt.attempt


def discard(context: TableContext, attempt: Instant, timeline: Timeline) -> bool:
    """Delete the files of an attempt that has lost its instant.

    Files that are in the completed commit are kept. No lock is needed, because no other attempt
    writes files with this attempt's name. If the archive is damaged, it is unknown which attempt
    completed, so no file is deleted.

    Args:
        context: the table's context.
        attempt: the inflight instant of this writer's attempt.
        timeline: the timeline that shows the loss.

    Returns:
        Whether any attempt is known to have completed the instant.

    Raises:
        SnapshotChanged: the archive was rewritten in the meantime.
    """
    try:
        commit = _find_commit(context, attempt, timeline)
    except CorruptData as error:
        _log.warning("files of an attempt at %s are not deleted: %s", attempt, error)
        return False
    published = [p for stat in commit.write_stats for p in stat.sizes_bytes] if commit else []
    own = [p for p in files_of(context, attempt.requested_at) if _is_of(p, attempt.attempt)]
    gone = sorted(set(own).difference(published))
    delete_files_of(context, attempt, gone, awaited_logs(context.timeline, timeline))
    return commit is not None


def delete_files_of(
    context: TableContext, attempt: Instant, paths: Sequence[str], awaited: Collection[str]
) -> None:
    """Delete files of an attempt, or of a failed task, that no commit names.

    In table version 6, the plan of a compaction may contain logs that were still being written.
    Such a log keeps existing, with a block that undoes nothing. A block that undoes the attempt's
    instant would also undo the log of a later attempt in the same slice.

    Args:
        context: the table's context.
        attempt: the instant that wrote the files.
        paths: the paths of the files.
        awaited: see ``awaited_logs``.
    """
    delete_unawaited(context, paths, awaited, rollback_block(attempt.requested_at, _NO_INSTANT))


def _find_commit(
    context: TableContext, attempt: Instant, timeline: Timeline
) -> CommitMetadata | None:
    """Return the metadata of an active or archived commit; None if it did not complete."""
    current = timeline.find(attempt.requested_at)
    if current is not None and current.is_completed:
        return context.timeline.read_commit(current)
    if current is not None and context.timeline.is_requested(attempt):
        return None  # an archival of the completed instant would have removed the plan
    archived = context.timeline.load_archived()
    found = archived.find(attempt.requested_at)
    return archived.read_commit(found) if found and found.action.is_write else None


def _is_of(path: str, attempt: str) -> bool:
    name = path.rpartition("/")[2]
    parsed = BaseFileName.parse(name) or LogFileName.parse(name)
    return parsed is not None and parsed.is_of(attempt)
