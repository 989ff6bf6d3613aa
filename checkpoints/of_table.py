"""How far the streamers of a table have read, as its timeline records it."""

from __future__ import annotations

from itertools import chain

from checkpoints.commit_keys import parse_text
from checkpoints.progress import Progress, TableProgress
from checkpoints.resume import newest_progress, newest_table_progress
from lakemark.operations.open_table import OpenTable
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.streamer_progress import (
    DEFAULT_IDENTITY,
    active_commits,
    archived_commits,
    in_effect_on,
    may_lack_archived,
    read_table_progress,
)


def progress_of(
    table: OpenTable, timeline: Timeline, identity: str = DEFAULT_IDENTITY
) -> Progress | None:
    """The newest progress of one streamer; reads commits from the newest back, as far as needed.

    If no active commit records any, the archive is read. Writers that repeat no checkpoints may
    have caused the last commit that did to be archived.

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


def table_progress_of(
    table: OpenTable, timeline: Timeline, *, skips_damaged: bool = False
) -> TableProgress:
    """What the timeline records of all streamers; see ``read_table_progress``."""
    return read_table_progress(table.store, timeline, parse_text, skips_damaged=skips_damaged)
