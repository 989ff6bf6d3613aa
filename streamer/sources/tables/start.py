"""Determines where a run starts to read a table; also for ``lakemark doctor``, without Spark."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from checkpoints.position import Position
from checkpoints.table_position import SnapshotRead, TablePosition
from lakemark.operations.change_feed import NEWEST
from streamer.config.table_source import TableSourceConfig
from streamer.sources.kafka_offsets import LostRange
from streamer.sources.tables.errors import ForeignTable, SnapshotNotFinal
from streamer.sources.tables.upstream import Upstream

_LOG = logging.getLogger(__name__)

_SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class TableStart:
    """The start of a run; a ``SourceStart``.

    Attributes:
        checkpoint: how far the table counts as read.
        unread: the number of commits after it, without the snapshot.
        needs_commit: see ``SourceStart``.
        lost: see ``SourceStart``; no changes are ever skipped.
        topic_id: see ``SourceStart``.
    """

    checkpoint: TablePosition
    unread: int
    needs_commit: bool
    lost: tuple[LostRange, ...] = field(default=(), init=False)
    topic_id: str = field(default="", init=False)


def find_start(
    config: TableSourceConfig, checkpoint: Position | None, *, only_snapshot: bool = False
) -> TableStart:
    """Return the start of a run. The first run starts at ``source.start_at``.

    Args:
        config: the settings of the source.
        checkpoint: the position that the table that is written records; None if it records none.
        only_snapshot: whether no later commit is read, so that none need exist.

    Raises:
        ForeignTable: the position belongs to another table, or to another kind of source.
        UnreadChangesLost: unread changes were removed.
        ReadChangesUndone: the last commit that was read, also in part, was undone.
        SnapshotNotFinal: no state of the table can be read yet.
        HudiError: the table cannot be read.
    """
    upstream = Upstream(config)
    if checkpoint is None:
        position = _first_position(config.start_at, upstream)
    else:
        position = _own_position(checkpoint, upstream)
    unread = 0 if only_snapshot else len(upstream.commits_after(position))
    # A later start would find a later newest commit.
    return TableStart(position, unread, checkpoint is None and config.start_at == NEWEST)


def _first_position(start_at: str, upstream: Upstream) -> TablePosition:
    if start_at != _SNAPSHOT:
        return TablePosition(table=upstream.url, after=upstream.feed.find_start(start_at))
    found = upstream.feed.find_snapshot()
    if found is not None:
        read = SnapshotRead(found.as_of)
        return TablePosition(table=upstream.url, after=found.position, snapshot=read)
    if upstream.has_commits:
        raise SnapshotNotFinal(upstream.url)
    return TablePosition(table=upstream.url)


def _own_position(checkpoint: Position, upstream: Upstream) -> TablePosition:
    """Check that a position belongs to the table; a position of Apache Hudi names no table."""
    if not isinstance(checkpoint, TablePosition) or checkpoint.table not in ("", upstream.url):
        raise ForeignTable(upstream.url, str(checkpoint))
    if not checkpoint.table:
        text = "%s: the table that is written has the position of another program, so the commits "
        more = "after %s are read"
        _LOG.warning(text + more, upstream.url, checkpoint.after.completed_at)
    return checkpoint.in_table(upstream.url)
