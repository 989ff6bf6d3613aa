"""Removes the orphan files of an open table and of its metadata table, which no instant names.

Other table formats have the same operation (``remove_orphan_files`` of Apache Iceberg and Apache
Paimon, ``VACUUM`` of Delta Lake).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, SnapshotChanged
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_table_opener import (
    METADATA_FOLDER,
    MetadataTableOpener,
    open_metadata_table,
)
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.operations.ages import time_before
from lakemark.operations.open_table import OpenTable
from lakemark.services.orphan_candidates import OrphanCandidates, list_candidates
from lakemark.services.orphans import Orphan, OrphanSearch
from lakemark.services.savepoint import savepoints
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.instant_files import planned_logs, was_version_6
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import LOCK_WAIT_S

#: How long ago a file must have been written to be removed, if the caller does not say it.
DEFAULT_AGE = timedelta(days=3)

#: The shortest such time. Apache Hudi writes the first files of a new partition of the metadata
#: table before it requests their instant, and clocks of stores and writers differ.
SHORTEST_AGE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The candidates of a table, and of its metadata table with paths relative to that table."""

    data: OrphanCandidates
    metadata: OrphanCandidates

    def only(self, paths: Collection[str]) -> _Listed:
        inside = {path.removeprefix(f"{METADATA_FOLDER}/") for path in paths if _is_inside(path)}
        return _Listed(self.data.only(paths), self.metadata.only(inside))


def find_orphans(
    table: OpenTable, older_than: timedelta = DEFAULT_AGE, now: datetime | None = None
) -> list[Orphan]:
    """Return the orphans that ``remove_orphans`` would delete, and the files that are unclear.

    Args:
        table: the open table.
        older_than: only files that were written longer ago; at least ``SHORTEST_AGE``.
        now: the current time; None for the time of this machine.

    Raises:
        InvalidConfig: ``older_than`` is too short.
        Refused: a restore is pending.
        SnapshotChanged: the table was changed meanwhile; call this again.
        CorruptData: the archive, a commit or the metadata table is damaged.
    """
    return _find(table, _list(table, older_than, now), lambda: None)


def remove_orphans(
    table: OpenTable, older_than: timedelta = DEFAULT_AGE, now: datetime | None = None
) -> list[Orphan]:
    """Delete the orphans; return them. Files that are unclear are kept, and not returned.

    Writers may go on meanwhile: the table is listed without the lock, and the orphans are judged
    again under the lock before they are deleted. Arguments and errors are as for ``find_orphans``.
    """
    listed = _list(table, older_than, now)
    found = {one.path for one in _find(table, listed, lambda: None) if one.reason.is_clear}
    if not found:
        return []
    with table.context.lock.hold(LOCK_WAIT_S) as lease:
        judged = _find(table, listed.only(found), lease.check)
        orphans = [one for one in judged if one.reason.is_clear]
        lease.check()
        table.context.delete_files([one.path for one in orphans])
    return orphans


def _list(table: OpenTable, older_than: timedelta, now: datetime | None) -> _Listed:
    if older_than < SHORTEST_AGE:
        shortest, given = (age / timedelta(hours=1) for age in (SHORTEST_AGE, older_than))
        message = (
            f"orphans must be older than {shortest:.0f} hours, not only {given:.3g} hours: younger "
            "files may belong to writers that are at work"
        )
        raise InvalidConfig(message)
    before = time_before(older_than, now)
    inside = FolderStorage(table.storage, METADATA_FOLDER)
    has_metadata = bool(read_properties(table.storage).metadata_partitions)
    metadata = list_candidates(inside, before) if has_metadata else OrphanCandidates()
    return _Listed(list_candidates(table.storage, before), metadata)


def _find(table: OpenTable, listed: _Listed, check_lease: Callable[[], None]) -> list[Orphan]:
    """Judge the candidates by the timeline, which is loaded after they were listed."""
    timeline, properties = table.store.load(), read_properties(table.storage)
    _check_same_version(table, properties)
    check_no_restore(timeline)
    kept = {name for names in _names_in_savepoints(table, timeline) for name in names}
    search = OrphanSearch(
        table.storage,
        table.store,
        timeline,
        kept | _names_in_plans(table.store, timeline),
        _files_in_metadata_table(table, properties, timeline, listed.data),
        table.version.logs_name_their_slice or was_version_6(table.storage),
    )
    orphans = search.find(listed.data)
    check_lease()
    if properties.metadata_partitions:
        orphans += _find_in_metadata_table(table, listed.metadata, search)
    return orphans


def _names_in_savepoints(table: OpenTable, timeline: Timeline) -> Iterator[Collection[str]]:
    for savepoint in savepoints(timeline, table.store).values():
        yield from savepoint.files.values()


def _names_in_plans(store: TimelineStore, timeline: Timeline) -> set[str]:
    return {path.rpartition("/")[2] for path in planned_logs(store, timeline)}


def _files_in_metadata_table(
    table: OpenTable, properties: TableProperties, timeline: Timeline, candidates: OrphanCandidates
) -> set[str]:
    """Return the paths of the files in the candidates' partitions that the metadata table lists."""
    opened = open_metadata_table(table.storage, properties, timeline, table.store.clock)
    if opened is None or not opened.partitions_of_kind(PartitionKind.FILES):
        return set()
    partitions = sorted({info.folder for info, _ in candidates.data})
    listed = MetadataFileLister(opened).list_some(partitions).values() if partitions else ()
    return {file.path for files in listed for file in files}


def _find_in_metadata_table(
    table: OpenTable, candidates: OrphanCandidates, data: OrphanSearch
) -> list[Orphan]:
    inside = FolderStorage(table.storage, METADATA_FOLDER)
    store = MetadataTableOpener(table.storage).instants(table.store.clock)
    timeline = store.load()
    search = OrphanSearch(
        inside,
        store,
        timeline,
        _names_in_plans(store, timeline),
        may_name_slices=store.version.logs_name_their_slice or was_version_6(inside),
        reads_commits=False,
        also_pending={instant.requested_at for instant in data.timeline.pending()},
        also_undone=data.undone,
    )
    found = search.find(candidates)
    return [replace(one, path=f"{METADATA_FOLDER}/{one.path}") for one in found]


def _check_same_version(table: OpenTable, properties: TableProperties) -> None:
    """Check that the table still has the version, and so the timeline, with which it was opened.

    Raises:
        SnapshotChanged: another process has changed the version.
    """
    if properties.version != table.version:
        message = f"the version of {table.location.url} was changed; open the table again"
        raise SnapshotChanged(message)


def _is_inside(path: str) -> bool:
    return path.startswith(f"{METADATA_FOLDER}/")
