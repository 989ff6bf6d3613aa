"""The newest checkpoint, for tests of the lookup."""

from __future__ import annotations

from checkpoints.lookup import newest_progress
from checkpoints.position import Position
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY, Commits


def newest_checkpoint(commits: Commits, identity: str = DEFAULT_IDENTITY) -> Position | None:
    """Return the newest checkpoint; None if no commit has one, or if it was reset."""
    progress = newest_progress(commits, identity)
    return None if progress is None else progress.checkpoint
