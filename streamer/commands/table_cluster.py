"""``lakemark table cluster``: rewrites small files into fewer files, whose rows may be sorted."""

from __future__ import annotations

import argparse

from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.model.row_order import Curve, RowOrder
from lakemark.operations.cluster import (
    check_clusterable,
    check_order,
    cluster_table,
    pending_clusterings,
    plan_clusters,
    schedule_clustering,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.partition_deletion import ChoosePartitions, match_partitions
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.transaction.rollback_checks import check_no_restore
from streamer.commands.service_table import open_for_service, show_work
from streamer.commands.table import Facts

_SIZES = (
    "small_file_bytes",
    "target_file_bytes",
    "max_group_bytes",
    "max_groups",
    "max_io_bytes",
)


def execute(arguments: argparse.Namespace) -> int:
    """Print the files that would be clustered, or schedule or execute the plan.

    Raises:
        InvalidConfig: the table has no such column or partition.
        Unsupported: the table has buckets, or lakemark does not write such a table.
        HudiError: the clustering failed.
    """
    table, policy = open_for_service(arguments, arguments.merger), _policy(arguments)
    check_clusterable(table)
    check_order(table, policy.order)
    check_no_restore(table.timeline)
    choose = match_partitions(table, arguments.patterns) if arguments.patterns else None
    if arguments.step == "run":
        merger = (arguments.merger or [None])[0]
        rows = [_executed(*done) for done in cluster_table(table, policy, choose, merger)]
    elif arguments.step == "schedule":
        scheduled = schedule_clustering(table, policy, choose)
        rows = [] if scheduled is None else _groups(scheduled[0].requested_at, scheduled[1])
    else:
        rows = _planned(table, policy, choose)
    show_work(rows, arguments, "no files are to be clustered")
    return 0


def _policy(arguments: argparse.Namespace) -> ClusteringPolicy:
    given = {name: getattr(arguments, name) for name in _SIZES}
    sizes = {name: value for name, value in given.items() if value is not None}
    order = RowOrder(tuple(dict.fromkeys(arguments.sort_by)), Curve(arguments.curve))
    return ClusteringPolicy(**sizes, order=order)


def _planned(
    table: OpenTable, policy: ClusteringPolicy, choose: ChoosePartitions | None
) -> list[Facts]:
    """Return the groups of pending clusterings; if there are none, those of a new plan."""
    pending = [
        row
        for instant, plan in pending_clusterings(table)
        for row in _groups(instant.requested_at, plan)
    ]
    new = None if pending else plan_clusters(table, policy, choose)
    return _groups(None, new) if new else pending


def _groups(instant: str | None, plan: ClusteringPlan) -> list[Facts]:
    return [
        {
            "instant": instant,
            "partition": group.slices[0].group.partition_path,
            "file groups": len(group.slices),
            "files": sum(len(one.names) for one in group.slices),
            "new files": group.output_groups,
        }
        for group in plan.input_groups
    ]


def _executed(instant: Instant, metadata: CommitMetadata) -> Facts:
    return {
        "instant": instant.requested_at,
        "file groups": sum(map(len, metadata.replaced_file_ids.values())),
        "new files": len(metadata.write_stats),
        "rows": sum(stat.num_writes for stat in metadata.write_stats),
        "bytes": sum(stat.file_size_in_bytes for stat in metadata.write_stats),
    }
