"""The data files that one instant wrote: what a rollback deletes.

A file is named after its instant, but for a log of table version 6: that is named after its slice,
and its blocks say who wrote it. An upgrade keeps such logs. Hudi 1.2 and this project give each
commit logs of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from lakemark.config import keys
from lakemark.errors import CorruptData, Unsupported
from lakemark.log.log_writers import targets_in, writers_in
from lakemark.model.action import Action
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
from lakemark.view.file_lister import data_file, list_data_objects
from lakemark.write.markers import marked_files

#: How far a store's clock, or the zone of a table's instants, may be from ours.
_LONGEST_SKEW = timedelta(days=1)


def files_of(context: TableContext, instant: str) -> list[str]:
    """Paths (from the table's root) of every data file of the instant.

    Folders that are no partition yet are searched, too.

    Raises:
        Unsupported: see ``files_by_instant``.
    """
    return files_by_instant(context, [instant])[instant]


def files_by_instant(context: TableContext, instants: Collection[str]) -> dict[str, list[str]]:
    """The same of several instants, with one listing of the table.

    Raises:
        Unsupported: a log of table version 6 holds blocks of other commits, too.
    """
    storage, names_slice = context.storage, context.timeline.version.logs_name_their_slice
    may_name_slice = names_slice or _was_version_6(storage)
    found = {instant: set(marked_files(storage, instant)) for instant in instants}
    for info in list_data_objects(storage):
        file = data_file(info.folder, info.name, info.size_bytes)
        is_named = file is not None and file.name.instant in found
        if isinstance(file, LogFile) and (names_slice or (may_name_slice and not is_named)):
            _find_writer(storage, info, found, context.timeline.clock)
        elif file is not None and is_named:
            found[file.name.instant].add(info.path)
    return {instant: sorted(paths) for instant, paths in found.items()}


def _was_version_6(storage: Storage) -> bool:
    """Whether a table may have been upgraded, so that logs of version 6 may be left."""
    initial = read_properties(storage).values.get(keys.INITIAL_VERSION)
    return initial is None or int(initial) < FormatVersion.V8


def _find_writer(
    storage: Storage, info: ObjectInfo, found: Mapping[str, set[str]], clock: TimelineClock
) -> None:
    """Add a log to what the instant wrote whose blocks it holds.

    A marker may name a log that was there before, to be appended to: that is not to be deleted. One
    that was last changed well before the first of the instants is not opened, and one that nobody
    can read is left to its readers, who say so.
    """
    marked = [paths for paths in found.values() if info.path in paths]
    if not marked and (not found or info.modified_at < clock.parse(min(found)) - _LONGEST_SKEW):
        return
    try:
        wrote = writers_in(storage, info)
    except NotFound:
        return  # cleaned since it was listed
    except CorruptData:
        if marked:
            raise
        return
    ours = wrote & found.keys()
    if ours and len(wrote) > 1:
        message = (
            f"log {info.path} of {storage.location.url} holds blocks of {sorted(wrote)}: "
            "an older release appended to it; roll back with Apache Hudi"
        )
        raise Unsupported(message)
    for paths in marked if wrote else ():
        paths.discard(info.path)
    for instant in ours:
        found[instant].add(info.path)


def is_whole(context: TableContext, commit: Instant) -> bool:
    """Whether the files of a completed commit are as it left them: none gone, none replaced."""
    sizes: dict[str, int] = {}
    for stat in context.timeline.read_commit(commit).write_stats:
        sizes |= {stat.path: stat.file_size_in_bytes} if stat.path else {}
        sizes |= stat.cdc_stats or {}
    found = ((context.storage.head(path), size_bytes) for path, size_bytes in sizes.items())
    return all(info is not None and info.size_bytes == size for info, size in found)


def is_taken_back(context: TableContext, path: str, instant: str) -> bool:
    """Whether a later block in the slice of a log takes the instant's blocks back for good.

    So Apache Hudi rolls back in table version 6: the log stays, compactions are planned with it,
    and metadata tables tell of it.
    """
    folder, _, name = path.rpartition("/")
    log = LogFileName.parse(name)
    if log is None or not context.timeline.version.logs_name_their_slice:
        return False
    beside = context.storage.list_folder(folder)[1]
    later = [info for info in beside if _comes_after(info.name, log)]
    return any(instant in targets_in(context.storage, info) for info in later)


def _comes_after(name: str, log: LogFileName) -> bool:
    """Whether a log of that name is read after this one, in the same slice."""
    other = LogFileName.parse(name)
    is_of_slice = other and (other.file_id, other.instant) == (log.file_id, log.instant)
    return bool(is_of_slice and other and other.version > log.version)


def awaited_logs(store: TimelineStore, timeline: Timeline) -> set[str]:
    """Logs that a pending compaction is to read, whether their commits completed or not.

    Only in table version 6, where another writer's plan may name what was being written then; who
    executes it must find them. Later ones hold what has completed, and that stays.
    """
    if not store.version.logs_name_their_slice:
        return set()
    plans = (
        store.read_compaction_plan(i.requested_at) for i in timeline.pending(Action.COMPACTION)
    )
    operations = (operation for plan in plans for operation in plan.operations)
    return {join(one.group.partition_path, name) for one in operations for name in one.log_files}


def as_planned(storage: Storage, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The same files as plans name them: absolute, by partition."""
    root = storage.location.url.rstrip("/")
    partitions: dict[str, tuple[str, ...]] = {}
    for path in paths:
        partition = path.rpartition("/")[0]
        partitions[partition] = (*partitions.get(partition, ()), f"{root}/{path}")
    return partitions


def names_of(files: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The files of a plan by their names alone."""
    return {folder: [path.rpartition("/")[2] for path in paths] for folder, paths in files.items()}
