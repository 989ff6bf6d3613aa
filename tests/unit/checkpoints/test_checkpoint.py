from __future__ import annotations

import pytest

from checkpoints.checkpoint import KafkaCheckpoint


def test_partitions_are_written_in_numeric_order() -> None:
    assert str(KafkaCheckpoint("orders", {10: 5, 2: 7})) == "orders,2:7,10:5"


DAMAGED = """
,0:1|a b,0:1|t,0|t,0:|t,-1:3|t,0:-3|t,0:1,0:2|t,0:1,|t,0:1:2|t,0: 1|t,0:\N{THAI DIGIT ONE}
t,0:99999999999999999999|t,0:9223372036854775808|t,2147483648:0
"""


@pytest.mark.parametrize("text", ["", *DAMAGED.strip().replace("\n", "|").split("|")])
def test_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"found|not the name"):
        KafkaCheckpoint.parse(text)


def test_the_largest_numbers_of_kafka_are_read() -> None:
    text = "t,2147483647:9223372036854775807"
    assert str(KafkaCheckpoint.parse(text)) == text


def test_the_checkpoint_of_a_source_of_files_names_no_partition() -> None:
    assert not KafkaCheckpoint.parse("1717171717000").offsets


def test_a_new_partition_makes_a_later_checkpoint() -> None:
    before = KafkaCheckpoint("orders", {0: 5})
    after = KafkaCheckpoint("orders", {0: 5, 1: 0})
    assert before < after
    assert not after <= before
    assert after.distance_from(before) == {0: 0, 1: 0}


def test_progress_on_one_partition_does_not_outweigh_another() -> None:
    left = KafkaCheckpoint("orders", {0: 9, 1: 1})
    right = KafkaCheckpoint("orders", {0: 1, 1: 9})
    assert not left <= right
    assert not right <= left


def test_checkpoint_never_moves_back() -> None:
    with pytest.raises(ValueError, match="only moves forward"):
        KafkaCheckpoint("orders", {0: 5}).advanced_by({0: -1})


def test_checkpoint_is_not_changed_by_its_source_mapping() -> None:
    offsets = {0: 5}
    checkpoint = KafkaCheckpoint("orders", offsets)
    offsets[0] = 6
    assert checkpoint == KafkaCheckpoint("orders", {0: 5})
    with pytest.raises(TypeError):
        checkpoint.offsets[0] = 7  # type: ignore[index]
