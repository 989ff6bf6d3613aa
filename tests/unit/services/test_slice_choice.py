"""A compaction plan contains the file slices that are chosen for it, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.model.partition_pattern import PartitionPattern
from lakemark.services.slice_choice import (
    ALL_SLICES,
    SliceChoice,
    SliceOrder,
    io_bytes,
    log_io_bytes,
)

DAYS = ["2025/12/31", "2026/01/02", "2026/1/10", "2026/02/01"]


def file_slice(
    partition: str, file_id: str = "g", log_bytes: Sequence[int] = (1,), base_bytes: int = 0
) -> FileSlice:
    base = BaseFile(partition, BaseFileName(file_id, "0-1-2", "10"), base_bytes)
    logs = tuple(
        LogFile(partition, LogFileName(file_id, str(11 + at), 1, "0-1-2"), size)
        for at, size in enumerate(log_bytes)
    )
    return FileSlice(FileGroupId(partition, file_id), "10", base if base_bytes else None, logs)


slices = st.lists(
    st.builds(
        file_slice,
        st.sampled_from([*DAYS, "", "__HIVE_DEFAULT_PARTITION__"]),
        st.sampled_from("abcd"),
        st.lists(st.integers(1, 9), max_size=3),
        st.integers(0, 9),
    ),
    max_size=12,
    unique_by=lambda one: one.group,
)
choices = st.builds(
    SliceChoice,
    order=st.sampled_from(SliceOrder),
    partitions=st.sampled_from([(), (PartitionPattern("2026/*"),)]),
    max_partitions=st.none() | st.integers(1, 3),
    max_io_bytes=st.none() | st.integers(1, 60),
)


@given(slices, choices)
def test_compactions_within_limits_rewrite_every_slice_in_the_end(
    found: list[FileSlice], choice: SliceChoice
) -> None:
    wanted = [one for one in found if one.logs]
    if choice.partitions:
        wanted = [one for one in wanted if one.group.partition_path.startswith("2026/")]
    rest, done = list(found), []
    while plan := choice.choose(rest):
        assert len({one.group.partition_path for one in plan}) <= (choice.max_partitions or 99)
        assert len(plan) == 1 or sum(map(io_bytes, plan)) <= (choice.max_io_bytes or 10**9)
        done += plan
        rest = [one for one in rest if one not in plan]
    assert sorted(done, key=lambda one: one.group) == sorted(wanted, key=lambda one: one.group)


def test_all_slices_with_logs_are_chosen_those_of_most_bytes_first() -> None:
    found = [file_slice("p", "g", [1]), file_slice("p", "h", [2, 2]), file_slice("p", "i", [])]
    assert [one.group.file_id for one in ALL_SLICES.choose(found)] == ["h", "g"]


def test_texts_before_dates_do_not_decide_their_order() -> None:
    paths = ["region=eu/day=2026-04-20", "region=us/day=2026-01-01", "region=us/day=2026-4-20"]
    choice = SliceChoice(order=SliceOrder.OLDEST_PARTITIONS)
    found = [one.group.partition_path for one in choice.choose(map(file_slice, paths))]
    assert found == [paths[1], paths[0], paths[2]]


def test_base_files_do_not_count_if_only_logs_are_read() -> None:
    found = [file_slice("p", name, [10], base_bytes=1_000) for name in "abc"]
    choice = SliceChoice(max_io_bytes=40)
    assert len(choice.choose(found)) == 1
    assert len(choice.choose(found, log_io_bytes)) == 2


@pytest.mark.parametrize("path", ["{}", "day={}", "{}/region=north"])
def test_partitions_are_ordered_by_their_dates(path: str) -> None:
    undated = path.format("__HIVE_DEFAULT_PARTITION__")
    dated = [path.format(day) for day in DAYS]
    found = [file_slice(one) for one in [*sorted(dated), undated]]

    def order(kind: SliceOrder) -> list[str]:
        return [one.group.partition_path for one in SliceChoice(order=kind).choose(found)]

    assert order(SliceOrder.OLDEST_PARTITIONS) == [*dated, undated]
    assert order(SliceOrder.NEWEST_PARTITIONS) == [*reversed(dated), undated]


def test_slices_of_a_partition_are_ordered_by_the_bytes_of_their_logs() -> None:
    found = [file_slice("1", "a", [1]), file_slice("1", "b", [3]), file_slice("2", "c", [2])]
    for order, expected in (
        (SliceOrder.NEWEST_PARTITIONS, ["c", "b", "a"]),
        (SliceOrder.OLDEST_PARTITIONS, ["b", "a", "c"]),
    ):
        chosen = SliceChoice(order=order).choose(found)
        assert [one.group.file_id for one in chosen] == expected


def test_io_counts_what_is_read_and_written() -> None:
    assert io_bytes(file_slice("p", "g", [3, 4], base_bytes=100)) == 100 + 7 + 100
    assert io_bytes(file_slice("p", "g", [3, 4])) == 7 + 7


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("day=2026-04-*", "day=2026-04-01", True),
        ("day=2026-04-*", "day=2026-04-01/region=north", True),
        ("day=2026-04-*", "a/day=2026-04-01", False),
        ("a.c", "abc", False),
        ("*", "", True),
        ("regex:=2026-0[1-4]", "day=2026-03-09", True),
        ("regex:=2026-0[1-4]", "day=2026-05-09", False),
        ("regex:^2026", "day=2026-05-09", False),
        ("day=2026-05-09", "day=2026-05-09\n", False),
    ],
)
def test_pattern_matches_paths(pattern: str, path: str, matches: bool) -> None:
    assert PartitionPattern(pattern).matches(path) == matches


@pytest.mark.parametrize("pattern", ["", "regex:", "regex:(2026"])
def test_wrong_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidConfig, match=r"matches no partition|not a regular expression"):
        PartitionPattern(pattern)


@pytest.mark.parametrize("limit", ["max_partitions", "max_io_bytes"])
def test_a_limit_allows_one_slice(limit: str) -> None:
    with pytest.raises(InvalidConfig, match="one slice or more"):
        SliceChoice(**{limit: 0})  # type: ignore[arg-type]
