"""Where a run goes on: the checkpoint of the newest commit that has one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from checkpoints import codec
from checkpoints.checkpoint import KafkaCheckpoint
from table.model.action import Action
from table.model.instant import Instant


def newest_checkpoint(
    commits: Iterable[tuple[Instant, Mapping[str, str]]],
) -> KafkaCheckpoint | None:
    """The progress of a table, or None when no commit knows of any.

    Delta commits count by completion time, newest first, past those without a checkpoint. A
    compaction or clustering may have taken its checkpoint over when it was planned, so it counts
    as of then: a delta commit completed since is newer, though it was published before.

    Args:
        commits: instants with the extra metadata of their commits, in any order; instants that
            are pending, or that write no rows, are passed over.

    Raises:
        DamagedCheckpoint: the newest checkpoint is empty or unreadable.
    """
    ingest = [(i, extra) for i, extra in commits if i.is_completed and i.action.is_ingest]
    has_delta_commits = any(i.action is Action.DELTA_COMMIT for i, _ in ingest)
    ingest.sort(key=lambda commit: _known_at(commit[0], has_delta_commits), reverse=True)
    for instant, extra in ingest:
        checkpoint = codec.decode(extra, instant.requested_at)
        if checkpoint is not None:
            return checkpoint
    return None


def _known_at(instant: Instant, has_delta_commits: bool) -> str:
    """When the progress that ``instant`` tells of was known.

    Where rows arrive as delta commits, a ``commit`` is a finished compaction (or, once the table
    was turned into copy-on-write, a later batch, whose request follows the last delta commit).
    """
    may_be_service = instant.action is Action.REPLACE_COMMIT or (
        has_delta_commits and instant.action is Action.COMMIT
    )
    if may_be_service or instant.completed_at is None:
        return instant.requested_at
    return instant.completed_at
