"""Plans the setting or reset of a checkpoint, for each partition, without I/O."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.position import Position
from checkpoints.progress import Progress


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """The next offset of one partition before and after the change.

    Attributes:
        topic: the topic of the partition.
        partition: the number of the partition.
        before: the next offset that the table records; None if it records none.
        after: the next offset after the change; None if the new checkpoint does not list the
            partition.
    """

    topic: str
    partition: int
    before: int | None
    after: int | None

    @property
    def read_again(self) -> int | None:
        """The number of offsets that the next run reads again; None if it is not known."""
        return self._distance(self.after, self.before)

    @property
    def skipped(self) -> int | None:
        """The number of offsets that no run will read; None if it is not known."""
        return self._distance(self.before, self.after)

    @staticmethod
    def _distance(low: int | None, high: int | None) -> int | None:
        return None if low is None or high is None else max(high - low, 0)


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """A change of one streamer's checkpoint.

    Attributes:
        checkpoint: the checkpoint to record; None for a reset.
        topic_id: Kafka's id of the topic to which the offsets belong; "" if it is not known.
        moves: all partitions of the checkpoints before and after the change.
        dropped: the recorded position in another source than Kafka; None if there is none.
    """

    checkpoint: KafkaCheckpoint | None
    topic_id: str
    moves: tuple[PartitionMove, ...]
    dropped: Position | None = None


def plan_checkpoint(known: Progress | None, wanted: KafkaCheckpoint | None) -> CheckpointPlan:
    """Plan a change. Partitions of the same topic that ``wanted`` does not name keep their offsets.

    Kept offsets belong to the topic whose id is known, so the plan also keeps the id. If no offset
    is kept, the topic may have been created again, so the plan has no id.

    Args:
        known: the progress of the streamer; None if there is none.
        wanted: the offsets to set; None to reset.
    """
    recorded = None if known is None else known.checkpoint
    before = recorded if isinstance(recorded, KafkaCheckpoint) else None
    dropped = None if before is not None else recorded
    if wanted is None:
        return CheckpointPlan(None, "", _moves(before, None), dropped)
    is_same_topic = before is not None and before.topic == wanted.topic
    kept = before.offsets if before is not None and is_same_topic else {}
    after = KafkaCheckpoint(wanted.topic, {**kept, **wanted.offsets})
    keeps_some = not kept.keys() <= wanted.offsets.keys()
    topic_id = known.topic_id if known is not None and keeps_some else ""
    return CheckpointPlan(after, topic_id, _moves(before, after), dropped)


def _moves(
    before: KafkaCheckpoint | None, after: KafkaCheckpoint | None
) -> tuple[PartitionMove, ...]:
    old, new = _by_partition(before), _by_partition(after)
    return tuple(PartitionMove(*key, old.get(key), new.get(key)) for key in sorted(old | new))


def _by_partition(checkpoint: KafkaCheckpoint | None) -> dict[tuple[str, int], int]:
    if checkpoint is None:
        return {}
    return {(checkpoint.topic, p): offset for p, offset in checkpoint.offsets.items()}
