"""``lakemark table resize-buckets``: splits large buckets and merges small ones."""

from __future__ import annotations

import argparse

from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.operations.resize_buckets import (
    check_resizable,
    pending_resizes,
    plan_buckets,
    resize_table,
)
from lakemark.services.resize_plan import ResizePolicy
from lakemark.transaction.rollback_checks import check_no_restore
from streamer.commands.service_table import open_for_service, pipeline_of, show_work
from streamer.commands.table import Facts
from streamer.config.bucket_resizing import BucketResizingConfig


def execute(arguments: argparse.Namespace) -> int:
    """Print the buckets that would be resized, or resize them; pending resizes come first.

    Raises:
        InvalidConfig: the limits are too close to each other.
        Unsupported: the table has no consistent hashing, or lakemark does not write such a table.
        HudiError: the resize failed.
    """
    table, policy = open_for_service(arguments, arguments.merger), _policy(arguments)
    check_resizable(table)
    check_no_restore(table.timeline)
    if arguments.step == "run":
        merger = (arguments.merger or [None])[0]
        rows = [_executed(*done) for done in resize_table(table, policy, merger)]
    else:
        rows = _planned(table, policy)
    show_work(rows, arguments, "no bucket needs to be resized")
    return 0


def _policy(arguments: argparse.Namespace) -> ResizePolicy:
    config = pipeline_of(arguments)
    resizing = BucketResizingConfig() if config is None else config.bucket_resizing
    names = ("split_above_bytes", "merge_below_bytes")
    given = {name: getattr(arguments, name) for name in names}
    update = {name: value for name, value in given.items() if value is not None}
    return resizing.model_copy(update=update).policy()


def _planned(table: OpenTable, policy: ResizePolicy) -> list[Facts]:
    """Return the groups of pending resizes, then those of a new plan."""
    pending = [
        row
        for instant, plan in pending_resizes(table)
        for row in _groups(instant.requested_at, plan)
    ]
    new = plan_buckets(table, policy)
    return pending + (_groups(None, new) if new else [])


def _groups(instant: str | None, plan: ClusteringPlan) -> list[Facts]:
    return [
        {
            "instant": instant,
            "partition": group.slices[0].group.partition_path,
            "file ids": ", ".join(one.group.file_id for one in group.slices),
            "buckets": len(group.slices),
            "new buckets": group.output_groups,
        }
        for group in plan.input_groups
    ]


def _executed(instant: Instant, metadata: CommitMetadata) -> Facts:
    replaced = metadata.replaced_file_ids.values()
    return {
        "instant": instant.requested_at,
        "buckets": sum(map(len, replaced)),
        "new buckets": len(metadata.write_stats),
        "rows": sum(stat.num_writes for stat in metadata.write_stats),
        "bytes": sum(stat.file_size_in_bytes for stat in metadata.write_stats),
    }
