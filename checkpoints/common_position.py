"""Finds commits of two tables at which a streamer of each had read the same records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.commit_keys import parse_text
from checkpoints.position import Position
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY, progress_as_of_commits


@dataclass(frozen=True, slots=True)
class ReachedPosition:
    """The last commit of a table as of which a streamer had read up to a position.

    Attributes:
        position: the position.
        commit: the commit. As of its requested time, the table contains the records up to the
            position, and no later ones.
    """

    position: Position
    commit: Instant


@dataclass(frozen=True, slots=True)
class CommonPosition:
    """A position that two tables have reached.

    Attributes:
        old: the commit of the old table.
        new: the commit of the new table.
    """

    old: ReachedPosition
    new: ReachedPosition

    @property
    def position(self) -> Position:
        """The position, as the old table records it."""
        return self.old.position


def reached_positions(table: OpenTable, identity: str = DEFAULT_IDENTITY) -> list[ReachedPosition]:
    """Return the positions that the active timeline of a table records, the newest first.

    Args:
        table: the table.
        identity: the streamer, ``source.checkpoint_id`` of its pipeline.
    """
    history = progress_as_of_commits(table.store, table.timeline, parse_text, identity)
    found: list[ReachedPosition] = []
    for commit, progress in history:
        if progress.checkpoint is None:  # after a reset
            continue
        if found and is_same(found[-1].position, progress.checkpoint):
            found.pop()
        found.append(ReachedPosition(progress.checkpoint, commit))
    return found[::-1]


def find_common(
    old: Iterable[ReachedPosition], new: Iterable[ReachedPosition]
) -> CommonPosition | None:
    """Return the newest position of the old table that the new table has, too; None without one.

    Args:
        old: the positions of the old table, the newest first.
        new: the positions of the new table, the newest first.
    """
    reached = list(new)
    for left in old:
        for right in reached:
            if is_same(left.position, right.position):
                return CommonPosition(left, right)
    return None


def is_same(one: Position, other: Position) -> bool:
    """Return whether the same records precede two positions.

    A partition that a position of Kafka does not contain has the same meaning as offset 0.
    """
    if isinstance(one, KafkaCheckpoint) and isinstance(other, KafkaCheckpoint):
        return one.topic == other.topic and _read(one) == _read(other)
    return one == other


def _read(checkpoint: KafkaCheckpoint) -> dict[int, int]:
    return {partition: offset for partition, offset in checkpoint.offsets.items() if offset}
