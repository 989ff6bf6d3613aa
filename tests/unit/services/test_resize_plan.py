"""Which buckets a resize splits and merges, by the sizes of their files."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.index.hash_ring import HashRing
from lakemark.index.ring_changes import RingChange, change_ring
from lakemark.model.action import Action, State
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, LogFile
from lakemark.model.instant import Instant
from lakemark.services.resize_plan import ResizePolicy, plan_resize
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile
from lakemark.view.file_system_view import FileSystemView

_AT = "20260101000000000"
_TIMELINE = Timeline.of([Instant(_AT, Action.DELTA_COMMIT, State.COMPLETED, "20260101000001000")])
_POLICY = ResizePolicy(split_above_bytes=100, merge_below_bytes=20)


def ring_of(buckets: int, first: int = 1) -> HashRing:
    full = HashRing.first("p", buckets)
    return HashRing("p", _AT, full.largest_hashes, full.file_id_prefixes, first, 5)


def view_of(ring: HashRing, sizes: Mapping[int, int], log_bytes: int = 0) -> FileSystemView:
    files: list[DataFile] = []
    for number, size in sizes.items():
        file_id = ring.file_ids[number]
        files.append(BaseFile("p", BaseFileName(file_id, "0-0-0", _AT), size))
        if log_bytes:
            files.append(LogFile("p", LogFileName(file_id, _AT, 1, "0-0-0"), log_bytes))
    return FileSystemView.of({"p": files}, _TIMELINE)


def plan(
    ring: HashRing, sizes: list[int], policy: ResizePolicy = _POLICY, log_bytes: int = 0
) -> list[tuple[list[int], int]]:
    """Return the buckets of each group, and the number of buckets into which it is rewritten."""
    view = view_of(ring, dict(enumerate(sizes)), log_bytes)
    made = plan_of(view, ring, policy)
    groups = () if made is None else made.input_groups
    numbers = {file_id: number for number, file_id in enumerate(ring.file_ids)}
    return [
        ([numbers[one.group.file_id] for one in group.slices], group.output_groups)
        for group in groups
    ]


def plan_of(
    view: FileSystemView, ring: HashRing, policy: ResizePolicy = _POLICY
) -> ClusteringPlan | None:
    numbers = count()
    return plan_resize(
        view, ring.first_count, lambda _: ring, policy, lambda: f"new-{next(numbers)}"
    )


@pytest.mark.parametrize(("size", "parts"), [(100, 0), (101, 2), (200, 2), (201, 4), (900, 16)])
def test_a_large_bucket_is_split_until_its_parts_fit(size: int, parts: int) -> None:
    assert plan(ring_of(1), [size]) == ([([0], parts)] if parts else [])


def test_logs_count_to_the_size() -> None:
    assert plan(ring_of(1), [60], log_bytes=50) == [([0], 2)]


def test_adjacent_small_buckets_are_merged_until_they_reach_the_limit() -> None:
    assert plan(ring_of(6), [8, 8, 8, 8, 50, 50]) == [([0, 1, 2], 1)]
    assert plan(ring_of(6), [8, 50, 8, 50, 8, 50]) == [], "none is adjacent"
    assert plan(ring_of(4), [8, 50, 50, 8]) == [([3, 0], 1)], "hashes form a ring"


def test_a_partition_keeps_as_many_buckets_as_at_first() -> None:
    assert plan(ring_of(4, first=4), [1, 1, 1, 1]) == []
    assert plan(ring_of(4, first=3), [1, 1, 1, 1]) == [([0, 1], 1)]
    assert plan(ring_of(4, first=1), [1, 1, 1, 1]) == [([0, 1, 2, 3], 1)]


def test_buckets_without_files_are_merged_with_others() -> None:
    ring = ring_of(4)
    made = plan_of(view_of(ring, {1: 8, 3: 8}), ring)
    assert made is not None
    (group,) = made.input_groups
    change = RingChange.parse(group.extra_metadata)
    assert change is not None
    assert len(change.children) == 4
    assert [one.file_id for one in made.groups] == [ring.file_ids[1], ring.file_ids[3]]


def test_merges_can_be_switched_off() -> None:
    policy = ResizePolicy(split_above_bytes=100, merge_below_bytes=0)
    assert plan(ring_of(4), [1, 1, 1, 1], policy) == []


def test_a_plan_is_limited_but_rewrites_at_least_one_group() -> None:
    policy = ResizePolicy(split_above_bytes=100, merge_below_bytes=20, max_bytes=150)
    assert plan(ring_of(4), [120, 130, 5, 5], policy) == [([1], 2), ([2, 3], 1)]
    assert plan(ring_of(2), [400, 300], policy) == [([0], 4)], "the largest bucket comes first"


def test_buckets_in_a_pending_clustering_are_kept() -> None:
    ring = ring_of(2)
    view = view_of(ring, {0: 500, 1: 500})
    pending = FileSystemView(
        view.timeline, view.groups, clusterings={FileGroupId("p", ring.file_ids[0]): _AT}
    )
    assert plan_of(pending, ring) is None
    compacted = FileSystemView(
        view.timeline, view.groups, compactions={FileGroupId("p", ring.file_ids[0]): _AT}
    )
    made = plan_of(compacted, ring)
    assert made is not None
    assert [group.file_id for group in made.groups] == [ring.file_ids[1]]


def test_no_ring_is_read_if_no_size_asks_for_a_change() -> None:
    ring = ring_of(3, first=3)
    view = view_of(ring, {0: 50, 1: 5, 2: 5})

    def load(_: str) -> HashRing:
        raise AssertionError

    assert plan_resize(view, 3, load, _POLICY) is None


@pytest.mark.parametrize(("split", "merge"), [(0, 0), (-1, 0), (100, -1), (100, 26)])
def test_limits_that_would_undo_each_other_are_refused(split: int, merge: int) -> None:
    with pytest.raises(InvalidConfig):
        ResizePolicy(split_above_bytes=split, merge_below_bytes=merge)


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=12),
    st.integers(1, 12),
    st.integers(0, 25),
    st.none() | st.integers(1, 2000),
)
def test_the_ring_fits_the_plan(
    sizes: list[int], first: int, merge_below: int, max_bytes: int | None
) -> None:
    ring = ring_of(len(sizes), min(first, len(sizes)))
    policy = ResizePolicy(split_above_bytes=100, merge_below_bytes=merge_below, max_bytes=max_bytes)
    made = plan_of(view_of(ring, dict(enumerate(sizes))), ring, policy)
    if made is None:
        assert max(sizes) <= 100
        return
    assert len({*made.groups}) == len(made.groups), "each bucket is in one group"
    parsed = [RingChange.parse(group.extra_metadata) for group in made.input_groups]
    changes = [change for change in parsed if change is not None]
    assert len(changes) == len(parsed)
    after = change_ring(ring, changes, _AT)
    gone = {*ring.file_ids} - {*after.file_ids}
    assert gone == {group.file_id for group in made.groups}
    assert len(after.file_ids) >= ring.first_count
    for group, change in zip(made.input_groups, changes, strict=True):
        assert {*change.new_file_ids} <= {*after.file_ids}
        assert group.output_groups == len(change.new_file_ids)
