"""Keeps the metadata table itself small: old slices are deleted, old instants archived.

It is a table like any other, one folder down; whoever changes it holds its data table's lock. With
a compaction every ten of its delta commits, three versions of each file group are what readers of
the last twenty commits need. Its timeline reaches back as far as the data table's does. Source:
``HoodieBackedTableMetadataWriter.performTableServices`` and ``HoodieMetadataWriteUtils`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from table.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from table.metadata.opening import METADATA_FOLDER
from table.metadata.property_file import read_properties
from table.metadata.valid_instants import INITIAL
from table.model.action import COMMITS, Action
from table.model.instant import Instant
from table.services import archival, cleaning
from table.services.archival_plan import ArchivalPolicy, limit_of_metadata_table, plan
from table.services.cleaning_plan import CleaningPolicy, Retention
from table.storage.folder_storage import FolderStorage
from table.timeline.timeline import Timeline
from table.timeline.timeline_store import TimelineStore
from table.transaction.access import TableAccess
from table.view.file_lister import StorageFileLister
from table.view.file_system_view import FileSystemView
from table.view.view_loader import load_view

CLEANING = CleaningPolicy(Retention.FILE_VERSIONS, file_versions=3)
ARCHIVAL = ArchivalPolicy(20, 30, delta_commits_to_compact=EVERY_DELTA_COMMITS)


@dataclass(frozen=True, slots=True)
class Tended:
    """What was done to a metadata table.

    Attributes:
        deleted: paths of old files, from its own root.
        archived: instants that left its active timeline.
        timeline: its own, afterwards.
    """

    deleted: tuple[str, ...]
    archived: tuple[Instant, ...]
    timeline: Timeline


def tend(access: TableAccess, own: Timeline, data: Timeline) -> Tended | None:
    """Clean and archive a metadata table; None when neither is due, and then nothing is read.

    Args:
        access: the data table.
        own: the metadata table's timeline, as last known.
        data: the data table's, as last known; an older one keeps more.
    """
    is_clean_due = _is_clean_due(own)
    is_long = bool(_archivable(own, data))
    if not (is_clean_due or is_long):
        return None
    metadata = _as_table(access)
    deleted = _clean(metadata, own) if is_clean_due else ()
    archived = _archive(metadata, data) if is_long else ()
    return Tended(deleted, archived, metadata.timeline.load())


def _is_clean_due(own: Timeline) -> bool:
    """Whether a compaction has made more versions than stay, or a clean was left undone."""
    compactions = own.completed(Action.COMMIT)
    last = cleaning.last_clean(own)
    new = (i for i in compactions if last is None or i.requested_at > last.requested_at)
    # Archival may take compactions away as fast as they come.
    is_over = len(compactions) >= CLEANING.file_versions or own.has_history
    return (is_over and any(new)) or bool(own.pending(Action.CLEAN))


def _archivable(own: Timeline, data: Timeline) -> tuple[Instant, ...]:
    return plan(own, ARCHIVAL, _keep_from(own, data))


def _keep_from(own: Timeline, data: Timeline) -> Iterator[str]:
    """What the data table's timeline still speaks of.

    The instant that made the metadata table stays while there are commits from before it: it says
    that these need not be told of.
    """
    yield from limit_of_metadata_table(data)
    made = own.find(f"{INITIAL}000") or own.find(f"{INITIAL}010")  # of version 6
    if made is not None:
        at = made.completed_at or ""
        if any((i.completed_at or "") <= at for i in data.completed(*COMMITS)):
            yield made.requested_at


def _as_table(access: TableAccess) -> TableAccess:
    """The metadata table, under its data table's lock; nobody is to be told of its changes."""
    storage = FolderStorage(access.storage, METADATA_FOLDER)
    instants = TimelineStore.of_table(storage, read_properties(storage))
    return TableAccess(storage, instants, access.lock)


def _clean(metadata: TableAccess, own: Timeline) -> tuple[str, ...]:
    """Finish what was planned, or plan; returns what was deleted."""
    store = metadata.timeline
    todo = [(i, store.read_clean_plan(i.requested_at)) for i in own.pending(Action.CLEAN)]
    if not todo:
        requested = cleaning.request(metadata, partial(_view_at, metadata), CLEANING)
        todo = [requested] if requested else []
    for pending, planned in todo:
        cleaning.execute(metadata, pending, planned)
    return tuple(path for _, planned in todo for path in planned.paths)


def _view_at(metadata: TableAccess, own: Timeline) -> FileSystemView:
    lister = StorageFileLister(metadata.storage)
    return load_view(metadata.timeline, own, lister, metadata.timeline.version)


def _archive(metadata: TableAccess, data: Timeline) -> tuple[Instant, ...]:
    archived = archival.archive(metadata, ARCHIVAL, CLEANING, lambda own: _keep_from(own, data))
    return archived.instants if archived else ()
