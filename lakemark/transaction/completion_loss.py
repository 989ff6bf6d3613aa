"""Whether a pending commit had completed, and its completed file was lost since.

Without that file it looks like what a dead writer left, and undoing it deletes acknowledged rows.
That the metadata table tells of it is no proof: it is told first, so a writer that died in between
leaves the same. These are proofs:

- a savepoint of its name: only completed commits are kept;
- of a commit of this project, of which the metadata table was told: files, but neither a marker nor
  the prepared content. A marker is there before its file. Both go when the commit has completed; a
  rollback drops the content first, but the markers last, when the instant is gone. Markers that
  somebody deleted are no proof alone: of most commits that die nobody was told;
- another commit that was written over a base file of it, or a compaction that was planned over its
  logs: others saw them, which they do not before the commit has completed. Logs of table version 6
  do not name their commit, and a plan may name what is being written, so there it is not asked.

A commit whose completed file is lost before its writer has tidied up cannot be told from what a
dead writer leaves: in both cases the prepared content is there. It is rolled back.
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
    """Pass unless there is proof that a pending commit had completed; under the table's lock.

    Args:
        context: the table.
        pending: a commit that is to be rolled back since its writer is dead.
        timeline: as just loaded.

    Raises:
        Refused: there is; the message says what to do.
    """
    proof = next(_proofs(context, pending, timeline), None)
    if proof is None:
        return
    place, name = context.storage.location.url, pending.requested_at
    message = (
        f"{pending} of {place} looks like what a dead writer left, but it had completed: {proof}. "
        "Its completed file was lost. Restore that file from a backup of the timeline, or give up "
        f"the rows of the commit: lakemark table rollback {place} {name}"
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
            yield f"the metadata table tells of {files[0]}, and the markers of its files are gone"
    yield from _relying(context, name, timeline)


def _is_ours(context: TableContext, pending: Instant) -> bool:
    """Whether this project wrote it: markers of others may be of other kinds."""
    try:
        return bool(context.timeline.writer_of(pending))
    except CorruptData:
        return False


def _relying(context: TableContext, name: str, timeline: Timeline) -> Iterator[str]:
    later = [i for i in timeline.instants if i.requested_at > name]
    for instant in later:
        if instant.is_completed and instant.action in COMMITS:
            if _is_written_over(name, context.timeline.read_commit(instant)):
                yield f"{instant} was written over a base file of it"
    if context.timeline.version.logs_name_their_slice:
        return
    for planned in timeline.pending(Action.COMPACTION):
        for operation in context.timeline.read_compaction_plan(planned.requested_at).operations:
            if any(_instant_of(log) == name for log in operation.log_files):
                yield f"{planned} was planned over logs of it"


def _is_written_over(name: str, commit: CommitMetadata) -> bool:
    return any(_instant_of(s.prev_base_file) == name for s in commit.write_stats)


def _instant_of(file_name: str | None) -> str | None:
    file = data_file("", file_name or "", 0)
    return file.name.instant if file is not None else None
