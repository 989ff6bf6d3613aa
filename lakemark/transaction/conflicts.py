"""Detects conflicts of a commit with instants that completed after the commit began.

- Two commits that write the same file group conflict. Two commits that create a file group in the
  same bucket also conflict, because each bucket must have only one file group.
- A non-blocking writer (``lakemark.operations.non_blocking``) writes only logs, and all
  non-blocking writers choose the same file group for a bucket. So the commit of such a writer does
  not conflict with another commit to the same file group. But it conflicts with a commit that
  created another file group in the bucket, as writers that are not non-blocking do.
- A delta commit and a compaction of the same file group do not conflict. The completion time of a
  log decides whether the log belongs to the slice that the compaction reads or to the slice that
  the compaction creates. But in table version 6, the name of a log contains its slice from the
  beginning. So the new slice of a compaction that was planned in between would not contain the log.
  Therefore such a compaction is a conflict.
- A log compaction conflicts with compactions and replacements of its file groups, pending or
  completed in between. It contains no other rows than the logs that it replaces. In the slice that
  such a compaction creates, it would be read after the base file, which may have later rows, by
  readers that do not skip replaced blocks.
- In a table without a bucket index, a new key may be written to any file group of its partition. So
  two commits that add keys to the same partition conflict, because they may add the same key.
  Apache Hudi does not detect this, and stores such a key twice. If keys are unique in the whole
  table, any two commits that add keys conflict, unless a record index shows the keys that another
  commit has added. A bulk insert does not conflict with the commits
  that completed in between, because it never looks for stored keys. But a commit that looked up its
  keys conflicts with a bulk insert that completed in between.
- A clustering replaces whole file groups. A planned clustering already conflicts, because rows that
  are written after the plan would be lost. If the heartbeat of the clustering's writer is alive,
  the commit may be retried. Otherwise the commit is refused. Then an operator must remove the plan
  or have it executed; in a table with a bucket index, Apache Hudi cannot execute it. The plan of a
  resize with consistent hashing is executed by the next process before it writes, so the commit may
  be tried again after that.
- A commit that replaces the rows of partitions conflicts with every commit that wrote to one of
  these partitions in between, and a commit conflicts with every replacement of a partition that it
  writes. Otherwise rows that were written in between might survive an overwrite, or a commit might
  skip a row because of a stored row that was deleted. A pending compaction of a replaced file group
  conflicts too, because its new file would outlive the file group.

An Apache Hudi writer reads the table after it has requested its instant, and treats commits that
complete in between as part of its base. If it rewrites base files, as in a copy-on-write table, the
names of its new slices then contain an earlier time than the names of those commits' slices. So no
reader finds the rows of this writer. Therefore lakemark does not publish a commit before such a
writer has read the table (``earlier_unseen_commits``).

Source: ``SimpleConcurrentFileWritesConflictResolutionStrategy`` (of table version 8 and later) and
``BucketIndexConcurrentFileWritesConflictResolutionStrategy``. ``lakemark.transaction.transaction``
checks whether the commit itself is being rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeAlias

from lakemark.config.keys import GLOBAL_LOOKUP, INDEX, LOOKUP
from lakemark.errors import Retriable, WriteConflict
from lakemark.index.bucket import bucket_or_file_id
from lakemark.model.action import COMMITS, REPLACING, Action, State
from lakemark.model.clustering_plan import NEW_BUCKETS
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.file_names import LogFileName
from lakemark.model.instant import Instant
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.heartbeat import is_fresh
from lakemark.transaction.multi_writer import MultiWriter

#: Represents any file group of a partition that receives new keys.
_NEW_KEYS = "new keys"

#: Represents any file group of the table, if keys are unique in all partitions.
_ANY_NEW_KEYS = ("", "new keys to any partition")

#: Represent all file groups of a partition, or of the table, to which any commit writes.
_ANY_GROUP, _ANY_PARTITION = "any file group", ("", "any partition")

#: Represents all file groups of a partition whose rows are replaced.
_REPLACED_PARTITION = "all rows"

#: A file group: its partition, and its bucket (or its file id if the table has no buckets).
_FileGroup: TypeAlias = tuple[str, int | str]


class ReplacementPending(Retriable):
    """A pending clustering or resize will replace a file group that a commit writes.

    The commit may be tried again when the plan has been executed or removed.

    Attributes:
        planned: the pending instant.
    """

    def __init__(self, planned: Instant, message: str) -> None:
        super().__init__(message)
        self.planned = planned


class ClusteringPlanned(ReplacementPending):
    """A clustering is planned for a file group that a commit writes, but no writer executes it.

    It is no ``WriteConflict``: a repetition in this process fails, too, unless this process or an
    operator executes or removes the plan.
    """

    def __init__(self, planned: Instant, group: str) -> None:
        super().__init__(
            planned,
            f"{planned} is about to replace {group}, so nothing can be written there; execute the "
            "plan (lakemark table cluster TABLE --run, or with Apache Hudi), or remove it "
            f"(lakemark table rollback TABLE {planned.requested_at} --run); in a table with a "
            "fixed number of buckets, no writer can execute the plan, so remove it, and switch "
            "clustering off in the job that planned it",
        )


class ResizePlanned(ReplacementPending, WriteConflict):
    """A resize is planned for a bucket that a commit writes, but no writer executes it.

    The resize is executed by a writer that starts, so the commit may be tried again after a start.
    """

    def __init__(self, planned: Instant, group: str) -> None:
        super().__init__(
            planned,
            f"{planned} is about to split or merge {group}, and the process that planned it has "
            "died, so nothing was published; the next start of a writer executes the plan, and so "
            "does lakemark table resize-buckets TABLE --run",
        )


class ClusteringExecuted(ReplacementPending, WriteConflict):
    """A live writer is rewriting a file group that a commit writes.

    The commit may be tried again when the clustering, or the resize, has been completed or removed.
    """

    def __init__(self, ours: str, planned: Instant, group: str) -> None:
        super().__init__(
            planned,
            f"instant {ours} and {planned}, which another writer executes, both write {group}; "
            "nothing was published, and the batch can start again when that writer has finished",
        )


class BucketCountsChanged(WriteConflict):
    """Another writer has changed the bucket counts of partitions since the table was opened.

    A writer that opens the table again has the new counts.
    """

    def __init__(self, url: str) -> None:
        super().__init__(
            f"the bucket counts of partitions of table {url} were changed; open the table again, "
            "and write again"
        )
        self.url = url


def check_conflicts(
    ours: Instant,
    metadata: CommitMetadata,
    began_with: Timeline,
    now: Timeline,
    store: TimelineStore,
    is_executed: Callable[[Instant], bool],
    *,
    non_blocking: bool = False,
) -> None:
    """Check a commit for conflicts before it is published.

    Args:
        ours: the instant of our commit.
        metadata: the metadata of our commit.
        began_with: the timeline on which our commit is based.
        now: the timeline that was loaded under the lock.
        store: the reader of the timeline's instants.
        is_executed: returns whether the heartbeat of a planned clustering's writer is alive.
        non_blocking: whether our writer is non-blocking. Then other commits may write to the file
            groups of our logs, because the order of the commits does not decide which row wins.

    Raises:
        WriteConflict: a commit that completed in between changed one of our file groups; or a file
            slice to which we wrote was rolled back; or a commit that was pending when ours began
            was archived.
        ClusteringExecuted: a clustering of one of our file groups is being executed.
        ResizePlanned: a resize of one of our buckets is planned, and no live writer executes it.
        ClusteringPlanned: a clustering of one of our file groups is planned, and no live writer
            executes the plan.
    """
    groups = _written(metadata)
    if _looks_up_keys(ours, metadata):
        added = _partitions_with_new_keys(metadata)
        groups |= added
        is_global = metadata.extra_metadata[INDEX] == GLOBAL_LOOKUP
        if added and is_global and not _updates_record_index(metadata):
            groups.add(_ANY_NEW_KEYS)
    groups |= _partitions_of(metadata)
    is_shared = non_blocking and ours.action is Action.DELTA_COMMIT
    ignored = _file_ids(s for s in metadata.write_stats if is_shared and not s.is_base_file)
    for theirs, touched in _others((ours, metadata), began_with, now, store, ignored):
        common = groups & touched
        if common:
            group = _describe(*min(common, key=str))
            is_plan = theirs.action in REPLACING and not theirs.is_completed
            if is_plan and not ours.action.is_table_service:
                if not is_executed(theirs):
                    raise _not_executed(theirs, group, store)
                raise ClusteringExecuted(ours.requested_at, theirs, group)
            message = (
                f"instant {ours.requested_at} and {theirs} both write {group}; nothing was "
                "published, and the batch can start again"
            )
            raise WriteConflict(message)
    if store.version.logs_name_their_slice:
        _check_slices(ours, metadata, now)
    for unseen in began_with.pending(*COMMITS):
        if now.find(unseen.requested_at) is None and now.is_archived(unseen.requested_at):
            message = f"{unseen} was archived after {ours.requested_at} began; start again"
            raise WriteConflict(message)


def check_not_planned(
    buckets: Collection[tuple[str, int]],
    now: Timeline,
    store: TimelineStore,
    is_executed: Callable[[Instant], bool],
) -> None:
    """Check before a commit begins that no planned clustering prevents the commit.

    Args:
        buckets: the partition and number of each bucket to write.
        now: the current timeline.
        store: the reader of the timeline's instants.
        is_executed: see ``check_conflicts``.

    Raises:
        ClusteringPlanned: a clustering of one of the buckets is planned, and no live writer
            executes the plan.
        ResizePlanned: the clustering is a resize of buckets.
    """
    for planned, replaced in _clusterings(now, store):
        common = replaced.intersection(buckets)
        if common and not is_executed(planned):
            raise _not_executed(planned, _describe(*min(common, key=str)), store)


def earlier_unseen_commits(
    ours: Instant,
    metadata: CommitMetadata,
    now: Timeline,
    multi_writer: MultiWriter | None,
    clock: TimelineClock,
) -> list[Instant]:
    """Return commits requested before ours whose writers may not have read the table yet.

    If our commit were published first, such a commit would be based on ours. But our slices have
    later names, so our slices would hide the rows of that commit. Inflight commits are omitted, and
    so are commits that were requested longer ago than a heartbeat takes to expire. Their writers
    have already read the table, so these writers detect the conflict. If our commit is a delta
    commit, the result is empty, because the completion time of a log decides its order. An
    exception is a delta commit that wrote base files in a table with a lookup index, because such a
    table rewrites small base files. Another one is a commit that replaces rows, because all of its
    files are base files, which such a writer may rewrite.
    """
    is_slice_hidden = (
        ours.action is Action.COMMIT
        or metadata.replaces_rows
        or (
            _has_lookup_index(ours, metadata)
            and any(stat.is_base_file for stat in metadata.write_stats)
        )
    )
    if multi_writer is None or not is_slice_hidden:
        return []
    actions = (Action.COMMIT, Action.DELTA_COMMIT) if metadata.replaces_rows else (ours.action,)
    return [
        theirs
        for theirs in now.pending(*actions)
        if theirs.state is State.REQUESTED
        and theirs.requested_at < ours.requested_at
        and is_fresh(theirs, multi_writer.heartbeats, clock)
    ]


def _check_slices(ours: Instant, metadata: CommitMetadata, now: Timeline) -> None:
    """Check that the slices in the names of our logs exist, in table version 6.

    A slice begins with the plan of a compaction. The plan no longer exists if the compaction had
    completed and was then rolled back by another writer.
    """
    for stat in metadata.write_stats:
        log = LogFileName.parse((stat.path or "").rpartition("/")[2])
        if log is None or now.is_committed(log.instant) or now.find(log.instant) is not None:
            continue
        message = (
            f"{stat.path} belongs to the slice of compaction {log.instant}, which was rolled back "
            f"after {ours.requested_at} began; nothing was published, and the batch can start again"
        )
        raise WriteConflict(message)


def _others(
    commit: tuple[Instant, CommitMetadata],
    began_with: Timeline,
    now: Timeline,
    store: TimelineStore,
    ignored: Collection[tuple[str, str]],
) -> Iterator[tuple[Instant, set[_FileGroup]]]:
    """Yield each other instant that may conflict with a commit, with what the instant touches.

    Files that other commits wrote to the file groups ``ignored`` are no conflict.
    """
    names_slices = store.version.logs_name_their_slice
    ours, replaces_rows = commit[0], commit[1].replaces_rows
    for theirs in now.completed(*COMMITS):
        if not began_with.is_committed(theirs.requested_at):
            metadata = store.read_commit(theirs)
            was_planned = began_with.find(theirs.requested_at) is not None
            if not _may_overlap(ours, metadata, was_planned or not names_slices):
                added = _partitions_with_new_keys(metadata)
                if added:
                    added.add(_ANY_NEW_KEYS)
                touched = _written(metadata, ignored) | _replaced(metadata) | added
                yield theirs, touched | _touched_partitions(metadata)
    closes = replaces_rows or ours.action is Action.LOG_COMPACTION
    for planned in now.pending(Action.COMPACTION) if names_slices or closes else ():
        is_new = began_with.find(planned.requested_at) is None
        if closes or (is_new and ours.action is Action.DELTA_COMMIT):
            operations = store.read_pending_compaction(planned).operations
            groups = [operation.group for operation in operations]
            yield planned, _file_groups((g.partition_path, g.file_id) for g in groups)
    for planned, replaced in _clusterings(now, store):
        if planned.requested_at != ours.requested_at:
            yield planned, replaced


def _clusterings(now: Timeline, store: TimelineStore) -> Iterator[tuple[Instant, set[_FileGroup]]]:
    """Yield each pending clustering with the file groups that it replaces."""
    for planned in now.pending(*REPLACING):
        plan = store.read_clustering_plan(planned)
        replaced = () if plan is None else plan.groups
        yield planned, _file_groups((g.partition_path, g.file_id) for g in replaced)


def _not_executed(
    planned: Instant, group: str, store: TimelineStore
) -> ClusteringPlanned | ResizePlanned:
    """Return the error of a commit to a file group of a plan that no writer executes."""
    plan = store.read_clustering_plan(planned)
    is_resize = plan is not None and any(NEW_BUCKETS in g.extra_metadata for g in plan.input_groups)
    return (ResizePlanned if is_resize else ClusteringPlanned)(planned, group)


def _looks_up_keys(ours: Instant, metadata: CommitMetadata) -> bool:
    """Return whether our commit may depend on the keys that a lookup index found."""
    is_search = metadata.operation != Operation.BULK_INSERT
    return is_search and _has_lookup_index(ours, metadata)


def _has_lookup_index(ours: Instant, metadata: CommitMetadata) -> bool:
    """Return whether our commit is that of a writer with a lookup index."""
    is_writer = ours.action in (Action.COMMIT, Action.DELTA_COMMIT) or metadata.replaces_rows
    return is_writer and metadata.extra_metadata.get(INDEX) in (LOOKUP, GLOBAL_LOOKUP)


def _partitions_with_new_keys(metadata: CommitMetadata) -> set[_FileGroup]:
    """Return an entry for each partition to which a commit adds keys."""
    if not metadata.may_change_schema:
        return set()  # a table service
    return {
        (stat.partition_path or "", _NEW_KEYS)
        for stat in metadata.write_stats
        if stat.is_base_file and (stat.num_inserts or stat.prev_commit in (None, "null"))
    }


def _partitions_of(metadata: CommitMetadata) -> set[_FileGroup]:
    """Return the entries by which our commit conflicts with commits to the same partitions.

    These are entries of ``_touched_partitions``, and the replaced file groups.
    """
    if not metadata.replaces_rows:
        return {(path, _REPLACED_PARTITION) for path in _written_partitions(metadata)}
    entries = {(path, _ANY_GROUP) for path in metadata.replaced_partitions}
    if metadata.operation == Operation.INSERT_OVERWRITE_TABLE:
        entries.add(_ANY_PARTITION)
    return entries | _replaced(metadata)


def _touched_partitions(metadata: CommitMetadata) -> set[_FileGroup]:
    """Return the entries for the partitions that another commit writes, and those it replaces."""
    touched = {(path, _REPLACED_PARTITION) for path in metadata.replaced_partitions}
    written = _written_partitions(metadata) | metadata.replaced_partitions
    touched |= {(path, _ANY_GROUP) for path in written}
    return touched | ({_ANY_PARTITION} if written else set())


def _written_partitions(metadata: CommitMetadata) -> set[str]:
    return {stat.partition_path or "" for stat in metadata.write_stats}


def _updates_record_index(metadata: CommitMetadata) -> bool:
    """Return whether the keys of our files were collected for a record index, which checks them."""
    return all(stat.key_changes is not None for stat in metadata.write_stats)


def _describe(partition: str, bucket: int | str) -> str:
    if (partition, bucket) == _ANY_NEW_KEYS:
        return "new keys to the table, whose keys are unique in all partitions"
    if bucket == _NEW_KEYS:
        return f"new keys to partition {partition!r}"
    if (partition, bucket) == _ANY_PARTITION:
        return "rows of the table, all of which one of them replaces"
    if bucket in (_ANY_GROUP, _REPLACED_PARTITION):
        return f"partition {partition!r}, all rows of which one of them replaces"
    return f"file group {bucket} in partition {partition!r}"


def _may_overlap(ours: Instant, theirs: CommitMetadata, is_planned_for: bool) -> bool:
    """Return whether our commit and the other commit may write the same file group.

    Args:
        ours: our instant.
        theirs: the metadata of the other commit.
        is_planned_for: whether our logs belong to the slice that their compaction creates.
    """
    if theirs.operation == Operation.LOG_COMPACT:
        return ours.action in (Action.DELTA_COMMIT, Action.COMPACTION)
    if ours.action is Action.DELTA_COMMIT:
        return theirs.compacted and is_planned_for
    is_compaction = ours.action in (Action.COMPACTION, Action.LOG_COMPACTION)
    return is_compaction and not theirs.replaced_file_ids and not theirs.compacted


def _written(
    metadata: CommitMetadata, ignored: Collection[tuple[str, str]] = ()
) -> set[_FileGroup]:
    return _file_groups(_file_ids(metadata.write_stats).difference(ignored))


def _file_ids(written: Iterable[WriteStat]) -> frozenset[tuple[str, str]]:
    """Return the partition and file id of the file group of each file."""
    return frozenset((stat.partition_path or "", stat.file_id) for stat in written)


def _replaced(metadata: CommitMetadata) -> set[_FileGroup]:
    return _file_groups((p, i) for p, ids in metadata.replaced_file_ids.items() for i in ids)


def _file_groups(groups: Iterable[tuple[str, str]]) -> set[_FileGroup]:
    return {(partition, bucket_or_file_id(file_id)) for partition, file_id in groups}
