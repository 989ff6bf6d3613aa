"""Checks whether the metadata table is right after the commit of one instant was undone in it.

If it is not, a rollback drops the metadata table, and the next start of a writer builds it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lakemark.errors import CorruptData, SnapshotChanged
from lakemark.metadata.expressions.indexed_expression import is_expression_index
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.valid_instants import creates_partition, latest_completion
from lakemark.model.action import COMMITS, Action
from lakemark.timeline.timeline import Timeline


def was_built_since(requested_at: str, metadata: Timeline, data: Timeline) -> bool:
    """Return whether a partition of the metadata table was built after an instant was requested.

    The metadata table's archival may have archived the instant that created the partition of an
    index. The data table's timeline then still has the instant that announced the index, because
    archival keeps it as long as a commit from before its completion is active.
    """
    commits = metadata.completed(Action.DELTA_COMMIT)
    created = (i for i in commits if creates_partition(i, data))
    built = (*created, *data.completed(Action.INDEXING))
    return any(latest_completion(i) > requested_at for i in built)


def covers_too_little(
    requested_at: str, partitions: Collection[str], metadata: Timeline, data: Timeline
) -> bool:
    """Return whether statistics of whole partitions would lack values after a commit was undone.

    Readers take the statistics of the commit that was requested last. If that commit is undone, the
    statistics of a commit that was requested earlier become effective. If the earlier commit
    completed later, its statistics do not cover the files that the undone commit had replaced.

    Args:
        requested_at: requested time of the commit that is to be undone.
        partitions: the partitions of the metadata table.
        metadata: the metadata table's timeline, with the commit.
        data: the data table's timeline.
    """
    undone = metadata.find(requested_at)
    if undone is None or not undone.is_completed or not any(map(_has_summaries, partitions)):
        return False
    until = undone.completed_at or requested_at
    later = {i.requested_at for i in metadata.completed() if (i.completed_at or "") > until}
    earlier = (i.requested_at for i in data.completed(*COMMITS))
    return any(one < requested_at and one in later for one in earlier)


def may_list(metadata: MetadataTable, files: Mapping[str, Iterable[str]]) -> bool:
    """Return whether the metadata table lists one of the files, or cannot be read."""
    try:
        listed = MetadataFileLister(metadata).list_some(files)
    except (CorruptData, SnapshotChanged):  # a process that lost the lock may still delete logs
        return True
    return any(
        str(file.name) in set(names) for path, names in files.items() for file in listed[path]
    )


def _has_summaries(partition: str) -> bool:
    """Return whether a partition of the metadata table may have statistics of whole partitions."""
    return partition == PartitionKind.PARTITION_STATS.stored_name or is_expression_index(partition)
