"""Arithmetic on offsets: where a run starts, what was lost, how far it is behind. No I/O.

Each partition is judged by itself: what was lost in one never moves another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from checkpoints.checkpoint import KafkaCheckpoint


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What a partition holds: the first offset, and the one after the last."""

    earliest: int
    end: int


@dataclass(frozen=True, slots=True)
class LostRange:
    """Where one partition cannot go on.

    Attributes:
        partition: of the topic.
        wanted: the next offset that the table asks for.
        available: what the partition holds; None when it is gone.
    """

    partition: int
    wanted: int
    available: OffsetRange | None

    def __str__(self) -> str:
        if self.available is None:
            return f"partition {self.partition} is gone (offset {self.wanted} is next)"
        if self.wanted < self.available.earliest:
            return (
                f"partition {self.partition} lost offsets {self.wanted} to "
                f"{self.available.earliest - 1} (deleted by retention?)"
            )
        return (
            f"partition {self.partition} ends at {self.available.end}, before offset "
            f"{self.wanted} (was the topic created again?)"
        )


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run starts; ``lost`` lists what it has to leave out."""

    checkpoint: KafkaCheckpoint
    lost: tuple[LostRange, ...] = ()


def first_start(
    topic: str,
    available: Mapping[int, OffsetRange],
    starting: Literal["earliest", "latest"] | Mapping[int, int],
) -> Start:
    """Start of a table that has read nothing; partitions not named start at their earliest.

    Args:
        topic: name of the topic.
        available: what each of its partitions holds.
        starting: as in ``source.starting``; partitions the topic lacks are the caller's error.
    """
    if starting == "earliest":
        offsets = {p: held.earliest for p, held in available.items()}
    elif starting == "latest":
        offsets = {p: held.end for p, held in available.items()}
    else:
        offsets = {p: starting.get(p, held.earliest) for p, held in available.items()}
    return next_start(KafkaCheckpoint(topic, offsets), available)


def next_start(checkpoint: KafkaCheckpoint, available: Mapping[int, OffsetRange]) -> Start:
    """Start of a table that has read up to ``checkpoint``; new partitions from their earliest."""
    lost = tuple(
        LostRange(partition, wanted, available.get(partition))
        for partition, wanted in checkpoint.offsets.items()
        if not _holds(available.get(partition), wanted)
    )
    unreadable = {one.partition for one in lost}
    offsets = {
        p: held.earliest if p in unreadable else checkpoint.offsets.get(p, held.earliest)
        for p, held in available.items()
    }
    return Start(KafkaCheckpoint(checkpoint.topic, offsets), lost)


def lost_between(
    start: KafkaCheckpoint, end: KafkaCheckpoint, available: Mapping[int, OffsetRange]
) -> tuple[LostRange, ...]:
    """Offsets from ``start`` up to ``end`` that the topic no longer holds."""
    return tuple(
        LostRange(partition, wanted, OffsetRange(min(held.earliest, stop), held.end))
        for partition, stop in end.offsets.items()
        if (held := available.get(partition)) is not None
        and (wanted := start.offsets.get(partition, 0)) < min(held.earliest, stop)
    )


def lag(checkpoint: KafkaCheckpoint, available: Mapping[int, OffsetRange]) -> dict[int, int]:
    """Offsets of each partition that are there and not read (gaps count as records)."""
    return {
        partition: held.end
        - min(held.end, max(held.earliest, checkpoint.offsets.get(partition, held.earliest)))
        for partition, held in sorted(available.items())
    }


def _holds(available: OffsetRange | None, offset: int) -> bool:
    return available is not None and available.earliest <= offset <= available.end
