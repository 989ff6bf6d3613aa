from __future__ import annotations

import pytest

from streamer.sources.kafka_offsets import OffsetRange
from streamer.sources.poll_size import MAX_RECORDS, poll_records, sample_offsets

GIB = 1 << 30


@pytest.mark.parametrize(
    ("partitions", "record_bytes", "records"),
    [(4, 230, MAX_RECORDS), (1, 1 << 20, 31), (100, 230, 780), (1_000, 1 << 20, 1), (4, 0, 500)],
)
def test_the_polls_of_all_partitions_share_a_part_of_the_heap(
    partitions: int, record_bytes: int, records: int
) -> None:
    assert poll_records(GIB, partitions, record_bytes) == records


def test_samples_are_at_the_start_half_way_and_at_the_end() -> None:
    available = {0: OffsetRange(5, 105), 1: OffsetRange(0, 4), 2: OffsetRange(9, 9)}
    assert sample_offsets({0: 15, 1: 4, 2: 9}, available) == [
        {0: 15, 1: 0},
        {0: 55, 1: 0},
        {0: 95, 1: 0},
    ]
    assert sample_offsets({2: 9}, available) == []


def test_some_of_many_partitions_are_sampled() -> None:
    available = {number: OffsetRange(0, 100) for number in range(100)}
    first, *_ = sample_offsets(dict.fromkeys(range(100), 50), available)
    assert 8 <= len(first) <= 16
    assert max(first) > 84
