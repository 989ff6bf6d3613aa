"""What a restore to the empty table does in addition to other restores.

Before the first commit is undone, the columns of the table are stored in its properties, because
otherwise only commits have them.

After the last active commit was undone, queries read no file. Then the archived commits are
removed: their data files, and then the archive. Without this step, the next commit would make the
files of archived commits visible again, because readers treat files as committed if their instants
are older than the oldest active write. And a streamer would resume from a checkpoint in the
archive.
"""

from __future__ import annotations

from collections import defaultdict

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.index.partition_buckets import delete_partition_buckets_before
from lakemark.index.ring_files import delete_rings_before
from lakemark.model.action import COMMITS, Action
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.storage.properties_file import read_properties, replace_properties
from lakemark.storage.storage import Storage
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.instant_files import as_planned
from lakemark.transaction.table_context import TableContext
from lakemark.view.file_lister import list_own_files


def keep_columns(context: TableContext, timeline: Timeline, lease: Lease) -> None:
    """Store the columns and the index of the newest commit as those of the table's creation.

    Properties that the table has are kept.

    Raises:
        LeaseLost: the lock was lost.
        WriteConflict: another process has changed the properties in the meantime.
        CorruptData: the newest commit is damaged.
    """
    properties = read_properties(context.storage)
    commits = reversed(timeline.completed(*COMMITS))
    known = (context.timeline.read_commit(commit).extra_metadata for commit in commits)
    newest = next((extra for extra in known if extra.get(keys.SCHEMA)), {})
    stored = {keys.CREATE_SCHEMA: newest.get(keys.SCHEMA, "")}
    stored |= {key: newest.get(key, "") for key in keys.INDEX_OF_CREATION}
    added = {key: value for key, value in stored.items() if value and key not in properties.values}
    if added:
        after = TableProperties({**properties.values, **added})
        replace_properties(context.storage, properties, after, lease.check)


def remove_archived(context: TableContext, before: str, lease: Lease) -> list[RollbackPlan]:
    """Delete the data files and hash rings of instants before a time, and clear the archive.

    Partitions keep their metafiles, because a writer may be about to write to one of them. If the
    step is interrupted, call this function again.

    Args:
        context: the table, without writes on its active timeline.
        before: the requested time of the restore. Files of later instants are kept, which exist if
            this process has lost the lock.
        lease: the lease of the table's lock.

    Returns:
        The deleted files of each instant, oldest first.

    Raises:
        LeaseLost: the lock was lost.
        SnapshotChanged, CorruptData: the archive was changed by another process, or is damaged.
    """
    files = _files_before(context.storage, before)
    writes = (i for i in context.timeline.load_archived().instants() if i.action.is_write)
    actions = {instant.requested_at: instant.action for instant in writes}
    lease.check()
    context.delete_files([path for paths in files.values() for path in paths])
    lease.check()
    delete_rings_before(context.storage, before)
    delete_partition_buckets_before(context.storage, before)
    context.timeline.archive_writer(lease.check).clear()
    return [
        RollbackPlan(name, actions.get(name, Action.COMMIT), as_planned(context.storage, paths))
        for name, paths in sorted(files.items())
    ]


def _files_before(storage: Storage, before: str) -> dict[str, list[str]]:
    """Return the paths of the data files by the instant in their names, for instants before."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for info, file in list_own_files(storage):
        if file.name.is_certain and file.name.instant < before:
            found[file.name.instant].append(info.path)
    return found
