"""The plan of a checkpoint change: which offsets move, and to which topic they belong."""

from __future__ import annotations

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.plan import PartitionMove, plan_checkpoint
from checkpoints.progress import Progress

READ = Progress(checkpoint=KafkaCheckpoint("orders", {0: 5, 1: 9}), commit="1", topic_id="id")


def orders(offsets: dict[int, int]) -> KafkaCheckpoint:
    return KafkaCheckpoint("orders", offsets)


@pytest.mark.parametrize(
    ("wanted", "after", "topic_id"),
    [
        (orders({1: 4}), orders({0: 5, 1: 4}), "id"),
        (orders({0: 0, 1: 0}), orders({0: 0, 1: 0}), ""),
        (orders({0: 0, 1: 0, 2: 3}), orders({0: 0, 1: 0, 2: 3}), ""),
        (KafkaCheckpoint("other", {1: 4}), KafkaCheckpoint("other", {1: 4}), ""),
    ],
    ids=str,
)
def test_kept_offsets_stay_those_of_the_topic_that_was_read(
    wanted: KafkaCheckpoint, after: KafkaCheckpoint, topic_id: str
) -> None:
    plan = plan_checkpoint(READ, wanted)
    assert (plan.checkpoint, plan.topic_id) == (after, topic_id)


def test_partitions_of_the_previous_topic_have_no_offset_after_a_change() -> None:
    plan = plan_checkpoint(READ, KafkaCheckpoint("other", {1: 4}))
    assert plan.moves == (
        PartitionMove("orders", 0, 5, None),
        PartitionMove("orders", 1, 9, None),
        PartitionMove("other", 1, None, 4),
    )
    assert {(move.read_again, move.skipped) for move in plan.moves} == {(None, None)}


@pytest.mark.parametrize(
    "known", [None, Progress(checkpoint=None, commit="1")], ids=["none", "reset"]
)
def test_without_known_offsets_only_the_named_partitions_are_set(known: Progress | None) -> None:
    plan = plan_checkpoint(known, orders({1: 4}))
    assert plan.checkpoint == orders({1: 4})
    assert plan.moves == (PartitionMove("orders", 1, None, 4),)
    assert plan_checkpoint(known, None).moves == ()
