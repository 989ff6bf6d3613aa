"""Find the checkpoint to resume from: the newest one that any completed commit records.

``lakemark.transaction.streamer_progress`` says which commit counts. Here the checkpoints have the
type of Kafka's.
"""

from __future__ import annotations

from itertools import chain

from checkpoints.commit_keys import parse_text
from checkpoints.progress import Progress, TableProgress
from lakemark.operations.open_table import OpenTable
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.streamer_progress import (
    DEFAULT_IDENTITY,
    Commits,
    IsInEffect,
    active_commits,
    archived_commits,
    find_newest,
    in_effect_on,
    may_lack_archived,
    read_table_progress,
)


def find_progress(
    table: OpenTable, timeline: Timeline, identity: str = DEFAULT_IDENTITY
) -> Progress | None:
    """Find the newest progress of one streamer; None if no commit records any.

    Commits are read from the newest back, as far as needed. If no active commit records progress,
    the archive is read: writers that copy no checkpoints may have caused the last commit that
    records one to be archived.

    Raises:
        DamagedCheckpoint: the newest checkpoint is empty or unreadable.
        SnapshotChanged: the archive was rewritten meanwhile; call again.
        CorruptData: the archive is damaged.
    """
    is_in_effect = in_effect_on(table.store, timeline)
    known = newest_table_progress(active_commits(table.store, timeline), is_in_effect, identity)
    found = known.streamers.get(identity)
    if may_lack_archived(known.as_of, timeline) or (found is None and timeline.has_history):
        commits = chain(active_commits(table.store, timeline), archived_commits(table.store))
        found = newest_progress(commits, identity, is_in_effect)
    return found


def find_table_progress(
    table: OpenTable, timeline: Timeline, *, skips_damaged: bool = False
) -> TableProgress:
    """Find the progress of all streamers; see ``read_table_progress``."""
    return read_table_progress(table.store, timeline, parse_text, skips_damaged=skips_damaged)


def newest_progress(
    commits: Commits,
    identity: str = DEFAULT_IDENTITY,
    is_in_effect: IsInEffect = lambda _: True,
) -> Progress | None:
    """Return the progress of one streamer, or None if no commit records any; see ``find_newest``.

    Raises:
        DamagedCheckpoint: the newest checkpoint is empty or unreadable.
    """
    return newest_table_progress(commits, is_in_effect, identity).streamers.get(identity)


def newest_table_progress(
    commits: Commits,
    is_in_effect: IsInEffect = lambda _: True,
    wanted: str | None = None,
    *,
    skips_damaged: bool = False,
) -> TableProgress:
    """Return the progress of every streamer, and the time up to which it is complete.

    Args:
        commits: of the table.
        is_in_effect: which commits count.
        wanted: the streamer that matters; commits are read only as far back as it needs.
        skips_damaged: whether a commit that cannot be read is skipped.

    Raises:
        DamagedCheckpoint: a commit that may record the newest progress cannot be read.
    """
    newest, as_of = find_newest(
        commits, parse_text, is_in_effect, wanted, skips_damaged=skips_damaged
    )
    return TableProgress({identity: found.progress for identity, found in newest.items()}, as_of)
