"""The positions of the tables of a routed pipeline."""

from __future__ import annotations

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.routed_positions import RoutedPositions, earliest, later

POSITIONS = RoutedPositions(
    rule="field type to /lake/{value}",
    topic_id="id",
    complete=KafkaCheckpoint("shop", {0: 7, 1: 9}),
    behind={"orders": KafkaCheckpoint("shop", {0: 3}), "new": KafkaCheckpoint("shop", {})},
    commits={"orders": "20261129225247711", "new": "", "returns": "20261129225247712"},
    lost=({"topic": "shop", "partition": 0, "from": 1, "to": 2, "count": 1},),
)


def test_stored_positions_are_read_as_they_were() -> None:
    assert RoutedPositions.parse(POSITIONS.to_json()) == POSITIONS


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"rule": "x"}', POSITIONS.to_json()[:-2]])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        RoutedPositions.parse(text)


def test_position_of_a_table_is_its_own_if_it_is_behind() -> None:
    assert POSITIONS.of("orders") == KafkaCheckpoint("shop", {0: 3})
    assert POSITIONS.of("returns") == POSITIONS.of("never seen") == POSITIONS.complete


def test_larger_offsets_count_and_a_partition_that_one_position_lacks_is_read_from_its_start() -> (
    None
):
    one, other = KafkaCheckpoint("shop", {0: 5, 1: 2}), KafkaCheckpoint("shop", {1: 4, 2: 1})
    assert later(one, other) == KafkaCheckpoint("shop", {0: 5, 1: 4, 2: 1})
    assert earliest([one, other]) == KafkaCheckpoint("shop", {1: 2})


def test_only_the_newest_lost_ranges_are_kept() -> None:
    positions = POSITIONS
    for number in range(150):
        positions = positions.with_lost([{"from": number}])
    assert [one["from"] for one in positions.lost] == [*range(50, 150)]
