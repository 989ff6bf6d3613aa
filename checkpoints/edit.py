"""A checkpoint set by hand: a commit without files that changes nothing else."""

from __future__ import annotations

from checkpoints import book
from checkpoints.book import Book, Progress
from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.of_table import book_of
from table.config import keys
from table.errors import InvalidConfig, Permanent, WriteConflict
from table.hudi_table import HudiTable
from table.model.action import COMMITS, Action
from table.model.commit_metadata import CommitMetadata
from table.model.instant import Instant
from table.timeline.timeline import Timeline
from table.transaction.transaction import Transaction

#: What the next commit must say of the table again, whatever it is about.
_TABLE_KEYS = (keys.SCHEMA, keys.BUCKET_COUNT, keys.BUCKET_HASH_FIELDS)


class WriterPending(Permanent):
    """A writer's instant is pending: it may be at work, and would lose its batch."""

    def __init__(self, table: str, instant: str) -> None:
        super().__init__(
            f"instant {instant} of a writer is pending in {table}; stop that run, and if it has "
            "died, start and stop it again, which rolls its instant back"
        )
        self.table, self.instant = table, instant


def write_checkpoint(
    table: HudiTable, identity: str, checkpoint: KafkaCheckpoint | None
) -> Instant:
    """Make ``checkpoint`` the place where a streamer's next run goes on.

    Args:
        table: the table.
        identity: of the streamer.
        checkpoint: None resets: the next run starts as its pipeline says, as the first one did.

    Returns:
        The commit that says so.

    Raises:
        WriterPending: a writer may be at work.
        InvalidConfig: a streamer cannot be called so, or the table has no commit yet.
        WriteConflict: somebody committed meanwhile; nothing was published.
    """
    book.check_identity(identity)
    table.refresh()
    began_with = table.timeline
    _check_nobody_writes(table, began_with, "")
    newest = table.newest_metadata()
    if newest is None:
        message = f"{table.location.url} has no commit yet; name the offsets in source.starting"
        raise InvalidConfig(message)
    action = Action.DELTA_COMMIT if table.properties.is_merge_on_read else Action.COMMIT
    known = book_of(table, began_with, passes_damaged=True)
    transaction = Transaction.begin(table.access, action, began_with)
    name = transaction.instant.requested_at

    def check(timeline: Timeline) -> None:
        _check_nobody_writes(table, timeline, name)
        if set(timeline.completed(*COMMITS)) != set(began_with.completed(*COMMITS)):
            message = f"somebody committed to {table.location.url} meanwhile; look, and try again"
            raise WriteConflict(message)

    told = {k: v for k, v in newest.extra_metadata.items() if k in _TABLE_KEYS}
    told |= book.encode(_with(known, identity, checkpoint, name), identity)
    try:
        completed, _ = transaction.commit(CommitMetadata(extra_metadata=told), check)
    except (WriterPending, WriteConflict):
        table.access.timeline.withdraw(transaction.instant)
        transaction.cancel()
        raise
    table.refresh()
    return completed


def _with(known: Book, identity: str, checkpoint: KafkaCheckpoint | None, commit: str) -> Book:
    before = known.streamers.get(identity)
    obeyed = {} if before is None else before.obeyed
    return known.with_progress(identity, Progress(checkpoint, commit, obeyed=obeyed))


def _check_nobody_writes(table: HudiTable, timeline: Timeline, own: str) -> None:
    pending = [i for i in timeline.pending(*COMMITS) if i.requested_at != own]
    if pending:
        raise WriterPending(table.location.url, pending[0].requested_at)
