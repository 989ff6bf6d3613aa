from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.checkpoint import KafkaCheckpoint
from sinks.audit import OffsetGap
from streamer.sources.kafka_offsets import (
    Fallback,
    LostRange,
    OffsetRange,
    first_start,
    lag,
    lost_in,
    newest_offsets,
    next_start,
)

TWO = {0: OffsetRange(10, 20), 1: OffsetRange(0, 5)}

ranges = st.dictionaries(
    st.integers(0, 5),
    st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda t: OffsetRange(t[0], t[0] + t[1])),
    max_size=6,
)
offsets = st.dictionaries(st.integers(0, 5), st.integers(0, 30), max_size=6)


def orders(start: dict[int, int]) -> KafkaCheckpoint:
    return KafkaCheckpoint("orders", start)


def test_first_run_starts_at_the_configured_offsets() -> None:
    assert first_start("orders", TWO, "earliest").checkpoint == orders({0: 10, 1: 0})
    assert first_start("orders", TWO, "latest").checkpoint == orders({0: 20, 1: 5})
    assert first_start("orders", TWO, {1: 3}).checkpoint == orders({0: 10, 1: 3})


def test_a_new_partition_starts_at_its_earliest_record() -> None:
    start = next_start(orders({1: 3}), TWO)
    assert (start.checkpoint, start.lost) == (orders({0: 10, 1: 3}), ())


def test_each_kind_of_loss_is_reported_and_does_not_affect_other_partitions() -> None:
    start = next_start(orders({0: 4, 1: 9, 2: 7}), {**TWO, 3: OffsetRange(0, 1)})
    assert start.checkpoint == orders({0: 10, 1: 0, 3: 0})
    assert [str(lost) for lost in start.lost] == [
        "partition 0 lost offsets 4 to 9 (deleted by retention?)",
        "partition 1 ends at 5, before offset 9 (was the topic created again?)",
        "partition 2 no longer exists (next offset: 7)",
    ]


@given(offsets, ranges, st.sampled_from(["earliest", "latest"]))
def test_a_start_is_readable_and_moves_only_what_was_lost(
    read: dict[int, int], available: dict[int, OffsetRange], fallback: Fallback
) -> None:
    start = next_start(orders(read), available, fallback)
    assert start.checkpoint.offsets.keys() == available.keys()
    lost = {one.partition for one in start.lost}
    for partition, held in available.items():
        at = start.checkpoint.offsets[partition]
        assert held.earliest <= at <= held.end
        if partition in read and partition not in lost:
            assert at == read[partition]
        elif partition in lost:
            assert at == (held.earliest if fallback == "earliest" else held.end)
            assert read[partition] not in range(held.earliest, held.end + 1)
    assert read.keys() - available.keys() <= lost <= read.keys()
    again = next_start(start.checkpoint, available)
    assert (again.checkpoint, again.lost) == (start.checkpoint, ())


@given(offsets, ranges)
def test_lag_is_what_a_run_would_read(
    read: dict[int, int], available: dict[int, OffsetRange]
) -> None:
    behind = lag(orders(read), available)
    for partition, held in available.items():
        readable = range(held.earliest, held.end)
        wanted = read.get(partition, held.earliest)
        assert behind[partition] == sum(offset >= wanted for offset in readable)


def test_loss_has_fields_for_programs() -> None:
    (lost,) = next_start(orders({0: 4}), TWO).lost
    assert lost == LostRange(0, 4, OffsetRange(10, 20), 10)
    assert lost.facts("orders") == {
        "topic": "orders",
        "partition": 0,
        "from": 4,
        "to": 10,
        "count": 6,
    }


def test_at_the_latest_end_what_is_still_there_counts_as_lost_too() -> None:
    start = next_start(orders({0: 4, 1: 3}), TWO, "latest")
    assert start.checkpoint == orders({0: 20, 1: 3})
    assert [(lost.partition, lost.count) for lost in start.lost] == [(0, 16)]
    assert str(start.lost[0]).startswith("partition 0 lost offsets 4 to 19 ")


def test_unknown_number_of_lost_offsets_is_not_counted() -> None:
    start = next_start(orders({1: 9, 2: 7}), TWO)
    assert [lost.facts("t")["count"] for lost in start.lost] == [None, None]
    assert [lost.facts("t")["to"] for lost in start.lost] == [0, None]


@pytest.mark.parametrize(
    ("fallback", "at"), [("earliest", {0: 10, 1: 0}), ("latest", {0: 20, 1: 5})]
)
def test_offsets_are_not_kept_for_a_topic_created_again(
    fallback: Fallback, at: dict[int, int]
) -> None:
    start = next_start(orders({0: 12, 1: 3}), TWO, fallback, is_recreated=True)
    assert start.checkpoint == orders(at)
    assert [(lost.partition, lost.count) for lost in start.lost] == [(0, None), (1, None)]
    assert str(start.lost[0]) == "partition 0 was created again and ends at 20 (next offset was 12)"


def test_gaps_are_lost_as_far_as_they_lie_below_the_earliest_offset() -> None:
    available = {0: OffsetRange(10, 20), 1: OffsetRange(0, 9)}
    gaps = [
        OffsetGap(0, 4, 6),
        OffsetGap(0, 8, 15),
        OffsetGap(0, 10, 11),
        OffsetGap(1, 0, 3),
        OffsetGap(2, 5, 7),
    ]
    lost, others = lost_in(gaps, available)
    assert [(one.partition, one.wanted, one.resumes_at, one.count) for one in lost] == [
        (0, 4, 6, 2),
        (0, 8, 10, 2),
        (2, 5, None, None),
    ]
    assert str(lost[0]).startswith("partition 0 lost offsets 4 to 5 ")
    assert others == [OffsetGap(0, 10, 15), OffsetGap(0, 10, 11), OffsetGap(1, 0, 3)]


@given(ranges, st.integers(0, 60))
def test_newest_offsets_are_at_the_ends_in_equal_shares(
    available: dict[int, OffsetRange], count: int
) -> None:
    begins = newest_offsets(available, count)
    taken = {number: held.end - begins[number] for number, held in available.items()}
    sizes = {number: held.end - held.earliest for number, held in available.items()}
    assert sum(taken.values()) == min(count, sum(sizes.values()))
    assert all(0 <= taken[number] <= sizes[number] for number in available)
    cut = [taken[number] for number in available if taken[number] < sizes[number]]
    assert not cut or max(taken.values()) <= min(cut) + 1
