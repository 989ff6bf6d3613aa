"""Whether what completed since a transaction began touched what it wrote.

Two writers of one file group conflict. A delta commit and a compaction of the same group do not:
the delta commit's logs belong to the slice that the compaction opens, or to the one it rewrites,
by their completion time. Source: ``SimpleConcurrentFileWritesConflictResolutionStrategy``.
"""

from __future__ import annotations

from table.errors import WriteConflict
from table.model.action import Action
from table.model.commit_metadata import CommitMetadata
from table.model.instant import Instant
from table.timeline.timeline import Timeline
from table.timeline.timeline_store import TimelineStore

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


def check_conflicts(
    ours: Instant,
    metadata: CommitMetadata,
    began_with: Timeline,
    now: Timeline,
    store: TimelineStore,
) -> None:
    """Pass, or name the commit that came first.

    Raises:
        WriteConflict: a commit that completed since changed one of our file groups.
    """
    groups = {(stat.partition_path, stat.file_id) for stat in metadata.write_stats}
    for theirs in now.completed(*_WRITES):
        if began_with.is_committed(theirs.requested_at):
            continue
        their_metadata = store.read_commit(theirs)
        if _may_overlap(ours, their_metadata):
            continue
        common = groups & _touched(their_metadata)
        if common:
            partition, file_id = sorted(common, key=str)[0]
            message = (
                f"instant {ours.requested_at} and {theirs} both wrote file group {file_id} "
                f"in partition {partition!r}; run one writer on a table"
            )
            raise WriteConflict(message)


def _may_overlap(ours: Instant, theirs: CommitMetadata) -> bool:
    if ours.action is Action.DELTA_COMMIT:
        return theirs.compacted
    return (
        ours.action is Action.COMPACTION and not theirs.replaced_file_ids and not theirs.compacted
    )


def _touched(metadata: CommitMetadata) -> set[tuple[str | None, str]]:
    written = {(stat.partition_path, stat.file_id) for stat in metadata.write_stats}
    replaced = {(p, i) for p, ids in metadata.replaced_file_ids.items() for i in ids}
    return written | replaced
