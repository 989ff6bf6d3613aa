"""Sets or resets the checkpoint of a streamer, with one commit that has no files.

Pipelines of this project may run at the same time. The pipeline whose checkpoint changes publishes
nothing more until it has restarted from the new checkpoint. Other pipelines are not affected.
Apache Hudi's streamer would not notice the change. So the change is refused while that streamer may
be running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.lookup import find_table_progress, newest_progress
from checkpoints.plan import CheckpointPlan, plan_checkpoint
from checkpoints.progress import Progress, TableProgress, check_identity, encode_progress
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

#: Metadata that every commit copies, because the next writer reads schema and buckets there.
_TABLE_KEYS = (keys.SCHEMA, keys.BUCKET_COUNT, keys.BUCKET_HASH_FIELDS)


class WriterPending(Permanent):
    """An instant of another engine is pending, and its checkpoint could replace the new one."""

    def __init__(self, table: str, instant: str) -> None:
        super().__init__(
            f"instant {instant} of another engine is pending in {table}; the engine may be the "
            "streamer whose checkpoint should change. Stop that streamer. If it has died, start "
            "and stop it again, so that it rolls its instant back"
        )
        self.table, self.instant = table, instant


def plan_edit(
    table: OpenTable, identity: str, checkpoint: KafkaCheckpoint | None
) -> CheckpointPlan:
    """Plan the change that ``write_checkpoint`` would make now, and write nothing.

    Raises:
        WriterPending, InvalidConfig, Refused: as for ``write_checkpoint``.
    """
    check_identity(identity)
    return _CheckpointEdit.begin(table, identity, table.store.load()).plan(checkpoint)


def write_checkpoint(
    table: OpenTable, identity: str, checkpoint: KafkaCheckpoint | None
) -> Instant:
    """Record the checkpoint at which the streamer's next run starts.

    Args:
        table: the table.
        identity: the identity of the streamer.
        checkpoint: the offsets to set; other partitions of the same topic keep their offsets. None
            deletes the checkpoint, so that the next run starts at ``source.starting_offsets``.

    Returns:
        The commit that records the checkpoint.

    Raises:
        WriterPending: Apache Hudi's streamer may be running, and its checkpoint would change.
        InvalidConfig: the identity is not valid, or the table has no commit yet.
        Refused: a restore is pending.
        WriteConflict: the streamer committed in between, or the columns of the table changed;
            nothing was published.
    """
    check_identity(identity)
    action = Action.DELTA_COMMIT if table.properties.is_merge_on_read else Action.COMMIT
    decide = partial(_CheckpointEdit.begin, table, identity)
    transaction, edit = Transaction.begin(table.context, action, decide)
    metadata = edit.metadata(transaction.instant.requested_at, checkpoint)
    completed = _commit_or_withdraw(table.context, transaction, metadata, edit.check)
    table.refresh()
    return completed


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckpointEdit:
    """A change of one streamer's checkpoint, and the table as it was when the change began.

    Attributes:
        table: the table.
        identity: the identity of the streamer.
        began_with: the timeline from which the change was planned.
        known: the progress of all streamers.
        table_keys: metadata that the commit copies from the previous commit.
    """

    table: OpenTable
    identity: str
    began_with: Timeline
    known: TableProgress
    table_keys: Mapping[str, str]

    @classmethod
    def begin(cls, table: OpenTable, identity: str, timeline: Timeline) -> _CheckpointEdit:
        """Begin the change from a timeline that was just loaded.

        Raises:
            WriterPending: Apache Hudi's streamer may be running, and its checkpoint would change.
            InvalidConfig: the table has no commit yet.
            Refused: a restore is pending.
        """
        table.refresh(timeline)
        check_no_restore(timeline)
        _check_no_other_engine(table, timeline, identity)
        newest = table.newest_metadata()
        if newest is None:
            message = (
                f"{table.location.url} has no commit yet; name the offsets in "
                "source.starting_offsets"
            )
            raise InvalidConfig(message)
        table_keys = {k: v for k, v in newest.extra_metadata.items() if k in _TABLE_KEYS}
        known = find_table_progress(table, timeline, skips_damaged=True)
        return cls(
            table=table, identity=identity, began_with=timeline, known=known, table_keys=table_keys
        )

    def plan(self, checkpoint: KafkaCheckpoint | None) -> CheckpointPlan:
        """Plan the change, based on the progress that was known when the change began."""
        return plan_checkpoint(self.known.streamers.get(self.identity), checkpoint)

    def metadata(self, commit: str, checkpoint: KafkaCheckpoint | None) -> CommitMetadata:
        """Build the metadata of the commit that records ``checkpoint``."""
        before = self.known.streamers.get(self.identity)
        plan = self.plan(checkpoint)
        progress = Progress(
            checkpoint=plan.checkpoint,
            commit=commit,
            topic_id=plan.topic_id,
            applied={} if before is None else before.applied,
        )
        known = self.known.with_progress(self.identity, progress)
        extra_metadata = {**self.table_keys, **encode_progress(known, self.identity)}
        return CommitMetadata(extra_metadata=extra_metadata)

    def check(self, timeline: Timeline) -> None:
        """Check that no commit since the change began conflicts with it.

        Raises:
            WriterPending: see ``begin``.
            WriteConflict: the streamer committed, or the columns of the table changed.
        """
        _check_no_other_engine(self.table, timeline, self.identity)
        since = set(timeline.completed(*COMMITS)) - set(self.began_with.completed(*COMMITS))
        if any(self._conflicts_with(commit) for commit in since):
            message = (
                f"{self.table.location.url}: the streamer has committed, or the columns have "
                "changed, since the change was planned; plan it again"
            )
            raise WriteConflict(message)

    def _conflicts_with(self, commit: Instant) -> bool:
        """Return whether a commit recorded progress of this streamer, or changed the copied keys.

        In timeline layout 1, every commit conflicts, because completion times have whole seconds. A
        commit that completed in the second in which the progress was read may not be included.
        """
        metadata = self.table.store.read_commit(commit)
        extra = metadata.extra_metadata
        progress = newest_progress([(commit, extra)], self.identity)
        is_progress = progress is not None and progress.commit == commit.requested_at
        is_change = metadata.may_change_schema and any(
            extra.get(key, text) != text for key, text in self.table_keys.items()
        )
        return commit.is_legacy or is_progress or is_change


def _commit_or_withdraw(
    context: TableContext,
    transaction: Transaction,
    metadata: CommitMetadata,
    check: Callable[[Timeline], None],
) -> Instant:
    """Complete the commit, or remove it. If the outcome is unknown, keep all its files."""
    try:
        completed, _ = transaction.commit(metadata, check)
    except OutcomeUnknown:
        raise
    except (WriterPending, WriteConflict, DamagedCheckpoint, LockTimeout):
        context.timeline.withdraw(transaction.instant)
        transaction.cancel()
        raise
    except HudiError:
        # The metadata table may already contain the commit.
        with suppress(HudiError):
            roll_back(context, transaction.instant)
        transaction.stop_heartbeat()
        raise
    return completed


def _check_no_other_engine(table: OpenTable, timeline: Timeline, identity: str) -> None:
    """Refuse the change if Apache Hudi's streamer may be running.

    That streamer always has the default identity. Commits of this project have a writer id.
    """
    if identity != DEFAULT_IDENTITY:
        return
    for pending in table.store.pending_writes(timeline):
        if pending.state is State.REQUESTED or not _is_of_this_project(table, pending):
            raise WriterPending(table.location.url, pending.requested_at)


def _is_of_this_project(table: OpenTable, inflight: Instant) -> bool:
    try:
        return keys.WRITER_ID in table.store.read_commit(inflight).extra_metadata
    except CorruptData:
        return False
