"""Plans a clustering by size: which small file slices are rewritten together, and in which order.

Within a partition, the largest small slices come first, and fill one group after the other. A group
is rewritten into as many files as its bytes require. Without columns to sort by, a group is planned
only if that makes fewer files.

Source: ``SparkSizeBasedClusteringPlanStrategy`` and ``PartitionAwareClusteringPlanStrategy`` of
Apache Hudi 1.2.0, which ignore the sizes of logs, and count a slice without a base file as a full
file. The strategy class in the plans is that of Apache Hudi, so that Apache Hudi can execute them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lakemark.errors import InvalidConfig
from lakemark.model.clustering_plan import ClusteringGroup, ClusteringPlan
from lakemark.model.file_slice import FileSlice
from lakemark.model.row_order import RowOrder
from lakemark.services.resize_plan import bytes_of
from lakemark.view.file_system_view import FileSystemView

_MIB = 1 << 20

#: The limits that Apache Hudi has by default.
SMALL_FILE_BYTES, TARGET_FILE_BYTES, MAX_GROUP_BYTES = 300 * _MIB, 1024 * _MIB, 2048 * _MIB
MAX_GROUPS = 30

_UNSORTED = RowOrder()

_STRATEGIES = "org.apache.hudi.client.clustering.run.strategy"

#: The class of Apache Hudi that executes the plans.
_STRATEGY = f"{_STRATEGIES}.SparkSortAndSizeExecutionStrategy"

#: The classes whose plans lakemark executes. They sort the rows of a group, and divide them.
_UNDERSTOOD = (_STRATEGY, f"{_STRATEGIES}.JavaSortAndSizeExecutionStrategy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringPolicy:
    """Which file slices are rewritten together, and how.

    Attributes:
        small_file_bytes: slices whose base file and logs are smaller are rewritten.
        target_file_bytes: the size that new files approximately have.
        max_group_bytes: the size of the slices that one task rewrites; a larger slice is a group
            of its own.
        max_groups: the number of groups in a plan.
        order: the order of the rows in the new files of a group.
    """

    small_file_bytes: int = SMALL_FILE_BYTES
    target_file_bytes: int = TARGET_FILE_BYTES
    max_group_bytes: int = MAX_GROUP_BYTES
    max_groups: int = MAX_GROUPS
    order: RowOrder = _UNSORTED

    def __post_init__(self) -> None:
        sizes = (self.small_file_bytes, self.target_file_bytes, self.max_group_bytes)
        if min(*sizes, self.max_groups) < 1:
            message = (
                f"slices below {self.small_file_bytes} bytes are to be clustered in "
                f"{self.max_groups} groups of {self.max_group_bytes} bytes, to files of "
                f"{self.target_file_bytes} bytes; choose positive numbers"
            )
            raise InvalidConfig(message)


def plan_clustering(
    view: FileSystemView, policy: ClusteringPolicy, partitions: Collection[str] | None = None
) -> ClusteringPlan | None:
    """Return a plan that rewrites small file slices; None if there is nothing to rewrite.

    File groups in a pending compaction or clustering are kept as they are.

    Args:
        view: the file slices.
        policy: the limits and the order of the rows.
        partitions: the paths of the partitions whose slices may be rewritten; None for all.
    """
    groups = [
        group
        for path, slices in sorted(_small_slices(view, policy).items())
        if partitions is None or path in partitions
        for group in _divide(slices, policy)
    ]
    if not groups:
        return None
    return ClusteringPlan(
        input_groups=tuple(groups[: policy.max_groups]),
        strategy=_STRATEGY,
        strategy_params=policy.order.to_params(),
    )


def order_of(plan: ClusteringPlan) -> RowOrder:
    """Return the order in which a plan writes rows.

    Raises:
        ValueError: lakemark does not execute such a plan. The message is the reason.
    """
    if plan.strategy not in _UNDERSTOOD:
        message = f"its strategy is {plan.strategy or 'not named'}"
        raise ValueError(message)
    for group in plan.input_groups:
        if len({one.group.partition_path for one in group.slices}) != 1:
            message = "a group of it has slices of several partitions, or none"
            raise ValueError(message)
    return RowOrder.from_params(plan.strategy_params)


def _small_slices(view: FileSystemView, policy: ClusteringPolicy) -> dict[str, list[FileSlice]]:
    """Return the slices that may be rewritten, by partition path."""
    found: dict[str, list[FileSlice]] = defaultdict(list)
    for one in view.latest_slices():
        is_busy = one.group in view.compactions or one.group in view.clusterings
        if not is_busy and bytes_of(one) < policy.small_file_bytes:
            found[one.group.partition_path].append(one)
    return found


def _divide(slices: Iterable[FileSlice], policy: ClusteringPolicy) -> Iterator[ClusteringGroup]:
    """Yield the groups of one partition."""
    gathered: list[FileSlice] = []
    for one in sorted(slices, key=lambda one: (-bytes_of(one), one.group)):
        if gathered and _total_bytes([*gathered, one]) > policy.max_group_bytes:
            yield from _group(gathered, policy)
            gathered = []
        gathered.append(one)
    yield from _group(gathered, policy)


def _group(slices: Sequence[FileSlice], policy: ClusteringPolicy) -> Iterator[ClusteringGroup]:
    files = max(1, math.ceil(_total_bytes(slices) / policy.target_file_bytes))
    if slices and (policy.order.columns or files < len(slices)):
        yield ClusteringGroup.of(slices, files, {})


def _total_bytes(slices: Iterable[FileSlice]) -> int:
    return sum(map(bytes_of, slices))
