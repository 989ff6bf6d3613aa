"""Computes starts, lost ranges and lag from offsets, without I/O.

Each partition is handled separately, so a loss in one partition does not affect the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from checkpoints.checkpoint import KafkaCheckpoint
from sinks.audit import OffsetGap

#: Where to continue if a partition lacks the wanted offset: at its beginning or at its end.
Fallback: TypeAlias = Literal["earliest", "latest"]

#: The start of a first run: the beginning or the end of all partitions, or these offsets.
Starting: TypeAlias = Literal["earliest", "latest"] | Mapping[int, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of a partition: its first offset, and the offset after its last one."""

    earliest: int
    end: int


@dataclass(frozen=True, slots=True)
class LostRange:
    """A range of offsets that one partition has lost, and the offset to continue at.

    Attributes:
        partition: the number of the partition.
        wanted: the offset at which the table's checkpoint continues.
        available: the offsets of the partition; None if the partition no longer exists.
        resumes_at: the offset to continue at; None if the partition no longer exists.
        is_recreated: whether the topic was created again, so that the offsets are not comparable.
    """

    partition: int
    wanted: int
    available: OffsetRange | None
    resumes_at: int | None
    is_recreated: bool = False

    @property
    def count(self) -> int | None:
        """The number of skipped offsets; None if it is not known."""
        if self.available is None or self.is_recreated or self.wanted > self.available.end:
            return None
        return (self.resumes_at or 0) - self.wanted

    def __str__(self) -> str:
        if self.available is None:
            return _without_partition(self.partition, self.wanted)
        if self.is_recreated:
            return (
                f"partition {self.partition} was created again and ends at "
                f"{self.available.end} (next offset was {self.wanted})"
            )
        if self.wanted < self.available.earliest:
            return _without_records(self.partition, self.wanted, self.resumes_at or 0)
        return (
            f"partition {self.partition} ends at {self.available.end}, before offset "
            f"{self.wanted} (was the topic created again?)"
        )

    def facts(self, topic: str) -> dict[str, object]:
        """Return the facts for programs, such as the first lost offset and where to resume."""
        return {
            "topic": topic,
            "partition": self.partition,
            "from": self.wanted,
            "to": self.resumes_at,
            "count": self.count,
        }


def describe_facts(lost: Mapping[str, object]) -> str:
    """Describe a lost range of which only the facts are known (``LostRange.facts``)."""
    partition, begin, resumes_at = lost["partition"], lost["from"], lost["to"]
    if not isinstance(resumes_at, int):
        return _without_partition(partition, begin)
    if lost["count"] is None:  # the offset is not one of the topic that exists now
        return f"partition {partition} has no offset {begin}, and is read from offset {resumes_at}"
    return _without_records(partition, begin, resumes_at)


def _without_partition(partition: object, begin: object) -> str:
    return f"partition {partition} no longer exists (next offset: {begin})"


def _without_records(partition: object, begin: object, resumes_at: int) -> str:
    return f"partition {partition} lost offsets {begin} to {resumes_at - 1} (deleted by retention?)"


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a run.

    Attributes:
        checkpoint: an offset for every partition of the topic.
        lost: the lost ranges that the run skips.
        topic_id: Kafka's id of the topic; "" if the broker does not return it.
        needs_commit: whether a later start could resolve to other offsets, so that records would be
            skipped silently. If so, the table must record this start before any record is read.
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
    """Return the start of the first run; unnamed partitions start at their earliest offset.

    Args:
        topic: the name of the topic.
        available: the offsets of each partition.
        starting: the value of ``source.starting_offsets``. The caller has checked that the topic
            has these partitions.
        fallback: where a partition starts if it does not have the offset.
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
    """Return the start after ``checkpoint``; new partitions start at their earliest offset.

    Args:
        checkpoint: the table's checkpoint.
        available: the offsets of each partition.
        fallback: where a partition continues if it does not have the offset.
        is_recreated: whether the topic was created again, so that no partition has the offset.
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


def newest_offsets(available: Mapping[int, OffsetRange], count: int) -> dict[int, int]:
    """Return the offsets at which the newest ``count`` offsets of a topic begin.

    The partitions have equal shares of ``count``; a partition with fewer offsets leaves the rest of
    its share to larger ones.

    Args:
        available: the offsets of each partition.
        count: the number of offsets of all partitions together, or more than there are.
    """
    begins, others = dict[int, int](), len(available)
    for number, held in sorted(available.items(), key=lambda one: one[1].end - one[1].earliest):
        share = min(held.end - held.earliest, count // others)
        begins[number] = held.end - share
        count, others = count - share, others - 1
    return begins


def lost_in(
    gaps: Sequence[OffsetGap], available: Mapping[int, OffsetRange]
) -> tuple[list[LostRange], list[OffsetGap]]:
    """Split gaps at their partition's earliest offset; return the lost parts, and the others.

    Args:
        gaps: ranges of offsets in a batch at which no record was read.
        available: the offsets of each partition after the batch was read.
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
    """Count the unread offsets of each partition, including offsets without a record."""
    return {
        partition: held.end
        - min(held.end, max(held.earliest, checkpoint.offsets.get(partition, held.earliest)))
        for partition, held in sorted(available.items())
    }


def _holds(available: OffsetRange | None, offset: int) -> bool:
    return available is not None and available.earliest <= offset <= available.end


def _edge(held: OffsetRange, fallback: Fallback) -> int:
    return held.earliest if fallback == "earliest" else held.end
