"""Plans a clustering by size: which small file slices are rewritten together, and in which order.

Within a partition, the largest small slices fill one group after the other. A group is rewritten
into as many files as its bytes require. Without columns to sort by, a group is planned only if that
makes fewer files. The groups with the oldest slices come first.

Source: ``SparkSizeBasedClusteringPlanStrategy`` and ``PartitionAwareClusteringPlanStrategy`` of
Apache Hudi 1.2.0, which ignore the sizes of logs, and count a slice without a base file as a full
file. The strategy class in the plans is that of Apache Hudi, so that Apache Hudi can execute them.
When a clustering is due: ``BaseClusteringPlanActionExecutor.createClusteringPlan``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from lakemark.config.keys import EXECUTED_AT_ONCE
from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS, REPLACING, Action
from lakemark.model.clustering_plan import ClusteringGroup, ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata, Operation
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.instant import Instant
from lakemark.model.row_order import RowOrder
from lakemark.timeline.timeline import Timeline
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
        max_io_bytes: at most the first groups for which so many bytes are read and written, but
            always one group; None for no such limit.
        order: the order of the rows in the new files of a group.
    """

    small_file_bytes: int = SMALL_FILE_BYTES
    target_file_bytes: int = TARGET_FILE_BYTES
    max_group_bytes: int = MAX_GROUP_BYTES
    max_groups: int = MAX_GROUPS
    max_io_bytes: int | None = None
    order: RowOrder = _UNSORTED

    def __post_init__(self) -> None:
        sizes = (self.small_file_bytes, self.target_file_bytes, self.max_group_bytes)
        limits = (self.max_groups, 1 if self.max_io_bytes is None else self.max_io_bytes)
        if min(*sizes, *limits) < 1:
            message = (
                f"slices below {self.small_file_bytes} bytes are to be clustered in "
                f"{self.max_groups} groups of {self.max_group_bytes} bytes, to files of "
                f"{self.target_file_bytes} bytes, with {self.max_io_bytes} bytes of input and "
                "output; choose positive numbers"
            )
            raise InvalidConfig(message)


def plan_clustering(
    view: FileSystemView,
    policy: ClusteringPolicy,
    partitions: Collection[str] | None = None,
    taken: Collection[FileGroupId] = (),
) -> ClusteringPlan | None:
    """Return a plan that rewrites small file slices; None if there is nothing to rewrite.

    File groups in a pending compaction or clustering are kept as they are. Groups with the oldest
    file slices come first. So a plan that does not contain all groups begins with those that were
    not rewritten recently, and repeated plans reach every partition.

    Args:
        view: the file slices.
        policy: the limits and the order of the rows.
        partitions: the paths of the partitions whose slices may be rewritten; None for all.
        taken: further file groups to keep as they are.
    """
    groups = [
        slices
        for path, small in sorted(_small_slices(view, policy, taken).items())
        if partitions is None or path in partitions
        for slices in _divide(small, policy)
        if _is_worthwhile(slices, policy)
    ]
    chosen = list(_first(sorted(groups, key=_oldest_time), policy))
    if not chosen:
        return None
    return ClusteringPlan(
        input_groups=tuple(_group(slices, policy) for slices in chosen),
        strategy=_STRATEGY,
        strategy_params=policy.order.to_params(),
    )


def is_clustering_due(
    timeline: Timeline, read_commit: Callable[[Instant], CommitMetadata], after_commits: int
) -> bool:
    """Return whether enough commits were made since the last clustering was requested.

    If the last clustering may have been archived, a clustering is due.

    Args:
        timeline: the active timeline of a table without buckets.
        read_commit: returns the metadata of a completed commit.
        after_commits: the number of commits (``hoodie.clustering.inline.max.commits``).
    """
    requested = [instant.requested_at for instant in timeline.pending(*REPLACING)]
    for instant in reversed(timeline.completed(Action.REPLACE_COMMIT)):
        if read_commit(instant).operation == Operation.CLUSTER:
            requested.append(instant.requested_at)
            break
    if not requested and timeline.has_history:
        return True
    last = max(requested, default="")
    return sum(i.requested_at > last for i in timeline.completed(*COMMITS)) >= after_commits


def mark_executed_at_once(plan: ClusteringPlan) -> ClusteringPlan:
    """Return the plan with a mark that the process which made it also executes it."""
    return replace(plan, strategy_params={**plan.strategy_params, EXECUTED_AT_ONCE: "true"})


def is_executed_at_once(plan: ClusteringPlan) -> bool:
    """Return whether the plan has the mark of ``mark_executed_at_once``."""
    return plan.strategy_params.get(EXECUTED_AT_ONCE) == "true"


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


def _small_slices(
    view: FileSystemView, policy: ClusteringPolicy, taken: Collection[FileGroupId]
) -> dict[str, list[FileSlice]]:
    """Return the slices that may be rewritten, by partition path."""
    busy = {*view.compactions, *view.clusterings, *taken}
    found: dict[str, list[FileSlice]] = defaultdict(list)
    for one in view.latest_slices():
        if one.group not in busy and one.size_bytes < policy.small_file_bytes:
            found[one.group.partition_path].append(one)
    return found


def _oldest_time(slices: Sequence[FileSlice]) -> str:
    return min(one.base_instant for one in slices)


def _first(
    groups: Sequence[Sequence[FileSlice]], policy: ClusteringPolicy
) -> Iterator[Sequence[FileSlice]]:
    """Yield the first groups, whose number and bytes are within the limits of a plan."""
    io_bytes = 0
    for number, slices in enumerate(islice(groups, policy.max_groups)):
        io_bytes += 2 * _total_bytes(slices)
        if number and policy.max_io_bytes is not None and io_bytes > policy.max_io_bytes:
            return
        yield slices


def _divide(slices: Iterable[FileSlice], policy: ClusteringPolicy) -> Iterator[Sequence[FileSlice]]:
    """Yield the slices of each group of one partition."""
    gathered: list[FileSlice] = []
    for one in sorted(slices, key=lambda one: (-one.size_bytes, one.group)):
        if gathered and _total_bytes([*gathered, one]) > policy.max_group_bytes:
            yield gathered
            gathered = []
        gathered.append(one)
    yield gathered


def _group(slices: Sequence[FileSlice], policy: ClusteringPolicy) -> ClusteringGroup:
    return ClusteringGroup.of(slices, _num_files(slices, policy), {})


def _is_worthwhile(slices: Sequence[FileSlice], policy: ClusteringPolicy) -> bool:
    """Return whether the rows are to be sorted, or become fewer files."""
    return bool(slices and (policy.order.columns or _num_files(slices, policy) < len(slices)))


def _num_files(slices: Sequence[FileSlice], policy: ClusteringPolicy) -> int:
    return max(1, math.ceil(_total_bytes(slices) / policy.target_file_bytes))


def _total_bytes(slices: Iterable[FileSlice]) -> int:
    return sum(one.size_bytes for one in slices)
