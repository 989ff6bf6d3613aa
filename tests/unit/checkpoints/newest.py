"""Where a streamer goes on, as tests of the walk over commits ask for it."""

from __future__ import annotations

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.resume import newest_progress
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY, Commits


def newest_checkpoint(commits: Commits, identity: str = DEFAULT_IDENTITY) -> KafkaCheckpoint | None:
    """None when no commit knows, or it was reset."""
    progress = newest_progress(commits, identity)
    return None if progress is None else progress.checkpoint
