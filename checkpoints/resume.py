"""The checkpoint to resume from: the newest one that any commit records for a streamer."""

from __future__ import annotations

from checkpoints.commit_keys import parse_text
from checkpoints.progress import Progress, TableProgress
from lakemark.transaction.streamer_progress import (
    DEFAULT_IDENTITY,
    Commits,
    IsInEffect,
    find_newest,
)


def _every_commit(requested_at: str) -> bool:
    return True


def newest_progress(
    commits: Commits,
    identity: str = DEFAULT_IDENTITY,
    is_in_effect: IsInEffect = _every_commit,
) -> Progress | None:
    """The progress of one streamer, or None if no commit records any; see ``find_newest``.

    Raises:
        DamagedCheckpoint: the newest checkpoint is empty or unreadable.
    """
    return newest_table_progress(commits, is_in_effect, identity).streamers.get(identity)


def newest_table_progress(
    commits: Commits,
    is_in_effect: IsInEffect = _every_commit,
    wanted: str | None = None,
    *,
    skips_damaged: bool = False,
) -> TableProgress:
    """The progress of every streamer, and up to when it is known.

    Args:
        commits: of the table.
        is_in_effect: which commits count.
        wanted: the streamer that matters; commits are read only as far back as it needs.
        skips_damaged: whether commits that cannot be read are skipped.

    Raises:
        DamagedCheckpoint: a commit that may record the newest progress cannot be read.
    """
    newest, as_of = find_newest(
        commits, parse_text, is_in_effect, wanted, skips_damaged=skips_damaged
    )
    return TableProgress({identity: found.progress for identity, found in newest.items()}, as_of)
