"""A checkpoint set by hand: a commit without files that changes nothing else.

Pipelines of this project may be at work meanwhile: the one whose place it changes publishes nothing
more before it has started again there, the others go on. Apache Hudi's streamer would not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.of_table import table_progress_of
from checkpoints.plan import CheckpointPlan, plan_checkpoint
from checkpoints.progress import Progress, TableProgress, check_identity, encode_progress
from checkpoints.resume import newest_progress
from lakemark.config import keys
from lakemark.errors import (
    CorruptData,
    HudiError,
    InvalidConfig,
    LockTimeout,
    OutcomeUnknown,
    Permanent,
    WriteConflict,
)
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback import roll_back
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY, DamagedCheckpoint
from lakemark.transaction.table_context import TableContext
from lakemark.transaction.transaction import Transaction

#: Whatever a commit is about, the next one reads the table's schema and buckets in it.
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


def plan_edit(
    table: OpenTable, identity: str, checkpoint: KafkaCheckpoint | None
) -> CheckpointPlan:
    """What ``write_checkpoint`` would change, as of now; nothing is written.

    Raises:
        WriterPending, InvalidConfig, Refused: as ``write_checkpoint``.
    """
    check_identity(identity)
    return _Edit.begin(table, identity, table.store.load()).plan(checkpoint)


def write_checkpoint(
    table: OpenTable, identity: str, checkpoint: KafkaCheckpoint | None
) -> Instant:
    """Let a streamer's next run start at ``checkpoint``.

    Args:
        table: the table.
        identity: of the streamer.
        checkpoint: offsets to set; partitions of the same topic that it does not name keep theirs.
            None resets: the next run starts as its pipeline says, as the first one did.

    Returns:
        The commit that says so.

    Raises:
        WriterPending: Apache Hudi's streamer may be at work, and its place is to change.
        InvalidConfig: a streamer cannot be called so, or the table has no commit yet.
        Refused: a restore is pending.
        WriteConflict: the streamer went on meanwhile, or the table got other columns; nothing was
            published.
    """
    check_identity(identity)
    action = Action.DELTA_COMMIT if table.properties.is_merge_on_read else Action.COMMIT
    decide = partial(_Edit.begin, table, identity)
    transaction, edit = Transaction.begin(table.context, action, decide)
    metadata = edit.metadata(transaction.instant.requested_at, checkpoint)
    completed = _commit_or_withdraw(table.context, transaction, metadata, edit.check)
    table.refresh()
    return completed


@dataclass(frozen=True, slots=True)
class _Edit:
    """A change of one streamer's place, and what was known as it began.

    Attributes:
        table: the table.
        identity: of the streamer.
        began_with: the timeline that the change was decided on.
        known: the places of all streamers.
        table_keys: what the next commit must say of the table again.
    """

    table: OpenTable
    identity: str
    began_with: Timeline
    known: TableProgress
    table_keys: Mapping[str, str]

    @classmethod
    def begin(cls, table: OpenTable, identity: str, timeline: Timeline) -> _Edit:
        """Of a table whose timeline was just loaded.

        Raises:
            WriterPending: Apache Hudi's streamer may be at work, and its place is to change.
            InvalidConfig: the table has no commit yet.
            Refused: a restore is pending.
        """
        table.refresh(timeline)
        check_no_restore(timeline)
        _check_no_other_engine(table, timeline, identity)
        newest = table.newest_metadata()
        if newest is None:
            message = f"{table.location.url} has no commit yet; name the offsets in source.starting"
            raise InvalidConfig(message)
        table_keys = {k: v for k, v in newest.extra_metadata.items() if k in _TABLE_KEYS}
        known = table_progress_of(table, timeline, skips_damaged=True)
        return cls(table, identity, timeline, known, table_keys)

    def plan(self, checkpoint: KafkaCheckpoint | None) -> CheckpointPlan:
        """The change, from what was known as it began."""
        return plan_checkpoint(self.known.streamers.get(self.identity), checkpoint)

    def metadata(self, commit: str, checkpoint: KafkaCheckpoint | None) -> CommitMetadata:
        """Metadata of the commit that sets ``checkpoint``."""
        before = self.known.streamers.get(self.identity)
        plan = self.plan(checkpoint)
        progress = Progress(
            plan.checkpoint,
            commit,
            topic_id=plan.topic_id,
            applied={} if before is None else before.applied,
        )
        known = self.known.with_progress(self.identity, progress)
        extra_metadata = {**self.table_keys, **encode_progress(known, self.identity)}
        return CommitMetadata(extra_metadata=extra_metadata)

    def check(self, timeline: Timeline) -> None:
        """Pass if nothing that completed since the beginning stands against the change.

        Raises:
            WriterPending: see ``begin``.
            WriteConflict: the streamer went on, or the table got other columns.
        """
        _check_no_other_engine(self.table, timeline, self.identity)
        since = set(timeline.completed(*COMMITS)) - set(self.began_with.completed(*COMMITS))
        if any(self._stands_against(commit) for commit in since):
            message = (
                f"{self.table.location.url} was read further, or got other columns meanwhile; "
                "look, and try again"
            )
            raise WriteConflict(message)

    def _stands_against(self, commit: Instant) -> bool:
        """Whether it moved the streamer, or changed what we say of the table.

        In layout 1 any does: it may have completed in the second up to which we say that all is
        known.
        """
        metadata = self.table.store.read_commit(commit)
        extra = metadata.extra_metadata
        progress = newest_progress([(commit, extra)], self.identity)
        is_step = progress is not None and progress.commit == commit.requested_at
        is_change = metadata.may_change_schema and any(
            extra.get(key, text) != text for key, text in self.table_keys.items()
        )
        return commit.is_legacy or is_step or is_change


def _commit_or_withdraw(
    access: TableContext,
    transaction: Transaction,
    metadata: CommitMetadata,
    check: Callable[[Timeline], None],
) -> Instant:
    """Complete the commit, or leave nothing of it; in doubt (``OutcomeUnknown``), all of it."""
    try:
        completed, _ = transaction.commit(metadata, check)
    except OutcomeUnknown:
        raise
    except (WriterPending, WriteConflict, DamagedCheckpoint, LockTimeout):
        access.timeline.withdraw(transaction.instant)
        transaction.cancel()
        raise
    except HudiError:
        # The metadata table may have been told of it by now.
        with suppress(HudiError):
            roll_back(access, transaction.instant)
        transaction.leave()
        raise
    return completed


def _check_no_other_engine(table: OpenTable, timeline: Timeline, identity: str) -> None:
    """Only the default streamer can be Apache Hudi's; writers of this project name themselves."""
    if identity != DEFAULT_IDENTITY:
        return
    for pending in table.store.pending_writes(timeline):
        if pending.state is State.REQUESTED or not _is_ours(table, pending):
            raise WriterPending(table.location.url, pending.requested_at)


def _is_ours(table: OpenTable, inflight: Instant) -> bool:
    try:
        return keys.WRITER_ID in table.store.read_commit(inflight).extra_metadata
    except CorruptData:
        return False
