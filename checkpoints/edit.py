"""A checkpoint set by hand: a commit without files that changes nothing else.

Pipelines of this project may be at work meanwhile: the one whose place it changes publishes nothing
more before it has started again there, the others go on. Apache Hudi's streamer would not notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from checkpoints import book
from checkpoints.book import DEFAULT_IDENTITY, Book, Progress
from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.codec import DamagedCheckpoint
from checkpoints.of_table import book_of
from checkpoints.resume import newest_progress
from table.config import keys
from table.errors import (
    CorruptData,
    HudiError,
    InvalidConfig,
    LockTimeout,
    OutcomeUnknown,
    Permanent,
    WriteConflict,
)
from table.hudi_table import HudiTable
from table.model.action import COMMITS, Action, State
from table.model.commit_metadata import CommitMetadata
from table.model.instant import Instant
from table.timeline.timeline import Timeline
from table.transaction.rollback import roll_back
from table.transaction.transaction import Transaction
from table.transaction.undoable import check_no_restore

#: What the next commit must say of the table again, whatever it is about.
_TABLE_KEYS = (keys.SCHEMA, keys.BUCKET_COUNT, keys.BUCKET_HASH_FIELDS)


class WriterPending(Permanent):
    """Another engine's instant is pending: were it the streamer's, it would overrule the change."""

    def __init__(self, table: str, instant: str) -> None:
        super().__init__(
            f"instant {instant} of another engine is pending in {table}, maybe of the streamer "
            "whose place is to change; stop that, and if it has died, start and stop it again, "
            "which rolls its instant back"
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
        WriterPending: Apache Hudi's streamer may be at work, and its place is to change.
        InvalidConfig: a streamer cannot be called so, or the table has no commit yet.
        Refused: a restore is pending.
        WriteConflict: the streamer went on meanwhile, or the table got other columns; nothing was
            published.
    """
    book.check_identity(identity)
    table.refresh()
    began_with = table.timeline
    check_no_restore(began_with)
    _check_no_other_engine(table, began_with, identity)
    newest = table.newest_metadata()
    if newest is None:
        message = f"{table.location.url} has no commit yet; name the offsets in source.starting"
        raise InvalidConfig(message)
    action = Action.DELTA_COMMIT if table.properties.is_merge_on_read else Action.COMMIT
    known = book_of(table, began_with, passes_damaged=True)
    transaction = Transaction.begin(table.access, action, began_with)
    name = transaction.instant.requested_at
    told = {k: v for k, v in newest.extra_metadata.items() if k in _TABLE_KEYS}

    def check(timeline: Timeline) -> None:
        _check_no_other_engine(table, timeline, identity)
        since = set(timeline.completed(*COMMITS)) - set(began_with.completed(*COMMITS))
        if any(_stands_against(table, commit, told, identity) for commit in since):
            message = (
                f"{table.location.url} was read further, or got other columns meanwhile; look, and "
                "try again"
            )
            raise WriteConflict(message)

    told_of_all = book.encode(_with(known, identity, checkpoint, name), identity)
    try:
        completed, _ = transaction.commit(CommitMetadata(extra_metadata=told | told_of_all), check)
    except OutcomeUnknown:
        raise
    except (WriterPending, WriteConflict, DamagedCheckpoint, LockTimeout):
        table.access.timeline.withdraw(transaction.instant)
        transaction.cancel()
        raise
    except HudiError:
        # The metadata table may have been told of it by now.
        with suppress(HudiError):
            roll_back(table.access, transaction.instant)
        transaction.leave()
        raise
    table.refresh()
    return completed


def _with(known: Book, identity: str, checkpoint: KafkaCheckpoint | None, commit: str) -> Book:
    before = known.streamers.get(identity)
    obeyed = {} if before is None else before.obeyed
    return known.with_progress(identity, Progress(checkpoint, commit, obeyed=obeyed))


def _check_no_other_engine(table: HudiTable, timeline: Timeline, identity: str) -> None:
    """Only the default streamer can be Apache Hudi's; writers of this project name themselves."""
    if identity != DEFAULT_IDENTITY:
        return
    for pending in timeline.pending(*COMMITS):
        if pending.state is State.REQUESTED or not _is_ours(table, pending):
            raise WriterPending(table.location.url, pending.requested_at)


def _is_ours(table: HudiTable, inflight: Instant) -> bool:
    try:
        return keys.WRITER_ID in table.store.read_commit(inflight).extra_metadata
    except CorruptData:
        return False


def _stands_against(
    table: HudiTable, commit: Instant, told: Mapping[str, str], identity: str
) -> bool:
    """Whether one that completed meanwhile moved the streamer, or changed what we say of the table.

    In layout 1 any does: it may have completed in the second up to which we say that all is known.
    """
    metadata = table.store.read_commit(commit)
    extra = metadata.extra_metadata
    progress = newest_progress([(commit, extra)], identity)
    is_step = progress is not None and progress.commit == commit.requested_at
    is_change = metadata.may_change_schema and any(
        extra.get(key, text) != text for key, text in told.items()
    )
    return commit.is_legacy or is_step or is_change
