"""Attempts to execute a planned service: which of them may publish, and which files it owns.

A plan outlives its executor. If the executor dies, is rolled back, or is considered dead, another
one executes the plan again, with the same instant and the same file ids. The first may resume at
any time. So each attempt has a random name. The content of the inflight instant holds it, and the
names of its files and of its prepared content contain it:

- two attempts never write the same file, so neither replaces a file of the other;
- only the attempt that the inflight instant names may publish;
- an attempt that has lost the instant deletes its own files, and no others;
- a rollback that resumes late deletes files of the attempts before it, and no others, because no
  attempt begins while a rollback of the instant is pending.

An attempt that died leaves its inflight instant, and maybe files. The next one deletes both before
it creates its own inflight instant. Files that the first still writes after that are recognised:
the completed commit does not name them.

Apache Hudi leaves the content of the inflight instant empty, so its attempts have no name here, and
names its files after its tasks. It rolls back every attempt, its own and ours, before it begins
another (``BaseHoodieTableServiceClient.compact``).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from uuid import uuid4

from lakemark.config import keys
from lakemark.errors import CorruptData, WriteConflict
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_names import BaseFileName
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.timeline.content import encode_commit
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.instant_files import files_of
from lakemark.transaction.table_context import TableContext

_log = logging.getLogger(__name__)


class AttemptLost(WriteConflict):
    """An attempt at a planned service no longer has its instant; it has published nothing."""

    def __init__(self, instant: Instant, reason: str) -> None:
        super().__init__(f"{instant} was not published: {reason}")
        self.instant, self.reason = instant, reason


def new_attempt(planned: Instant) -> Instant:
    """Return the inflight instant of a new attempt at a planned service."""
    return replace(planned.inflight(), attempt=uuid4().hex)


def inflight_content(action: Action, version: FormatVersion, writer_id: str) -> bytes:
    """Return the content of an inflight instant, with the name of its writer.

    So no other writer creates the same content. It is commit metadata without files, as Apache Hudi
    writes it for an inflight commit.
    """
    metadata = CommitMetadata(extra_metadata={keys.WRITER_ID: writer_id})
    return encode_commit(action, metadata, version)


def clear_attempts(context: TableContext, planned: Instant, lease: Lease) -> None:
    """Delete the files and the inflight instant of earlier attempts at a planned service.

    The plan is kept. The markers are kept, too: if a file of an earlier attempt appears late, the
    next attempt finds its marker.

    Args:
        context: the table.
        planned: the service; the writers of its attempts are dead.
        lease: lease of the table's lock.

    Raises:
        LeaseLost: another writer may have begun an attempt.
    """
    current = context.timeline.load().find(planned.requested_at)
    if current is None or current.state is not State.INFLIGHT:
        return
    if forget_unplanned(context, current):
        return
    context.timeline.withdraw_all(current.requested_at, lease.check)
    files = files_of(context, current.requested_at)
    lease.check()
    context.delete_files(files)
    lease.check()
    context.timeline.forget(current, keep_plan=True)


def is_unplanned(context: TableContext, target: Instant) -> bool:
    """Return whether an instant is a compaction that is inflight but not requested.

    Its inflight file appeared late: its writer had lost the lock, or the store was late. By then
    the plan had been removed by a rollback, a restore or archival.
    """
    return (
        target.action is Action.COMPACTION
        and target.state is State.INFLIGHT
        and not context.timeline.is_requested(target)
    )


def forget_unplanned(context: TableContext, target: Instant) -> bool:
    """Remove a compaction that is inflight but not requested; returns whether it is one.

    It may have completed and been archived, so its files may be in use and are kept.
    """
    is_late = is_unplanned(context, target)
    if is_late:
        context.timeline.forget(target)
    return is_late


def has_instant(context: TableContext, attempt: Instant) -> bool:
    """Return whether the inflight instant still names an attempt; reads the instant."""
    return context.timeline.writer_of(attempt) == attempt.attempt


def discard(context: TableContext, attempt: Instant, timeline: Timeline) -> bool:
    """Delete the files of an attempt that has lost its instant, unless its commit names them.

    No other attempt writes these files, so this needs no lock. If the archive is damaged, it is
    unknown which attempt completed, and no file is deleted.

    Args:
        context: the table.
        attempt: the attempt of this writer.
        timeline: the timeline in which the loss was found.

    Returns:
        Whether this attempt or another one is known to have completed the instant.

    Raises:
        SnapshotChanged: the archive was rewritten in the meantime.
    """
    try:
        commit = _find_commit(context, attempt, timeline)
    except CorruptData as error:
        _log.warning("files of an attempt at %s are not deleted: %s", attempt, error)
        return False
    published = [stat.path for stat in commit.write_stats if stat.path] if commit else []
    own = [p for p in files_of(context, attempt.requested_at) if _is_of(p, attempt.attempt)]
    context.delete_files(sorted(set(own).difference(published)))
    return commit is not None


def _find_commit(
    context: TableContext, attempt: Instant, timeline: Timeline
) -> CommitMetadata | None:
    """Return the metadata of an instant, active or archived; None if it did not complete."""
    current = timeline.find(attempt.requested_at)
    if current is not None and current.is_completed:
        return context.timeline.read_commit(current)
    if current is not None and context.timeline.is_requested(attempt):
        return None  # archival would have removed the plan
    archived = context.timeline.load_archived()
    found = archived.find(attempt.requested_at)
    return archived.read_commit(found) if found and found.action.is_write else None


def _is_of(path: str, attempt: str) -> bool:
    name = BaseFileName.parse(path.rpartition("/")[2])
    return name is not None and name.is_of(attempt)
