"""Detects a pending commit that had already completed, but whose completed file was lost.

Without that file, the commit looks like a commit of a dead writer. But its rows are acknowledged,
so the commit must not be rolled back. An entry in the metadata table does not prove that the commit
had completed. The metadata table is updated before the commit is published, so a writer that dies
in between leaves the same entry. These are proofs:

- There is a savepoint of the commit. Savepoints are created only for completed commits.
- lakemark wrote the commit, the metadata table contains the commit, and the commit has data files,
  but neither markers nor prepared content exist. A marker is created before its data file. When the
  commit has completed, its writer deletes the markers and the prepared content. A rollback also
  deletes both, but it deletes the markers last, after the instant. Missing markers alone are no
  proof, because a user may have deleted the markers. So the commit must also be in the metadata
  table, which contains few commits of dead writers.
- Another commit replaced a base file of the commit, or a compaction of the commit's logs was
  planned. Writers see these files only after the commit has completed. Compaction plans are not
  checked in table version 6, for two reasons: in that version, the name of a log does not contain
  the commit, and a plan may contain a log that is still being written.

If markers or prepared content exist, only a savepoint is a proof. Suppose that the completed file
is lost before the writer has deleted the prepared content. Then the commit looks exactly like a
commit of a dead writer, and is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.errors import CorruptData, Refused
from lakemark.model.action import COMMITS, Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.instant_files import files_of
from lakemark.transaction.table_context import TableContext
from lakemark.view.file_lister import data_file
from lakemark.write.markers import marked_files


def check_never_completed(context: TableContext, pending: Instant, timeline: Timeline) -> None:
    """Check that there is no proof that a pending commit had completed.

    The caller holds the table's lock.

    Args:
        context: the table's context.
        pending: the commit to roll back; its writer is dead.
        timeline: the timeline, just loaded.

    Raises:
        Refused: there is a proof that the commit had completed; the message contains the remedy.
    """
    proof = next(_proofs(context, pending, timeline), None)
    if proof is None:
        return
    url, name = context.storage.location.url, pending.requested_at
    message = (
        f"{pending} of {url} looks like a commit of a dead writer, but it had completed: {proof}. "
        "Its completed file was lost. Restore that file from a backup of the timeline, or give up "
        f"the rows of the commit: lakemark table rollback {url} {name}"
    )
    raise Refused(message)


def _proofs(context: TableContext, pending: Instant, timeline: Timeline) -> Iterator[str]:
    name = pending.requested_at
    if any(i.requested_at == name for i in timeline.completed(Action.SAVEPOINT)):
        yield f"savepoint {name} keeps it"
    if context.timeline.is_prepared(pending) or marked_files(context.storage, name):
        return
    if _is_ours(context, pending) and context.metadata_updater.has_commit(name):
        files = files_of(context, name)
        if files:
            yield f"the metadata table lists {files[0]}, and the markers of {name} are gone"
    yield from _find_dependents(context, name, timeline)


def _is_ours(context: TableContext, pending: Instant) -> bool:
    """Return whether lakemark wrote a commit. Other writers may use markers differently."""
    try:
        return bool(context.timeline.writer_of(pending))
    except CorruptData:
        return False


def _find_dependents(context: TableContext, name: str, timeline: Timeline) -> Iterator[str]:
    later = [i for i in timeline.instants if i.requested_at > name]
    for instant in later:
        if instant.is_completed and instant.action in COMMITS:
            if _replaces_file_of(name, context.timeline.read_commit(instant)):
                yield f"{instant} replaced one of its base files"
    if context.timeline.version.logs_name_their_slice:
        return
    for planned in timeline.pending(Action.COMPACTION):
        written = {path.rpartition("/")[2] for path in files_of(context, name)}
        for operation in context.timeline.read_pending_compaction(planned).operations:
            if any(_instant_of(log) == name or log in written for log in operation.log_files):
                yield f"{planned} contains some of its logs"


def _replaces_file_of(name: str, commit: CommitMetadata) -> bool:
    return any(_instant_of(s.prev_base_file) == name for s in commit.write_stats)


def _instant_of(file_name: str | None) -> str | None:
    file = data_file("", file_name or "", 0)
    return file.name.instant if file is not None else None
