"""Whether what others did since a transaction began touched what it wrote.

Two writers of one file group conflict, and so do two that each make the file group of a bucket that
had none: readers and writers expect one. A delta commit and a compaction of the same group do not:
the delta commit's logs belong to the slice that the compaction opens, or to the one it rewrites, by
their completion time. In table version 6 a log names its slice when it is written, so a compaction
that was planned since would not have it: that conflicts. A clustering replaces whole groups, so it
conflicts as soon as it is planned: it would lose what is written after its plan. While its writer's
heartbeat is alive, ours may try again. Otherwise the commit is refused, and an operator removes the
plan: Apache Hudi cannot execute it in a table with a bucket index.

Apache Hudi looks at the table after it has requested its instant, so what completed in between is
no conflict to it: it writes over that. In a copy-on-write table its slices are then named before
those that they follow, and nobody ever sees its rows. So ours are not published before it has
looked (``earlier_unseen_commits``).

Source: ``SimpleConcurrentFileWritesConflictResolutionStrategy`` (of table version 8 and later) and
``BucketIndexConcurrentFileWritesConflictResolutionStrategy``. Rollbacks of the instant itself are
looked for by ``lakemark.transaction.transaction``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeAlias

from lakemark.errors import Refused, WriteConflict
from lakemark.index.bucket import bucket_or_file_id
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.heartbeat import is_fresh
from lakemark.transaction.multi_writer import MultiWriter

#: A partition, and the bucket whose file group it is; or the file id, where there are no buckets.
_Place: TypeAlias = tuple[str, int | str]

#: What becomes a replace commit while it is pending.
REPLACING = (Action.CLUSTERING, Action.REPLACE_COMMIT)


class ClusteringPlanned(Refused):
    """A clustering is planned for a file group that a commit writes, without a writer at work."""

    def __init__(self, planned: Instant, group: str) -> None:
        super().__init__(
            f"{planned} is about to replace {group}, so nothing can be written there; a table with "
            "a bucket index cannot be clustered: remove the plan (lakemark table rollback TABLE "
            f"{planned.requested_at} --run), and switch clustering off in the job that planned it"
        )
        self.planned = planned


def check_conflicts(
    ours: Instant,
    metadata: CommitMetadata,
    began_with: Timeline,
    now: Timeline,
    store: TimelineStore,
    is_executed: Callable[[Instant], bool],
) -> None:
    """Pass, or name what came first.

    Args:
        ours: what is about to be published.
        metadata: of it.
        began_with: the timeline when we began to write.
        now: the timeline under the lock.
        store: reads its instants.
        is_executed: whether the heartbeat of a planned clustering's writer is alive.

    Raises:
        WriteConflict: a commit that completed since changed one of our file groups, or a clustering
            that is being executed is about to replace one.
        ClusteringPlanned: a clustering without a writer at work is about to replace one.
    """
    places = _written(metadata)
    for theirs, touched in _others(ours, began_with, now, store):
        common = places & touched
        if common:
            partition, place = min(common, key=str)
            group = _described(partition, place)
            is_plan = theirs.action in REPLACING and not theirs.is_completed
            if is_plan and not ours.action.is_table_service and not is_executed(theirs):
                raise ClusteringPlanned(theirs, group)
            message = (
                f"instant {ours.requested_at} and {theirs} both write {group}; nothing was "
                "published, and the batch can start again"
            )
            raise WriteConflict(message)
    for unseen in began_with.pending(*COMMITS):
        if now.find(unseen.requested_at) is None and now.is_archived(unseen.requested_at):
            message = f"{unseen} was archived since {ours.requested_at} began; start again"
            raise WriteConflict(message)


def check_not_planned(
    buckets: Collection[tuple[str, int]],
    now: Timeline,
    store: TimelineStore,
    is_executed: Callable[[Instant], bool],
) -> None:
    """Pass unless a clustering would refuse a commit to these buckets, before it is begun.

    Args:
        buckets: partition and number of each bucket that is about to be written.
        now: the timeline.
        store: as for ``check_conflicts``.
        is_executed: the same.

    Raises:
        ClusteringPlanned: a clustering without a writer at work is about to replace one.
    """
    for planned, replaced in _clusterings(now, store):
        common = replaced.intersection(buckets)
        if common and not is_executed(planned):
            raise ClusteringPlanned(planned, _described(*min(common, key=str)))


def earlier_unseen_commits(
    ours: Instant, now: Timeline, multi_writer: MultiWriter | None, clock: TimelineClock
) -> list[Instant]:
    """Commits requested before ours that would be written over ours, and hidden by it.

    One is inflight once it has found the file groups of its records; from then on it finds the
    conflict itself. What was requested longer ago than a writer may be silent has looked, however
    long it then reads. Of logs the completion time decides, so delta commits wait for nobody.
    """
    if multi_writer is None or ours.action is not Action.COMMIT:
        return []
    return [
        theirs
        for theirs in now.pending(Action.COMMIT)
        if theirs.state is State.REQUESTED
        and theirs.requested_at < ours.requested_at
        and is_fresh(theirs, multi_writer.heartbeats, clock)
    ]


def _others(
    ours: Instant, began_with: Timeline, now: Timeline, store: TimelineStore
) -> Iterator[tuple[Instant, set[_Place]]]:
    names_slices = store.version.logs_name_their_slice
    for theirs in now.completed(*COMMITS):
        if not began_with.is_committed(theirs.requested_at):
            metadata = store.read_commit(theirs)
            was_planned = began_with.find(theirs.requested_at) is not None
            if not _may_overlap(ours, metadata, was_planned or not names_slices):
                yield theirs, _written(metadata) | _replaced(metadata)
    for planned in now.pending(Action.COMPACTION) if names_slices else ():
        is_new = began_with.find(planned.requested_at) is None
        if is_new and ours.action is Action.DELTA_COMMIT:
            operations = store.read_compaction_plan(planned.requested_at).operations
            groups = [operation.group for operation in operations]
            yield planned, _places((g.partition_path, g.file_id) for g in groups)
    for planned, replaced in _clusterings(now, store):
        if planned.requested_at != ours.requested_at:
            yield planned, replaced


def _clusterings(now: Timeline, store: TimelineStore) -> Iterator[tuple[Instant, set[_Place]]]:
    """Pending clusterings, and the file groups that each is about to replace."""
    for planned in now.pending(*REPLACING):
        plan = store.read_clustering_plan(planned)
        replaced = () if plan is None else plan.groups
        yield planned, _places((g.partition_path, g.file_id) for g in replaced)


def _described(partition: str, place: int | str) -> str:
    return f"file group {place} in partition {partition!r}"


def _may_overlap(ours: Instant, theirs: CommitMetadata, is_planned_for: bool) -> bool:
    """Whether both may write a file group; ``is_planned_for`` if our logs follow their plan."""
    if ours.action is Action.DELTA_COMMIT:
        return theirs.compacted and is_planned_for
    return (
        ours.action is Action.COMPACTION and not theirs.replaced_file_ids and not theirs.compacted
    )


def _written(metadata: CommitMetadata) -> set[_Place]:
    return _places((stat.partition_path or "", stat.file_id) for stat in metadata.write_stats)


def _replaced(metadata: CommitMetadata) -> set[_Place]:
    return _places((p, i) for p, ids in metadata.replaced_file_ids.items() for i in ids)


def _places(groups: Iterable[tuple[str, str]]) -> set[_Place]:
    return {(partition, bucket_or_file_id(file_id)) for partition, file_id in groups}
