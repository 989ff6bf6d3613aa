"""Plan a change of a checkpoint that a user sets or resets, for each partition. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """One partition's next offset, before the change and after it.

    Attributes:
        topic: of the partition.
        partition: its number.
        before: next offset that the table records; None if it records none for this partition.
        after: next offset after the change; None if the checkpoint does not list the partition
            after it.
    """

    topic: str
    partition: int
    before: int | None
    after: int | None

    @property
    def read_again(self) -> int | None:
        """Offsets that the next run reads once more; None if it cannot be known."""
        return self._distance(self.after, self.before)

    @property
    def skipped(self) -> int | None:
        """Offsets that no run reads; None if it cannot be known."""
        return self._distance(self.before, self.after)

    @staticmethod
    def _distance(low: int | None, high: int | None) -> int | None:
        return None if low is None or high is None else max(high - low, 0)


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """A change of one streamer's checkpoint.

    Attributes:
        checkpoint: the checkpoint to record; None for a reset.
        topic_id: Kafka's id of the topic that these offsets belong to; "" if it is not known.
        moves: every partition of the checkpoints before and after the change.
    """

    checkpoint: KafkaCheckpoint | None
    topic_id: str
    moves: tuple[PartitionMove, ...]


def plan_checkpoint(known: Progress | None, wanted: KafkaCheckpoint | None) -> CheckpointPlan:
    """Plan a change; partitions of the same topic that ``wanted`` does not name keep their offsets.

    Kept offsets belong to the topic with the known id, so the plan keeps the id, too. If all
    partitions are named, the topic may have been created again, so the plan has no id.

    Args:
        known: the progress of the streamer; None if there is none.
        wanted: offsets to set; None to reset.
    """
    before = None if known is None else known.checkpoint
    if wanted is None:
        return CheckpointPlan(None, "", _moves(before, None))
    is_same_topic = before is not None and before.topic == wanted.topic
    kept = before.offsets if before is not None and is_same_topic else {}
    after = KafkaCheckpoint(wanted.topic, {**kept, **wanted.offsets})
    keeps_some = not kept.keys() <= wanted.offsets.keys()
    topic_id = known.topic_id if known is not None and keeps_some else ""
    return CheckpointPlan(after, topic_id, _moves(before, after))


def _moves(
    before: KafkaCheckpoint | None, after: KafkaCheckpoint | None
) -> tuple[PartitionMove, ...]:
    old, new = _by_partition(before), _by_partition(after)
    return tuple(PartitionMove(*key, old.get(key), new.get(key)) for key in sorted(old | new))


def _by_partition(checkpoint: KafkaCheckpoint | None) -> dict[tuple[str, int], int]:
    if checkpoint is None:
        return {}
    return {(checkpoint.topic, p): offset for p, offset in checkpoint.offsets.items()}
