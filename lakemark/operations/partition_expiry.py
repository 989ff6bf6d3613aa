"""Finds the partitions of an open table whose lifetime has ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS, Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import join
from lakemark.operations.open_table import OpenTable
from lakemark.operations.partition_deletion import ChoosePartitions
from lakemark.services.partition_lifetime import (
    ExpireBy,
    PartitionLifetime,
    end_of_lifetimes,
    expired_partitions,
    first_write,
    last_commits,
    last_emptied,
    last_logged,
    logs_of_archived_commits,
)
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import NotFound
from lakemark.timeline.undone_instants import find_undone
from lakemark.view.file_lister import PARTITION_METAFILE
from lakemark.view.file_system_view import FileSystemView

_CREATED_BY = re.compile(r"^commitTime=(\d+)\s*$", re.MULTILINE)


def find_expired(
    table: OpenTable,
    lifetime: PartitionLifetime,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> ChoosePartitions:
    """Return a function that finds the partitions whose lifetime has ended.

    A partition whose creation time is not known does not expire by creation.

    Args:
        table: the open table.
        lifetime: how long the rows of a partition are kept.
        now: returns the current time.

    Raises:
        InvalidConfig: the table is not partitioned. The returned function raises ``CorruptData`` if
            a commit or the archive is damaged, and ``SnapshotChanged`` if the archive is rewritten.
    """
    if not (table.properties.partition_fields or table.properties.partition_expressions):
        message = f"table {table.location.url} is not partitioned, so that no partition expires"
        raise InvalidConfig(message)

    def choose(view: FileSystemView) -> list[str]:
        end = end_of_lifetimes(lifetime, now(), table.store.clock)
        find = _last_commits if lifetime.by is ExpireBy.COMMIT else _creations
        return expired_partitions(find(table, view, end), end)

    return choose


def _last_commits(table: OpenTable, view: FileSystemView, end: str) -> Mapping[str, str]:
    """Return when the last commit to each partition was requested.

    In table version 6, neither the name of a log nor an active commit shows which archived commit
    wrote the log. Then the time at which the file was changed last shows when the commit was
    written. Apache Hudi considers only the instants in the names of files.
    """
    found = last_commits(view)
    if not table.version.logs_name_their_slice:
        return found
    commits = _commits(table, view)
    logged = last_logged(view, commits)
    found = {path: max(time, logged.get(path, "")) for path, time in found.items()}
    active = {stat.path or "" for metadata in commits.values() for stat in metadata.write_stats}
    for path in [path for path, time in found.items() if time < end]:
        logs = logs_of_archived_commits(view, path, active)
        found[path] = max(found[path], _last_change(table, path, logs))
    return found


def _last_change(table: OpenTable, path: str, names: Collection[str]) -> str:
    """Return when some files of a partition were changed last, as an instant time; "" if never."""
    listed = table.storage.list_folder(path)[1] if names else []
    times = (info.modified_at for info in listed if info.name in names)
    return max(map(table.store.clock.format, times), default="")


def _creations(table: OpenTable, view: FileSystemView, end: str) -> Mapping[str, str]:
    """Return when those partitions were created that were created before ``end``."""
    paths = sorted({one.group.partition_path for one in view.latest_slices()})
    created = request_all(table.storage, lambda path: _read_creation(table, path), paths)
    times = zip(paths, created, strict=True)
    old = {path: time for path, time in times if time is not None and time < end}
    if not old:
        return old
    commits, empty_since = _commits(table, view), _created_by_undone(table, view, old)
    replacing = commits | _archived(table, view, min(old.values()), Action.REPLACE_COMMIT)
    for path, emptied_at in last_emptied(replacing).items():
        if path in old and emptied_at > old[path]:
            empty_since[path] = emptied_at
    return old | _first_writes(table, view, empty_since, commits)


def _created_by_undone(
    table: OpenTable, view: FileSystemView, created: Mapping[str, str]
) -> dict[str, str]:
    """Return the partitions, with their creation times, that an undone commit created.

    A rollback or a restore keeps the metafile of a partition. So the metafile may show a commit
    long before the rows that were written since. A pending commit counts as undone.

    Args:
        table: the open table.
        view: the file groups.
        created: the requested time of the commit that created each partition.
    """
    active = {time: view.timeline.find(time) for time in created.values()}
    pending = {time for time, found in active.items() if found and not found.is_completed}
    gone = {time for time, found in active.items() if found is None}
    undone = pending
    if gone:
        undone |= find_undone(table.store, gone, view.timeline, table.store.load_archived())
    return {path: time for path, time in created.items() if time in undone}


def _first_writes(
    table: OpenTable,
    view: FileSystemView,
    empty_since: Mapping[str, str],
    commits: Mapping[str, CommitMetadata],
) -> dict[str, str]:
    """Return when rows were first written to each partition after a time at which it had none."""
    if not empty_since:
        return {}
    known = {**commits, **_archived(table, view, min(empty_since.values()), *COMMITS)}
    return {path: first_write(path, time, view, known) for path, time in empty_since.items()}


def _archived(
    table: OpenTable, view: FileSystemView, since: str, *actions: Action
) -> dict[str, CommitMetadata]:
    """Return the metadata of the archived commits that were requested since a time."""
    timeline = view.timeline
    if not timeline.has_history or (timeline.start is not None and timeline.start <= since):
        return {}
    archived = table.store.load_archived()
    found = (i for i in archived.instants(since) if i.action in actions)
    return {i.requested_at: metadata for i, metadata in archived.read_commits(found)}


def _read_creation(table: OpenTable, path: str) -> str | None:
    """Return the commit in the metafile of a partition; None if the metafile does not show it.

    Source: ``HoodiePartitionMetadata.readPartitionCreatedCommitTime``.
    """
    try:
        text = table.storage.read(join(path, PARTITION_METAFILE)).decode("utf-8", "replace")
    except NotFound:
        return None  # the metafile is a Parquet or ORC file
    found = _CREATED_BY.search(text)
    return found[1] if found else None


def _commits(table: OpenTable, view: FileSystemView) -> dict[str, CommitMetadata]:
    instants = view.timeline.completed(*COMMITS)
    read = table.store.read_commits(instants)
    return {i.requested_at: metadata for i, metadata in zip(instants, read, strict=True)}
