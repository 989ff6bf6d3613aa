"""Changes the version of a table, whole or not at all.

``hoodie.properties`` decides which version a table has, so replacing this one file is the change.
The steps, all under the table's lock, and what a crash right after each leaves:

1. metadata table dropped, and the new properties announced: a writer that takes the lock over and
   finds them makes step 4 fail (on a store that compares before it replaces)
                                 a table without one; the next writer builds it again
2. files that an older attempt left at the path of the new timeline are deleted
                                 the same
3. archive and timeline written in the new layout, next to the old ones
                                 files that are not read; step 2 of the next attempt
4. **properties replaced**       the table has the new version
5. old timeline and archive deleted
                                 files that are not read; ``change_version`` again deletes them,
                                 but for an archive of version 6

Apache Hudi moves file by file and replaces the properties last; a crash in between leaves a
timeline of two layouts there. Source: ``UpgradeDowngrade``, ``UpgradeDowngradeUtils`` and the
handlers from version 6 to 9 of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from lakemark.config import keys
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.errors import Refused
from lakemark.metadata.bootstrap import drop_metadata_table
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.file_slice import LogFile
from lakemark.model.format_version import FormatVersion
from lakemark.storage.properties_file import read_properties, replace_properties
from lakemark.storage.storage import Storage
from lakemark.timeline.archive_log import is_archive_log
from lakemark.timeline.layout import LayoutV1, LayoutV2, TimelineLayout, layout_of
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.lsm_writer import ArchivedInstant
from lakemark.timeline.prepared import ANNOUNCED_PROPERTIES
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.upgrade.archived_instants import archived_instants
from lakemark.upgrade.new_properties import properties_of
from lakemark.upgrade.timeline_files import Move, content_of, moves
from lakemark.view.file_lister import StorageFileLister, data_file, list_data_objects
from lakemark.view.view_loader import load_view

#: Pending actions that a version change completes itself: it rolls back, or compacts.
_ENDED = (*COMMITS, Action.ROLLBACK, Action.COMPACTION)

#: The old archive of a table that Apache Hudi upgraded tells readers how to read the new one.
_NOWHERE = ".hoodie/.none"


@dataclass(frozen=True, slots=True)
class VersionChange:
    """What a change of version does to the table.

    Attributes:
        before: the table's properties.
        after: the same in the new version.
        moves: the files of the active timeline to rewrite; empty if the layout stays the same.
        archived: the instants whose archive is rewritten.
        metadata_partitions: of the metadata table, which is dropped.
    """

    before: TableProperties
    after: TableProperties
    moves: tuple[Move, ...]
    archived: tuple[ArchivedInstant, ...]
    metadata_partitions: tuple[str, ...]

    @property
    def is_none(self) -> bool:
        """Whether the table has that version already."""
        return self.before.version == self.after.version


def needs_compaction(before: FormatVersion, after: FormatVersion) -> bool:
    """Return whether logs of the old version are to be merged first: always but from 8 to 9."""
    return before is not after and (before, after) != (FormatVersion.V8, FormatVersion.V9)


def plan_change(
    context: TableContext, version: FormatVersion, partition_fields: Sequence[str] | None = None
) -> VersionChange:
    """Return what ``change_version`` would do now, once nothing is pending.

    Args:
        context: of the table.
        version: of the table to be.
        partition_fields: see ``properties_of``.

    Raises:
        Refused: the change is not possible now; the message says what to do first.
        InvalidConfig: the version has no settings for how the table merges.
        Unsupported: a metadata table, or a payload, that is not written here.
    """
    timeline = context.timeline.load()
    _check_nothing_pending(context, timeline, _ENDED)
    return _planned(context, version, partition_fields)


def change_version(
    context: TableContext, version: FormatVersion, partition_fields: Sequence[str] | None = None
) -> VersionChange:
    """Change the version; if the table has it already, delete files of a dead attempt.

    Args:
        context: of the table.
        version: of the table to be.
        partition_fields: see ``properties_of``.

    Returns:
        What was done. Errors as for ``plan_change``, and ``Refused`` if anything is pending.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        _check_nothing_pending(context, timeline)
        change = _planned(context, version, partition_fields)
        _check_logs(context.storage, change)
        _check_merged(context, change, timeline)
        bare = change.before
        if not change.is_none:
            bare = drop_metadata_table(context.storage, bare, lease.check)
            context.storage.put(ANNOUNCED_PROPERTIES, change.after.to_bytes())
        _write_timeline(context, change, version, lease)
        if not change.is_none:
            replace_properties(context.storage, bare, change.after, lease.check)
            context.storage.delete([ANNOUNCED_PROPERTIES])
        _delete_timeline(context.storage, change, lease)
        return change


def _check_nothing_pending(
    context: TableContext, timeline: Timeline, but: Collection[Action] = ()
) -> None:
    """Pass if no instant is pending, clusterings included, but for those of some actions."""
    check_no_restore(timeline)
    for pending in timeline.pending():
        if context.timeline.is_clustering(pending):
            remedy = (
                "execute it with Apache Hudi, or remove the plan: lakemark table rollback TABLE "
                f"{pending.requested_at} --run"
            )
        elif pending.action not in but:
            remedy = (
                "let its writer or service complete it, stop all writers, and try again: lakemark "
                "table timeline TABLE shows what is pending"
            )
        else:
            continue
        message = f"{pending} is pending in table {context.storage.location.url}; {remedy}"
        raise Refused(message)


