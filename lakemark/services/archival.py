"""Archives old instants: moves them from the active timeline to the archive.

The order of the steps is safe for readers, and after a crash:

1. Delete files that late writers left behind for instants that were rolled back. Once the active
   timeline starts after such an instant, readers would treat its files as committed.
2. Add the old instants to the archive. Readers do not see them in the archive until its manifest
   names the new file.
3. Remove the instants from the active timeline, the oldest first, and pending states before
   completed ones. So no instant seems pending again, and the active timeline never has a gap.

Between steps 2 and 3 an instant is in both timelines, with the same content. If a crash left it in
both, the next archival finds it in the archive and only removes it from the active timeline.
Source: ``TimelineArchiverV2`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from lakemark.errors import TableNotFound
from lakemark.metadata.metadata_compaction import last_compaction
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import REPLACING, Action
from lakemark.model.commit_metadata import Operation
from lakemark.model.file_slice import BaseFile
from lakemark.model.instant import Instant
from lakemark.services.archival_plan import ArchivalPolicy, is_due, plan
from lakemark.services.cleaning import last_clean
from lakemark.services.cleaning_plan import CleaningPolicy, commits_by_request
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.storage.storage import Storage
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.lsm_writer import HistorySettings
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.timeline.undone_instants import find_emptied_at
from lakemark.transaction.instant_files import files_by_instant, has_rollback_block
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.view.file_lister import data_file, list_own_files
from lakemark.view.lost_attempts import names_instant
from lakemark.write.markers import drop_markers_before

#: Returns requested times; the instants from the earliest of these times on must stay active.
KeepFrom = Callable[[Timeline], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of an archival.

    Attributes:
        instants: instants that were removed from the active timeline, oldest first.
        timeline: the active timeline that remains.
        leftovers: paths of the deleted files that late writers had left behind.
    """

    instants: tuple[Instant, ...]
    timeline: Timeline
    leftovers: tuple[str, ...] = ()


def propose(
    store: TimelineStore,
    timeline: Timeline,
    policy: ArchivalPolicy,
    cleaning: CleaningPolicy | None,
    keep_from: KeepFrom,
) -> tuple[Instant, ...]:
    """Return the instants to archive now, if any.

    Nothing is read while the active timeline is short enough.

    Args:
        store: reads the timeline's instants.
        timeline: the active timeline.
        policy: limits of the active timeline.
        cleaning: the table's cleaning policy, which needs some active commits; None if the table is
            not cleaned.
        keep_from: returns the requested times of further instants that must stay active.
    """
    wanted = policy.with_commits_of_cleaning(cleaning, timeline, store.clock)
    if not is_due(timeline, wanted):
        return ()
    limits = list(replaced_and_not_cleaned(store, timeline))
    if not plan(timeline, wanted, store.version, limits):
        return ()
    return plan(timeline, wanted, store.version, [*limits, *keep_from(timeline)])


def archive(
    context: TableContext,
    policy: ArchivalPolicy,
    cleaning: CleaningPolicy | None,
    keep_from: KeepFrom,
) -> Archived | None:
    """Archive the instants that are due; None if none are due.

    This also completes the archival of a writer that died.

    Args:
        context: the table.
        policy: limits of the active timeline.
        cleaning: the table's cleaning policy, which needs some active commits; None if the table is
            not cleaned.
        keep_from: returns the requested times of further instants that must stay active; called
            under the lock.

    Raises:
        Refused: a restore is pending.
    """
    store = context.timeline
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = store.load()
        check_no_restore(timeline)
        instants = propose(store, timeline, policy, cleaning, keep_from)  # model: plan archival
        if not instants:
            return None
        left = store.without(timeline, set(instants))
        leftovers = _delete_leftovers(context, timeline, left, lease)
        lease.check()
        drop_markers_before(context.storage, left)
        _drop_pending_savepoints(store, timeline, instants)
        store.archive(instants, lease.check, HistorySettings(policy.files_to_merge))
        return Archived(instants, left, leftovers)


def _drop_pending_savepoints(
    store: TimelineStore, timeline: Timeline, instants: Collection[Instant]
) -> None:
    """Delete pending savepoints, whose process died, of commits that are archived now or earlier.

    They protect nothing, but would be older than archived commits; see ``archival_plan``.
    """
    last = max(instant.requested_at for instant in instants)
    for pending in timeline.pending(Action.SAVEPOINT):
        if pending.requested_at <= last:
            store.forget(pending)


def metadata_compacted_at(storage: Storage, clock: TimelineClock) -> str:
    """Return when the metadata table of a data table was last compacted; "" if never.

    This lists the metadata table's timeline. If another process is dropping the metadata table, the
    result is "", so the data table keeps all instants until the next archival.

    Args:
        storage: the data table's root.
        clock: the data table's clock.
    """
    own = FolderStorage(storage, METADATA_FOLDER)
    try:
        properties = read_properties(own)
    except TableNotFound:
        return ""
    return last_compaction(TimelineStore.of_table(own, properties, clock=clock).load())


