"""Checks that a commit may be rolled back: it must be the newest, and no other instant may need it.

A rollback is refused if Apache Hudi's ``BaseRollbackActionExecutor`` refuses it under the eager
policy: because of a savepoint, a later commit, or a pending commit. A rollback is also refused if
rows would be lost. This happens if a planned table service needs the files of the commit, or if a
clean has deleted files that the commit replaced.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.errors import InvalidConfig, Refused
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import join
from lakemark.model.instant import Instant
from lakemark.storage.storage import Storage
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.timeline.undone_instants import find_completed
from lakemark.view.file_lister import data_file

_COMPACTIONS = (Action.COMPACTION, Action.LOG_COMPACTION)
_SERVICES = (*_COMPACTIONS, Action.CLUSTERING)


def check_no_restore(timeline: Timeline) -> None:
    """Check that no restore is pending, because a pending restore is only partly executed.

    Raises:
        Refused: a restore is pending. ``BaseHoodieWriteClient.startCommit`` also refuses this.
    """
    pending = timeline.pending(Action.RESTORE)
    if pending:
        message = f"{pending[0]} is pending; complete it first: lakemark table restore TABLE --run"
        raise Refused(message)


def rollbacks_of_completed_commits(timeline: Timeline, store: TimelineStore) -> dict[str, Instant]:
    """Return the rollbacks that have begun and are to make a completed commit pending again.

    The request that makes the commit pending may take effect at any time, even after the process
    that sent the request has given up.

    Args:
        timeline: the timeline that was just loaded.
        store: reads the plans of the rollbacks.

    Returns:
        The pending rollbacks, by the requested times of their commits.
    """
    completed = {i.requested_at for i in timeline.completed(*COMMITS)}
    return {
        plan.instant: rollback
        for rollback, plan in store.pending_rollbacks(timeline)
        if rollback.state is State.INFLIGHT and plan.instant in completed
    }


def named_instant(timeline: Timeline, requested_at: str) -> Instant:
    """Return the instant with a requested time, if an instant of this kind can be rolled back.

    Raises:
        InvalidConfig: there is no such instant, or the instant writes no rows.
        Refused: the instant is a compaction plan without files. (A clustering plan can be rolled
            back, because the plan prevents commits to its file groups. So can the plan of a log
            compaction, on which no log depends.)
    """
    target = timeline.find(requested_at)
    if target is None or not target.action.is_write:
        found = "is not on the active timeline" if target is None else f"is a {target.action}"
        message = f"instant {requested_at} {found}; name a commit: lakemark table timeline TABLE"
        raise InvalidConfig(message)
    if target.action is Action.COMPACTION and target.state is State.REQUESTED:
        message = (
            f"{target} is a plan, and no file was written for it; there is nothing to roll back"
        )
        raise Refused(message)
    return target


def is_log_plan(target: Instant) -> bool:
    """Return whether an instant is the plan of a log compaction that no writer has begun."""
    return target.action is Action.LOG_COMPACTION and target.state is State.REQUESTED


def check_undoable(
    target: Instant, timeline: Timeline, store: TimelineStore, storage: Storage
) -> None:
    """Check that a rollback of a completed instant would restore the table as it was before.

    Args:
        target: the completed instant.
        timeline: the timeline, just loaded.
        store: the reader of the timeline's instants.
        storage: the storage of the table's root.

    Raises:
        Refused: the rollback would not restore the table; the message contains the remedy.
    """
    for problem in (
        *_later(target, timeline),
        *_only(target, timeline, store),
        *_cleaned(target, timeline, store, storage),
    ):
        message = f"{target} cannot be rolled back: {problem}"
        raise Refused(message)


def _later(target: Instant, timeline: Timeline) -> Iterator[str]:
    name = target.requested_at
    if any(i.requested_at == name for i in timeline.completed(Action.SAVEPOINT)):
        remedy = f"lakemark table savepoint TABLE --delete {name} --run"
        yield f"savepoint {name} keeps it; delete that first: {remedy}"
    later = [i for i in timeline.completed(*COMMITS) if i.requested_at > name]
    if later:
        yield f"{later[-1]} is later; roll that back first, or restore the table"
    for writing in timeline.pending(*COMMITS):
        yield f"{writing} is being written; stop its writer, then roll that back first"
    for service in timeline.pending(*_SERVICES):
        if service.requested_at > name:
            yield f"{service} was planned after it; run that, then roll that back first"
    for clean in timeline.pending(Action.CLEAN):
        yield f"{clean} is pending; run that first: lakemark table clean --run"


def _only(target: Instant, timeline: Timeline, store: TimelineStore) -> Iterator[str]:
    """Yield a problem if no active commit would remain after the rollback.

    Readers treat files as committed if their instants are older than the oldest active write.
    Without any active write, readers would ignore the files of all archived instants, and the next
    commit would create new file groups. An active commit that is already in the history does not
    count, because an archiver may be about to delete it from the active timeline.
    """
    if not timeline.has_history:
        return
    others = (i.requested_at for i in timeline.completed(*COMMITS) if i != target)
    newest = max(others, default=None)
    if newest is None or find_completed(store.load_archived(), [newest]):
        yield (
            "all earlier commits are archived, and readers find archived commits' files only if "
            "there is an active commit; keep this commit, and overwrite its rows"
        )


def _cleaned(
    target: Instant, timeline: Timeline, store: TimelineStore, storage: Storage
) -> Iterator[str]:
    """Yield the files that the commit replaced and that a clean has deleted.

    After a rollback of the commit, the rows in these files would be lost. The files are looked up
    on storage, because the clean may be archived, or its writer may have died before it completed.
    A replaced file group may have lost only some of its slices, if a savepoint keeps the others.
    So the plans of later cleans are read, too.
    """
    metadata = store.read_commit(target)
    for path in _files_replaced_by(target, metadata, store):
        if storage.head(path) is None:
            yield f"{path}, which it replaced, was cleaned"
    for partition, file_ids in metadata.replaced_file_ids.items():
        for file_id in set(file_ids) - _groups_in(storage, partition):
            yield f"file group {file_id} in partition {partition!r}, replaced by it, was cleaned"
    if metadata.replaced_file_ids:
        yield from _cleaned_since(target, metadata, timeline, store)


def _cleaned_since(
    target: Instant, metadata: CommitMetadata, timeline: Timeline, store: TimelineStore
) -> Iterator[str]:
    """Yield the files of replaced file groups that cleans after the commit have deleted."""
    since = target.completed_at or target.requested_at
    for clean in (i for i in timeline.completed(Action.CLEAN) if i.requested_at > since):
        plan = store.read_clean_plan(clean.requested_at)
        if plan is None:
            yield f"the plan of {clean}, which may have deleted files that it replaced, is lost"
            continue
        for partition, names in plan.files.items():
            replaced = metadata.replaced_file_ids.get(partition, ())
            for name in names:
                file = data_file(partition, name, 0)
                if file is not None and file.name.file_id in replaced:
                    yield f"{file.path}, which it replaced, was cleaned"


def replaced_since(commit: Instant, timeline: Timeline, store: TimelineStore) -> set[str]:
    """Return the paths of a commit's files that later commits have replaced.

    A clean may have deleted these files. The later commits have read the rows of these files, so
    the commit had completed.
    """
    paths: set[str] = set()
    groups: set[tuple[str, str]] = set()
    for later in timeline.completed(*COMMITS):
        if later.requested_at > commit.requested_at:
            metadata = store.read_commit(later)
            paths.update(_files_replaced_by(later, metadata, store))
            replaced = metadata.replaced_file_ids.items()
            groups.update((partition, name) for partition, names in replaced for name in names)
    return {
        stat.path
        for stat in store.read_commit(commit).write_stats
        if stat.path and (stat.path in paths or (stat.partition_path or "", stat.file_id) in groups)
    }


def _files_replaced_by(
    commit: Instant, metadata: CommitMetadata, store: TimelineStore
) -> list[str]:
    if metadata.compacted and commit.action is Action.COMMIT:  # a log compaction has another plan
        plan = store.read_compaction_plan(commit.requested_at)
        return [
            join(one.group.partition_path, name)
            for one in plan.operations
            for name in (one.data_file, *one.log_files)
            if name
        ]
    stats = metadata.write_stats
    return [join(s.partition_path or "", s.prev_base_file) for s in stats if s.prev_base_file]


def _groups_in(storage: Storage, partition: str) -> set[str]:
    _, objects = storage.list_folder(partition)
    files = (data_file(partition, info.name, info.size_bytes) for info in objects)
    return {file.name.file_id for file in files if file is not None}
