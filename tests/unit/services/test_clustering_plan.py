"""Which slices a clustering rewrites together, by the sizes of their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.model.action import Action, State
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata, Operation
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, LogFile
from lakemark.model.instant import Instant
from lakemark.model.row_order import Curve, RowOrder
from lakemark.services.clustering_plan import (
    ClusteringPolicy,
    is_clustering_due,
    order_of,
    plan_clustering,
)
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile
from lakemark.view.file_system_view import FileSystemView

_AT = "20260101000000000"
_TIMELINE = Timeline.of([Instant(_AT, Action.DELTA_COMMIT, State.COMPLETED, "20260101000001000")])
_POLICY = ClusteringPolicy(
    small_file_bytes=100, target_file_bytes=100, max_group_bytes=200, max_groups=30
)
_SORTED = replace(_POLICY, order=RowOrder(("a",)))


def view_of(sizes: Sequence[int], partition: str = "p", log_bytes: int = 0) -> FileSystemView:
    files: list[DataFile] = []
    for number, size in enumerate(sizes):
        file_id = f"f{number:02d}-0"
        files.append(BaseFile(partition, BaseFileName(file_id, "0-0-0", _AT), size))
        if log_bytes:
            files.append(LogFile(partition, LogFileName(file_id, _AT, 1, "0-0-0"), log_bytes))
    return FileSystemView.of({partition: files}, _TIMELINE)


def numbers_of(made: ClusteringPlan | None) -> list[tuple[list[int], int]]:
    """Return the file groups of each group of a plan, and its number of new files."""
    groups = () if made is None else made.input_groups
    return [
        ([int(one.group.file_id[1:3]) for one in group.slices], group.output_groups)
        for group in groups
    ]


def plan(
    sizes: Sequence[int], policy: ClusteringPolicy = _POLICY, log_bytes: int = 0
) -> list[tuple[list[int], int]]:
    return numbers_of(plan_clustering(view_of(sizes, log_bytes=log_bytes), policy))


def test_small_slices_fill_groups_the_largest_first() -> None:
    assert plan([10, 90, 20, 80, 30]) == [([1, 3, 4], 2), ([2, 0], 1)]
    assert plan([90, 90, 30, 30, 30]) == [([2, 3, 4], 1)], "two files would become two files"
    assert plan([100, 300, 40, 40]) == [([2, 3], 1)], "large files are kept"
    assert plan([50]) == []
    assert plan([]) == []


def test_with_columns_to_sort_by_every_small_slice_is_rewritten() -> None:
    assert plan([10, 90, 20, 80, 30], _SORTED) == [([1, 3, 4], 2), ([2, 0], 1)]
    assert plan([50], _SORTED) == [([0], 1)]
    assert plan([100], _SORTED) == []


def test_logs_count_to_the_size() -> None:
    assert plan([40, 40], log_bytes=10) == [([0, 1], 1)]
    assert plan([40, 40], log_bytes=11) == [], "two files would become two files"
    assert plan([40, 60], _SORTED, log_bytes=40) == [([0], 1)]


def test_a_plan_has_at_most_so_many_groups() -> None:
    sizes = [60] * 12
    assert len(plan(sizes, _SORTED)) == 4
    assert len(plan(sizes, replace(_SORTED, max_groups=2))) == 2


def test_slices_in_pending_plans_are_kept() -> None:
    view = view_of([10] * 5)
    busy = replace(
        view,
        compactions={FileGroupId("p", "f00-0"): _AT},
        clusterings={FileGroupId("p", "f01-0"): _AT},
    )
    assert numbers_of(plan_clustering(busy, _POLICY)) == [([2, 3, 4], 1)]


def test_only_the_chosen_partitions_are_rewritten() -> None:
    view = view_of([10, 10], "day=1")
    assert plan_clustering(view, _POLICY, ["day=2"]) is None
    assert numbers_of(plan_clustering(view, _POLICY, ["day=1"])) == [([0, 1], 1)]


def test_a_plan_reads_and_writes_at_most_so_many_bytes() -> None:
    sizes = [90, 80, 60, 50]  # two groups of 170 and 110 bytes
    for limit, groups in ((559, 1), (560, 2), (1, 1)):
        assert len(plan(sizes, replace(_SORTED, max_io_bytes=limit))) == groups


def test_repeated_plans_reach_every_partition() -> None:
    written = {f"day={day:02d}": _AT for day in range(5)}
    policy = replace(_SORTED, max_groups=2)
    instants, reached = list(_TIMELINE.instants), list[str]()
    for number in range(1, 4):
        files = {
            path: [BaseFile(path, BaseFileName("f00-0", "0-0-0", at), 10)]
            for path, at in written.items()
        }
        made = plan_clustering(FileSystemView.of(files, Timeline.of(instants)), policy)
        assert made is not None
        at = f"2026010200000{number}000"
        instants.append(Instant(at, Action.REPLACE_COMMIT, State.COMPLETED, at))
        for group in made.input_groups:
            path = group.slices[0].group.partition_path
            reached.append(path)
            written[path] = at
    assert reached == [*sorted(written), "day=00"]


def test_clustering_is_due_after_so_many_commits_since_the_last_one() -> None:
    made: list[Instant] = []
    metadata: dict[Instant, CommitMetadata] = {}

    def add(action: Action, operation: Operation, state: State = State.COMPLETED) -> None:
        name = f"2026010100{len(made):02d}00000"
        completed = f"{name[:-1]}1" if state is State.COMPLETED else None
        made.append(Instant(name, action, state, completed))
        metadata[made[-1]] = CommitMetadata(operation=operation)

    def is_due(after_commits: int, has_history: bool = False) -> bool:
        timeline = Timeline.of(made, has_history)
        return is_clustering_due(timeline, metadata.__getitem__, after_commits)

    assert not is_due(1)
    assert is_due(1, has_history=True), "the last clustering may be archived"
    add(Action.DELTA_COMMIT, Operation.UPSERT)
    add(Action.COMMIT, Operation.COMPACT)
    assert is_due(2)
    assert not is_due(3)
    add(Action.REPLACE_COMMIT, Operation.CLUSTER)
    add(Action.REPLACE_COMMIT, Operation.DELETE_PARTITION)
    assert is_due(1)
    assert not is_due(2, has_history=True)
    add(Action.DELTA_COMMIT, Operation.UPSERT)
    assert is_due(2)
    add(Action.CLUSTERING, Operation.CLUSTER, State.REQUESTED)
    assert not is_due(1), "a plan counts from its request on"


@given(
    sizes=st.lists(st.integers(0, 150), max_size=20),
    is_sorted=st.booleans(),
    target_bytes=st.integers(1, 200),
)
def test_each_slice_is_in_one_group_whose_size_is_limited(
    sizes: list[int], is_sorted: bool, target_bytes: int
) -> None:
    policy = replace(_SORTED if is_sorted else _POLICY, target_file_bytes=target_bytes)
    found = plan(sizes, policy)
    together = [number for numbers, _ in found for number in numbers]
    assert len({*together}) == len(together)
    assert all(sizes[number] < policy.small_file_bytes for number in together)
    for numbers, files in found:
        total = sum(sizes[number] for number in numbers)
        assert len(numbers) == 1 or total <= policy.max_group_bytes
        assert (files - 1) * target_bytes < max(1, total) <= files * target_bytes
        assert is_sorted or files < len(numbers)
    if is_sorted:
        assert {*together} == {n for n, size in enumerate(sizes) if size < 100}


def test_a_plan_names_the_order_of_its_rows() -> None:
    for order in (RowOrder(), RowOrder(("a", "b")), RowOrder(("a",), Curve.HILBERT)):
        made = plan_clustering(view_of([10, 10]), replace(_POLICY, order=order))
        assert made is not None
        assert order_of(made) == order


def test_a_plan_of_apache_hudi_is_linear_unless_it_names_a_curve() -> None:
    columns = {"hoodie.clustering.plan.strategy.sort.columns": "a, b,a"}
    assert RowOrder.from_params(columns) == RowOrder(("a", "b"))
    curve = {"hoodie.layout.optimize.strategy": "ZORDER"}
    assert RowOrder.from_params(columns | curve) == RowOrder(("a", "b"), Curve.Z_ORDER)
    with pytest.raises(ValueError, match="snake"):
        RowOrder.from_params({"hoodie.layout.optimize.strategy": "snake"})


def test_other_plans_are_not_understood() -> None:
    made = plan_clustering(view_of([10, 10]), _POLICY)
    assert made is not None
    with pytest.raises(ValueError, match=r"com\.example\.Own"):
        order_of(replace(made, strategy="com.example.Own"))
    (group,) = made.input_groups
    other = replace(group.slices[0], group=FileGroupId("q", "f00-0"))
    mixed = replace(group, slices=(*group.slices, other))
    with pytest.raises(ValueError, match="several partitions"):
        order_of(replace(made, input_groups=(mixed,)))


@pytest.mark.parametrize(
    "limits",
    [
        {"small_file_bytes": 0},
        {"target_file_bytes": 0},
        {"max_group_bytes": -1},
        {"max_groups": 0},
        {"max_io_bytes": 0},
    ],
)
def test_limits_are_positive(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="positive"):
        replace(_POLICY, **limits)
