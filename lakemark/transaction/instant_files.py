"""Finds the data files of an instant, which a rollback deletes.

The name of a data file contains its instant. A log of table version 6 is an exception: its name
contains the instant of its file slice, and its blocks contain the instant that wrote them. An
upgrade keeps such logs. Apache Hudi 1.2 and lakemark write separate logs for each commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from lakemark.config import keys
from lakemark.errors import CorruptData, Unsupported
from lakemark.log.log_writers import targets_in, writers_in
from lakemark.model.action import REPLACING, Action
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import LogFile, join
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.storage.properties_file import read_properties
from lakemark.storage.storage import NotFound, ObjectInfo, Storage
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.table_context import TableContext
from lakemark.view.file_lister import data_file, list_data_objects, list_own_objects
from lakemark.write.markers import marked_files

#: Maximum difference between our clock and a store's clock, or between two time zones.
_LONGEST_SKEW = timedelta(days=1)


def files_of(context: TableContext, instant: str) -> list[str]:
    """Return the paths of all data files of an instant, relative to the table's root.

    Folders that are not a partition yet are searched, too.

    Raises:
        Unsupported: see ``files_by_instant``.
    """
    return files_by_instant(context, [instant])[instant]


def files_by_instant(context: TableContext, instants: Collection[str]) -> dict[str, list[str]]:
    """Return the files of several instants, with one listing of the table.

    Files of other tables in folders of the table are left out.

    Raises:
        Unsupported: a log of table version 6 contains blocks of several commits.
    """
    storage, names_slice = context.storage, context.timeline.version.logs_name_their_slice
    may_name_slice = names_slice or was_version_6(storage)
    found = {instant: set(marked_files(storage, instant)) for instant in instants}
    for info in list_own_objects(storage):
        file = data_file(info.folder, info.name, info.size_bytes)
        is_named = file is not None and file.name.instant in found
        if isinstance(file, LogFile) and (names_slice or (may_name_slice and not is_named)):
            _find_writer(storage, info, found, context.timeline.clock)
        elif file is not None and is_named:
            found[file.name.instant].add(info.path)
    return {instant: sorted(paths) for instant, paths in found.items()}


def files_named(context: TableContext, instants: Collection[str]) -> dict[str, list[str]]:
    """Return the files whose names contain one of the instants; logs are not opened."""
    found: dict[str, list[str]] = {instant: [] for instant in instants}
    for info in list_own_objects(context.storage):
        file = data_file(info.folder, info.name, info.size_bytes)
        if file is not None and file.name.instant in found:
            found[file.name.instant].append(info.path)
    return found


def was_version_6(storage: Storage) -> bool:
    """Return whether a table may have been upgraded, so that it may contain logs of version 6."""
    initial = read_properties(storage).values.get(keys.INITIAL_VERSION)
    return initial is None or int(initial) < FormatVersion.V8


def _find_writer(
    storage: Storage, info: ObjectInfo, found: Mapping[str, set[str]], clock: TimelineClock
) -> None:
    """Find the instant whose blocks a log contains, and add the log to the instant's files.

    A log is removed from an instant's files if a marker names the log but its blocks are those of
    another instant. The commit was going to append to such a log, which must not be deleted. A log
    that was last changed long before the first of the instants is not opened. An unreadable log is
    skipped, because queries report it. But if a marker names the log, the error is raised.
    """
    marked = [paths for paths in found.values() if info.path in paths]
    if not marked and (not found or info.modified_at < clock.parse(min(found)) - _LONGEST_SKEW):
        return
    try:
        wrote = writers_in(storage, info)
    except NotFound:
        return  # the log was cleaned after it was listed
    except CorruptData:
        if marked:
            raise
        return
    ours = wrote & found.keys()
    if ours and len(wrote) > 1:
        message = (
            f"log {info.path} of {storage.location.url} contains blocks of {sorted(wrote)}: "
            "an older release appended to it; roll back with Apache Hudi"
        )
        raise Unsupported(message)
    for paths in marked if wrote else ():
        paths.discard(info.path)
    for instant in ours:
        found[instant].add(info.path)


def has_all_files(
    context: TableContext, commit: Instant, replaced: Collection[str] = frozenset()
) -> bool:
    """Return whether all files of a completed commit still exist, and no rollback has undone a log.

    The files must have their recorded sizes. The files in ``replaced`` and their change data files
    may be missing, because later commits have replaced these files. In table version 6, a rollback
    of Apache Hudi keeps a log, and adds a block that undoes it (``has_rollback_block``).
    """
    sizes: dict[str, int] = {}
    for stat in context.timeline.read_commit(commit).write_stats:
        if stat.path not in replaced:
            sizes |= stat.sizes_bytes
    found = ((context.storage.head(path), size_bytes) for path, size_bytes in sizes.items())
    if not all(info is not None and info.size_bytes == size for info, size in found):
        return False
    return not any(has_rollback_block(context, path, commit.requested_at) for path in sizes)


def has_rollback_block(context: TableContext, path: str, instant: str) -> bool:
    """Return whether a later rollback block in the file slice of a log targets an instant.

    In table version 6, Apache Hudi rolls back a log by adding such a block. The log remains in the
    table, in compaction plans and in the metadata table.
    """
    folder, _, name = path.rpartition("/")
    log = LogFileName.parse(name)
    if log is None or not context.timeline.version.logs_name_their_slice:
        return False
    files = context.storage.list_folder(folder)[1]
    later = [info for info in files if _comes_after(info.name, log)]
    return any(_undoes(context.storage, info, instant) for info in later)


def _undoes(storage: Storage, log: ObjectInfo, instant: str) -> bool:
    with suppress(NotFound):  # it was deleted after it was listed
        return instant in targets_in(storage, log)
    return False


def _comes_after(name: str, log: LogFileName) -> bool:
    """Return whether a file is a log of the same slice that is read after ``log``."""
    other = LogFileName.parse(name)
    is_of_slice = other and (other.file_id, other.instant) == (log.file_id, log.instant)
    return bool(is_of_slice and other and other.version > log.version)


def has_logs_in_slice(context: TableContext, instant: str) -> bool:
    """Return whether logs belong to the slice that a compaction creates; false after version 6.

    Without the compaction, no reader would find these logs. Commits may write such logs even while
    a rollback of the compaction is pending, because the plan of the compaction exists.
    """
    if not context.timeline.version.logs_name_their_slice:
        return False
    objects = list_data_objects(context.storage)
    files = (data_file(info.folder, info.name, info.size_bytes) for info in objects)
    return any(isinstance(file, LogFile) and file.name.instant == instant for file in files)


def awaited_logs(store: TimelineStore, timeline: Timeline) -> set[str]:
    """Return the logs in plans of pending table services that must exist until then.

    In table version 6, the plan of another writer may contain logs that were still being written,
    and the executor of the plan must find these logs. In later versions, plans contain only logs of
    completed commits, so the result is empty.
    """
    return planned_logs(store, timeline) if store.version.logs_name_their_slice else set()


def planned_logs(store: TimelineStore, timeline: Timeline) -> set[str]:
    """Return the logs in the plans of all pending table services, relative to the table's root."""
    logs = {
        join(operation.group.partition_path, name)
        for pending in timeline.pending(Action.COMPACTION, Action.LOG_COMPACTION)
        for operation in store.read_pending_compaction(pending).operations
        for name in operation.log_files
    }
    for pending in timeline.pending(*REPLACING):
        logs.update(_clustered_logs(store, pending))
    return logs