def _planned(
    context: TableContext, version: FormatVersion, partition_fields: Sequence[str] | None
) -> VersionChange:
    storage, store = context.storage, context.timeline
    before = read_properties(storage)
    check_allows(before, Purpose.MAINTAIN, storage.location.url)
    is_same = before.version == version
    after = before if is_same else properties_of(before, version, partition_fields)
    old, new = layout_of(before, store.version), layout_of(after, version)
    is_moved = old.names_completion != new.names_completion
    if is_moved and old.folder == new.folder:
        message = (
            f"{storage.location.url}: its timeline is in {old.folder}, which is also the folder of "
            f"version {version} ({keys.TIMELINE_PATH} is empty), so both timelines cannot exist at "
            "the same time; leave the table in its version, or let Apache Hudi change it"
        )
        raise Refused(message)
    return VersionChange(
        before,
        after,
        tuple(moves(storage, store, old, new)) if is_moved else (),
        tuple(archived_instants(store.archive_files)) if is_moved else (),
        before.metadata_partitions,
    )


def _check_logs(storage: Storage, change: VersionChange) -> None:
    """Pass if the store keeps file times: in version 6 they are completion times of commits."""
    is_downgrade = change.after.version < FormatVersion.V8 <= change.before.version
    if not is_downgrade or _keeps_times(storage):
        return
    for log in _logs(storage):
        message = (
            f"the store of {storage.location.url} says itself when a commit was written, and "
            f"version 6 would take log {log} for one of a newer file; first: lakemark table "
            "compact TABLE --run, then: lakemark table clean TABLE --retain-versions 1 --run"
        )
        raise Refused(message)


def _check_merged(context: TableContext, change: VersionChange, timeline: Timeline) -> None:
    """Pass if no log is left that the new version would read differently."""
    before, after = FormatVersion(change.before.version), FormatVersion(change.after.version)
    if not change.before.is_merge_on_read or not needs_compaction(before, after):
        return
    view = load_view(context.timeline, timeline, StorageFileLister(context.storage), before)
    for log in (log for file_slice in view.latest_slices() for log in file_slice.logs):
        message = (
            f"log {log.path} of {context.storage.location.url} is not merged yet; stop the table's "
            "writers, then: lakemark table compact TABLE --run, and try again"
        )
        raise Refused(message)


def _keeps_times(storage: Storage) -> bool:
    known = storage.head(PROPERTIES_PATH)
    return known is not None and storage.set_modified_at(PROPERTIES_PATH, known.modified_at)


def _logs(storage: Storage) -> Iterator[str]:
    for info in list_data_objects(storage):
        if isinstance(data_file(info.folder, info.name, info.size_bytes), LogFile):
            yield info.path


def _write_timeline(
    context: TableContext, change: VersionChange, version: FormatVersion, lease: Lease
) -> None:
    if not change.moves and not change.archived:
        return
    storage, layout = context.storage, layout_of(change.after, version)
    _delete_leftovers(storage, layout, {move.source for move in change.moves}, lease)
    rows = change.archived
    if rows:
        writer = TimelineStore(storage, layout, version).archive_writer(lease.check)
        writer.add(iter(rows), rows[0].requested_at, rows[-1].requested_at)
    for move in change.moves:
        content = content_of(storage, move, version)
        lease.check()
        storage.create(move.target, content)
        completed_at = move.moved.completed_at
        if completed_at is not None and not layout.names_completion:
            storage.set_modified_at(move.target, context.timeline.clock.parse(completed_at))
        elif move.moved.state is State.REQUESTED:
            _keep_modified_at(storage, move)


def _keep_modified_at(storage: Storage, move: Move) -> None:
    """It shows the zone of a timeline in local time (``ZoneEvidence``), if the store takes it."""
    source = storage.head(move.source)
    if source is not None:
        storage.set_modified_at(move.target, source.modified_at)


def _delete_leftovers(
    storage: Storage, layout: TimelineLayout, kept: set[str], lease: Lease
) -> None:
    """Delete files at the path of a timeline that the table does not have."""
    _, objects = storage.list_folder(layout.folder)
    instants = (o.path for o in objects if layout.parse(o.name) is not None)
    leftovers = sorted({*instants, *_archive_paths(storage, layout)} - kept)
    lease.check()
    storage.delete(leftovers)


def _archive_paths(storage: Storage, layout: TimelineLayout) -> list[str]:
    """Files of an archive; in version 6 it may be in ``.hoodie`` itself, next to other files."""
    is_apart = layout.archive_folder != layout.folder
    found = storage.list_tree(layout.archive_folder) if is_apart else ()
    mixed = () if is_apart else storage.list_folder(layout.folder)[1]
    return [info.path for info in (*found, *(o for o in mixed if is_archive_log(o.name)))]


def _delete_timeline(storage: Storage, change: VersionChange, lease: Lease) -> None:
    """Delete the timeline that the table had, or that a dead attempt left, and its archive."""
    before, after = FormatVersion(change.before.version), FormatVersion(change.after.version)
    if before is after:
        other = LayoutV2() if after is FormatVersion.V6 else LayoutV1(archive_folder=_NOWHERE)
        _delete_leftovers(storage, other, set(), lease)
    elif before.timeline_layout != after.timeline_layout:
        archive = _archive_paths(storage, layout_of(change.before, before))
        lease.check()
        storage.delete([move.source for move in change.moves])
        storage.delete(archive)
