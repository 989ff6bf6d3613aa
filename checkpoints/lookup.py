"""Finds the checkpoint to resume from: the newest one that any completed commit records.

``lakemark.transaction.streamer_progress`` defines which commits count. This module uses it with
the positions of sources.
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
    """Find the newest progress of one streamer; return None if no commit records any.

    Commits are read from the newest backwards, as far as needed. If no active commit records the
    progress, the archive is read. This can happen because other writers do not copy checkpoints to
    their commits, so the last commit that records one may have been archived.

    Raises:
        DamagedCheckpoint: the newest checkpoint is empty or unreadable.
        SnapshotChanged: the archive was rewritten while it was read; call this again.
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
    """Return the progress of one streamer; None if no commit records any. See ``find_newest``.

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
    """Return the progress of every streamer, and the time up to which this progress is complete.

    Args:
        commits: the commits of the table.
        is_in_effect: returns whether a commit counts.
        wanted: the streamer that the caller needs; commits are read only as far back as necessary.
        skips_damaged: whether a commit that cannot be read is skipped.

    Raises:
        DamagedCheckpoint: a commit that may record the newest progress cannot be read.
    """
    newest, as_of = find_newest(
        commits, parse_text, is_in_effect, wanted, skips_damaged=skips_damaged
    )
    return TableProgress({identity: found.progress for identity, found in newest.items()}, as_of)
