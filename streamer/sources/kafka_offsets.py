"""Arithmetic on offsets: where a run starts, what was lost, how far it is behind. No I/O.

Each partition is judged by itself: what was lost in one never moves another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from checkpoints.checkpoint import KafkaCheckpoint
from sinks.audit import OffsetGap

#: Which end of a partition to go on at.
Fallback: TypeAlias = Literal["earliest", "latest"]

#: Where a first run starts: at an end of all partitions, or at these offsets.
Starting: TypeAlias = Literal["earliest", "latest"] | Mapping[int, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What a partition holds: the first offset, and the one after the last."""

    earliest: int
    end: int


@dataclass(frozen=True, slots=True)
class LostRange:
    """Where one partition cannot go on, and where it goes on instead.

    Attributes:
        partition: of the topic.
        wanted: the next offset that the table asks for.
        available: what the partition holds; None when it is gone.
        resumes_at: the offset to go on at; None when the partition is gone.
        is_recreated: whether the offsets are those of another topic of the same name.
    """

    partition: int
    wanted: int
    available: OffsetRange | None
    resumes_at: int | None
    is_recreated: bool = False

    @property
    def count(self) -> int | None:
        """Offsets that are passed over; None where the topic cannot tell how many."""
        if self.available is None or self.is_recreated or self.wanted > self.available.end:
            return None
        return (self.resumes_at or 0) - self.wanted

    def __str__(self) -> str:
        if self.available is None:
            return f"partition {self.partition} is gone (offset {self.wanted} is next)"
        if self.is_recreated:
            return (
                f"partition {self.partition} was created again and ends at "
                f"{self.available.end} (offset {self.wanted} was next)"
            )
        if self.wanted < self.available.earliest:
            return (
                f"partition {self.partition} lost offsets {self.wanted} to "
                f"{(self.resumes_at or 0) - 1} (deleted by retention?)"
            )
        return (
            f"partition {self.partition} ends at {self.available.end}, before offset "
            f"{self.wanted} (was the topic created again?)"
        )

    def facts(self, topic: str) -> dict[str, object]:
        """The same for programs: ``from`` is the first offset lost, ``to`` the one to go on at."""
        return {
            "topic": topic,
            "partition": self.partition,
            "from": self.wanted,
            "to": self.resumes_at,
            "count": self.count,
        }


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run starts.

    Attributes:
        checkpoint: every partition of the topic.
        lost: what it has to leave out.
        topic_id: by which Kafka knows this very topic; "" when the broker does not say.
        needs_commit: whether the same question may get another answer later, so that records
            would be skipped silently. The table must record such a start before anything is read.
    """

    checkpoint: KafkaCheckpoint
    lost: tuple[LostRange, ...] = ()
    topic_id: str = ""
    needs_commit: bool = False


def first_start(
    topic: str,
    available: Mapping[int, OffsetRange],
    starting: Starting,
    fallback: Fallback = "earliest",
) -> Start:
    """Start of a table that has read nothing; partitions not named start at their earliest.

    Args:
        topic: name of the topic.
        available: what each of its partitions holds.
        starting: as in ``source.starting_offsets``; the caller has checked that the topic has
            these partitions.
        fallback: where a partition starts that does not hold the offset it is to start at.
    """
    if starting == "earliest":
        offsets = {p: held.earliest for p, held in available.items()}
    elif starting == "latest":
        offsets = {p: held.end for p, held in available.items()}
    else:
        offsets = {p: starting.get(p, held.earliest) for p, held in available.items()}
    return next_start(KafkaCheckpoint(topic, offsets), available, fallback)


def next_start(
    checkpoint: KafkaCheckpoint,
    available: Mapping[int, OffsetRange],
    fallback: Fallback = "earliest",
    *,
    is_recreated: bool = False,
) -> Start:
    """Start of a table that has read up to ``checkpoint``; new partitions from their earliest.

    Args:
        checkpoint: what it has read.
        available: what each partition of the topic holds.
        fallback: where a partition goes on that does not hold the offset it is to go on at.
        is_recreated: whether the topic is another one of the same name: then none does.
    """
    lost = tuple(
        LostRange(p, wanted, held, None if held is None else _edge(held, fallback), is_recreated)
        for p, wanted in checkpoint.offsets.items()
        for held in [available.get(p)]
        if is_recreated or not _holds(held, wanted)
    )
    offsets = {p: checkpoint.offsets.get(p, held.earliest) for p, held in available.items()}
    moved = {one.partition: one.resumes_at for one in lost if one.resumes_at is not None}
    return Start(
        KafkaCheckpoint(checkpoint.topic, {**offsets, **moved}), lost, needs_commit=bool(lost)
    )


def lost_in(
    gaps: Sequence[OffsetGap], available: Mapping[int, OffsetRange]
) -> tuple[list[LostRange], list[OffsetGap]]:
    """The parts of the gaps of a batch below the earliest offset, and the other parts.

    Args:
        gaps: ranges of offsets at which no record was read.
        available: what each partition holds after the batch was read.
    """
    lost, others = list[LostRange](), list[OffsetGap]()
    for gap in gaps:
        held = available.get(gap.partition)
        lost_up_to = gap.end if held is None else min(gap.end, held.earliest)
        if gap.begin < lost_up_to:
            resumes_at = None if held is None else lost_up_to
            lost.append(LostRange(gap.partition, gap.begin, held, resumes_at))
        if lost_up_to < gap.end:
            others.append(replace(gap, begin=max(gap.begin, lost_up_to)))
    return lost, others


def lag(checkpoint: KafkaCheckpoint, available: Mapping[int, OffsetRange]) -> dict[int, int]:
    """Offsets of each partition that are there and not read (gaps count as records)."""
    return {
        partition: held.end
        - min(held.end, max(held.earliest, checkpoint.offsets.get(partition, held.earliest)))
        for partition, held in sorted(available.items())
    }


def _holds(available: OffsetRange | None, offset: int) -> bool:
    return available is not None and available.earliest <= offset <= available.end


def _edge(held: OffsetRange, fallback: Fallback) -> int:
    return held.earliest if fallback == "earliest" else held.end