def _clustered_logs(store: TimelineStore, pending: Instant) -> set[str]:
    """Return the logs in the plan of a clustering; none if it is an overwrite, or was removed."""
    with suppress(NotFound):
        plan = store.read_clustering_plan(pending)
        slices = (one for group in plan.input_groups for one in group.slices) if plan else ()
        return {join(one.group.partition_path, name) for one in slices for name in one.log_files}
    return set()


def delete_unawaited(
    context: TableContext, paths: Sequence[str], awaited: Collection[str], block: bytes
) -> None:
    """Delete files of an instant, except logs that must exist (``awaited_logs``).

    Args:
        context: the table's context.
        paths: the paths of the files.
        awaited: the logs that must exist. Those in ``paths`` are overwritten, so that they have no
            rows.
        block: the block that an overwritten log contains.
    """
    for path in sorted(set(paths).intersection(awaited)):
        context.storage.put(path, block)
    context.delete_files([path for path in paths if path not in awaited])


def as_planned(storage: Storage, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return files in the form of ``RollbackPlan.files``: absolute paths, by partition."""
    root = storage.location.url.rstrip("/")
    partitions: dict[str, tuple[str, ...]] = {}
    for path in paths:
        partition = path.rpartition("/")[0]
        partitions[partition] = (*partitions.get(partition, ()), f"{root}/{path}")
    return partitions


def names_of(files: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the names of a plan's files without folders, by partition."""
    return {folder: [path.rpartition("/")[2] for path in paths] for folder, paths in files.items()}