def metadata_table_limit(compacted_at: str, timeline: Timeline) -> list[str]:
    """Return the oldest instant that a data table keeps because of its metadata table, if any.

    The data table keeps all instants that completed after the metadata table's last compaction,
    because they decide which log blocks of the metadata table are valid. Without a compaction, all
    instants are kept.

    Args:
        compacted_at: requested time of the metadata table's last compaction; with an older time,
            more instants are kept.
        timeline: the data table's active timeline.
    """
    since = (i for i in commits_by_request(timeline) if (i.completed_at or "") > compacted_at)
    return [i.requested_at for i in since][:1]


def replaced_and_not_cleaned(store: TimelineStore, timeline: Timeline) -> Iterator[str]:
    """Yield the instants that replaced file groups whose files may still exist.

    If such an instant were archived, readers would read the replaced file groups again
    (``ClusteringUtils.getEarliestInstantToRetainForClustering``).
    """
    replacing = [i for i in timeline.instants if i.action in REPLACING]
    if not replacing:
        return
    last = last_clean(timeline)
    clean = store.read_clean(last) if last else None
    if last is None or clean is None:
        yield replacing[0].requested_at
        return
    cleaned_until = min([clean.earliest_retained or last.requested_at, *clean.savepoints])
    for instant in replacing:
        is_late = (instant.completed_at or last.requested_at) >= last.requested_at
        if instant.requested_at >= cleaned_until or is_late:
            yield instant.requested_at


def _delete_leftovers(
    context: TableContext, before: Timeline, after: Timeline, lease: Lease
) -> tuple[str, ...]:
    """Delete files that late writers left behind for instants that a rollback or restore undid.

    Only instants that a rollback or a restore names are considered, and those before a restore to
    the empty table, so that no data is deleted if the archive was lost. Folders are listed only if
    there are such instants.
    """
    names = _taken_back(context.timeline, before, after)
    files = files_by_instant(context, names) if names else {}
    found = [
        path
        for name, paths in files.items()
        for path in paths
        if not has_rollback_block(context, path, name)
    ]
    found += _lost_attempts(context, before, after)
    found += _written_before_restore(context, before)
    lease.check()
    context.delete_files(found)
    return tuple(found)


def _lost_attempts(context: TableContext, before: Timeline, after: Timeline) -> list[str]:
    """Return the unused files of compactions that are older than the start of ``after``.

    Attempts that had lost the compaction, or log compaction, to another attempt wrote these files
    late, so no completed commit names them. All attempts execute the same plan, so only the
    partitions that the commits wrote are listed. The names of logs of table version 6 do not show
    who wrote them, so these logs are left to cleaning.
    """
    store, end = context.timeline, after.start or ""
    names_slice = store.version.logs_name_their_slice
    actions = (Action.COMMIT,) if names_slice else (Action.COMMIT, Action.DELTA_COMMIT)
    commits = (i for i in before.completed(*actions) if i.requested_at < end)
    read = {i.requested_at: store.read_commit(i) for i in commits}
    compactions = {
        name: commit
        for name, commit in read.items()
        if commit.compacted or commit.operation == Operation.LOG_COMPACT
    }
    stats = [stat for commit in compactions.values() for stat in commit.write_stats]
    folders = sorted({stat.partition_path or "" for stat in stats})
    listed = (info for folder in folders for info in context.storage.list_folder(folder)[1])
    files = (data_file(info.folder, info.name, info.size_bytes) for info in listed)
    found = {
        file.path
        for file in files
        if file and names_instant(file, store.version) and file.name.instant in compactions
    }
    return sorted(found.difference(path for stat in stats for path in stat.sizes_bytes))


def _written_before_restore(context: TableContext, timeline: Timeline) -> list[str]:
    """Return the base files of instants that are older than a restore to the empty table.

    The restore deleted their files, so a writer that was at work meanwhile wrote these later. The
    table is listed only by the first archival after the restore. (In table version 6 the restore
    stays active.) A log of table version 6 is kept, because a later commit may have written it.
    """
    store = context.timeline
    emptied_at = find_emptied_at(store, timeline)
    files = store.load_archived().files if emptied_at else ()
    archived = (instant for file in files for instant in file.instants())
    if not emptied_at or any(instant.requested_at > emptied_at for instant in archived):
        return []
    return [
        file.path
        for _, file in list_own_files(context.storage)
        if isinstance(file, BaseFile)
        and file.name.is_certain
        and file.name.instant < emptied_at
        and timeline.find(file.name.instant) is None
    ]


def _taken_back(store: TimelineStore, before: Timeline, after: Timeline) -> list[str]:
    """Return the undone instants that were requested between the starts of the two timelines.

    A completed rollback or restore names these instants, and the archive does not contain them.
    """
    start, end = before.start or "", after.start or ""
    rollbacks, restores = before.completed(Action.ROLLBACK), before.completed(Action.RESTORE)
    targets = {store.read_rollback(rollback).instant for rollback in rollbacks}
    for restore in restores:
        plan = store.read_restore_plan(restore.requested_at)
        targets |= {undone.requested_at for undone in plan.instants}
    gone = [name for name in targets if start <= name < end and before.find(name) is None]
    archive = store.load_archived() if gone else None
    return sorted(name for name in gone if archive is None or archive.find(name) is None)
