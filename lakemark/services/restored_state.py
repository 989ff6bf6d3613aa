"""The file slices that a table has after a restore.

They may differ from the slices that a query as of the same commit reads. A query compares requested
times, as in Apache Hudi. A restore keeps every commit that completed until then, and undoes the
compactions that were requested after the commit. Suppose that a compaction was requested after the
commit, but before the commit completed. Then the logs of the commit belong to the slice of the
compaction, which the query does not read. The restore undoes the compaction, so that the logs
belong to the slice before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lakemark.model.action import COMMITS, REPLACING
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.restore_plan import RestorePlan
from lakemark.storage.storage import Storage
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, data_file, list_data_objects
from lakemark.view.view_loader import load_context


def restored_slices(
    files: Iterable[DataFile], plan: RestorePlan, timeline: Timeline, store: TimelineStore
) -> list[FileSlice]:
    """Return the slices that queries read after a restore, in table version 8 or later.

    Args:
        files: the data files of the table, visible or not.
        plan: the plan of the restore.
        timeline: the active timeline before the restore.
        store: reads the timeline's instants.

    Raises:
        SnapshotChanged, CorruptData: see ``load_context``.
    """
    undone = {one.requested_at for one in plan.instants}
    kept = replace(
        timeline,
        instants=tuple(
            i for i in timeline.instants if not (i.action.is_write and i.requested_at in undone)
        ),
    )
    replacing = [one.requested_at for one in plan.instants if one.action in REPLACING]
    created = {group for name in replacing for group in store.new_groups(name)}
    by_partition: dict[str, list[DataFile]] = {}
    for file in files:
        is_created = FileGroupId(file.partition_path, file.name.file_id) in created
        if file.name.instant not in undone and not is_created:
            by_partition.setdefault(file.partition_path, []).append(file)
    return load_context(store, kept, store.version).view_of(by_partition).latest_slices()


def find_lost_files(
    plan: RestorePlan, timeline: Timeline, store: TimelineStore, storage: Storage
) -> list[str]:
    """Return the paths of files that a table would lack after a restore, sorted.

    Only files of active commits are found, because their write stats are read. The base file of a
    compaction that completed after the target may be missing: then the slice before it is read.
    Files of table version 6 are not checked.

    Raises:
        SnapshotChanged, CorruptData: see ``restored_slices``.
    """
    if store.version.logs_name_their_slice:
        return []
    listed = {info.path: info for info in list_data_objects(storage)}
    existing = (data_file(one.folder, one.name, one.size_bytes) for one in listed.values())
    missing = {f.path: f for f in _written_files(plan, timeline, store) if f.path not in listed}
    if not missing:
        return []
    files = [*(file for file in existing if file is not None), *missing.values()]
    slices = restored_slices(files, plan, timeline, store)
    needed = {log.path for one in slices for log in one.logs}
    needed |= {one.base.path for one in slices if one.base is not None}
    return sorted(needed & missing.keys())


def _written_files(
    plan: RestorePlan, timeline: Timeline, store: TimelineStore
) -> Iterator[DataFile]:
    """Yield the files of the active commits that completed until the target of a restore."""
    undone = {one.requested_at for one in plan.instants}
    completed = timeline.completed(*COMMITS)
    end = next(i.completed_at for i in completed if i.requested_at == plan.restore_to)
    for commit in completed:
        if commit.requested_at in undone or (commit.completed_at or "") > (end or ""):
            continue
        for stat in store.read_commit(commit).write_stats:
            folder, _, name = (stat.path or "").rpartition("/")
            file = data_file(folder, name, stat.file_size_in_bytes)
            if file is not None:
                yield file
