"""Changes the version of a table atomically.

``hoodie.properties`` decides which version a table has, so the change takes effect when this one
file is replaced. All steps run under the table's lock:

1. Drop the metadata table, and announce the new properties in a file. If another writer takes over
   the lock and finds this file, that writer makes step 4 fail (on a store with conditional puts).
2. At the path of the new timeline, delete the files that an earlier attempt has left.
3. Write the archive and the timeline in the new layout, next to the old archive and timeline.
4. **Replace the properties.** From now on, the table has the new version.
5. Delete the old timeline and archive.

An upgrade from a version before 6 has only steps 1, 4 and 5, because the timeline keeps its layout.
Pending instants remain, because in version 6 they have the same meaning. Step 5 deletes the copies
of compaction plans in ``.hoodie/.aux``, which Hudi before 0.14 read instead of the plans.

After a crash in steps 1 to 3, the table has its old version. It may have lost its metadata table,
which the next writer builds again. Files of the new timeline are not read, and the next attempt
deletes them in step 2. After a crash in step 5, the remaining files of the old timeline are not
read. If ``change_version`` is called again, it deletes them, except an archive of version 6.

Apache Hudi moves file by file and replaces the properties last. If it crashes in between, the
timeline has files in two layouts. Source: ``UpgradeDowngrade``, ``UpgradeDowngradeUtils`` and the
handlers from version 2 to 9 of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from lakemark.config import keys
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.errors import Refused
from lakemark.metadata.bootstrap import drop_metadata_table
from lakemark.metadata.index_definition import remove_stale_definitions
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.file_slice import LogFile
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
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

#: Actions that may be pending when a version change is planned. Before the change, these instants
#: are rolled back or, if they are compactions, executed.
_ENDED = (*COMMITS, Action.ROLLBACK, Action.COMPACTION)

#: A folder that does not exist. It replaces the archive folder of version 6, so that an old archive
#: is not deleted. If Apache Hudi upgraded the table, readers need the old archive, because it shows
#: how to read the new archive.
_NOWHERE = ".hoodie/.none"

_PLAN_COPIES = ".hoodie/.aux"
_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class VersionChange:
    """The effects of a change of version.

    Attributes:
        before: the table's properties before the change.
        after: the table's properties after the change.
        moves: the files of the active timeline to rewrite; empty if the layout stays the same.
        archived: the archived instants to rewrite; empty if the layout stays the same.
        metadata_partitions: the partitions of the metadata table, which is dropped.
    """

    before: TableProperties
    after: TableProperties
    moves: tuple[Move, ...]
    archived: tuple[ArchivedInstant, ...]
    metadata_partitions: tuple[str, ...]

    @property
    def is_none(self) -> bool:
        """Whether nothing changes, because the table already has the version."""
        return self.before.version == self.after.version


def needs_compaction(before: FormatVersion, after: FormatVersion) -> bool:
    """Return whether all logs must be compacted first.

    Only a change from 8 to 9, and an upgrade from a version before 6 to 6, keep logs.
    """
    keeps_logs = (before, after) == (FormatVersion.V8, FormatVersion.V9)
    return before.is_written and before is not after and not keeps_logs


def plan_change(
    context: TableContext, version: FormatVersion, derived: Mapping[str, str] = _NO_PROPERTIES
) -> VersionChange:
    """Return what ``change_version`` would do after pending instants have ended.

    Args:
        context: the table.
        version: the new version of the table.
        derived: see ``properties_of``.

    Raises:
        Refused: the change is not possible now. The message says what to do first.
        InvalidConfig: the new version has no settings that express how the table merges records.
        Unsupported: this project does not write the table's metadata table or payload.
    """
    timeline = context.timeline.load()
    if context.timeline.version.is_written:
        _check_nothing_pending(context, timeline, _ENDED)
    return _planned(context, version, derived)


def change_version(
    context: TableContext, version: FormatVersion, derived: Mapping[str, str] = _NO_PROPERTIES
) -> VersionChange:
    """Change the version of the table.

    If the table already has the version, only delete the files that a failed attempt has left.

    Args:
        context: the table.
        version: the new version of the table.
        derived: see ``properties_of``.

    Returns:
        The change that was made.

    Raises:
        Refused: an instant is pending, or the change is not possible now.
        InvalidConfig, Unsupported: as for ``plan_change``.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        if context.timeline.version.is_written:
            _check_nothing_pending(context, timeline)
        change = _planned(context, version, derived)
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
        if version is FormatVersion.V6:
            remove_stale_definitions(context.storage, lease.check)
        return change


def _check_nothing_pending(
    context: TableContext, timeline: Timeline, but: Collection[Action] = ()
) -> None:
    """Check that no instant is pending, except instants with the actions in ``but``.

    A pending clustering is always refused.
    """
    check_no_restore(timeline)
    for pending in timeline.pending():
        if context.timeline.is_clustering(pending):
            remedy = (
                "execute it with Apache Hudi, or remove the plan: lakemark table rollback TABLE "
                f"{pending.requested_at} --run"
            )
        elif pending.action is Action.LOG_COMPACTION and pending.action not in but:
            remedy = (
                "execute it: lakemark table compact TABLE --logs --run; or remove it: lakemark "
                f"table rollback TABLE {pending.requested_at} --run"
            )
        elif pending.action is Action.SAVEPOINT:
            command = "lakemark table savepoint TABLE"
            remedy = (
                f"complete it: {command} --create {pending.requested_at} --run; or remove it: "
                f"{command} --delete {pending.requested_at} --run"
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
    context: TableContext, version: FormatVersion, derived: Mapping[str, str]
) -> VersionChange:
    storage, store = context.storage, context.timeline
    before = read_properties(storage)
    is_same = before.version == version
    after = before if is_same else properties_of(before, version, derived)
    is_maintained = FormatVersion(before.version).is_written
    check_allows(before if is_maintained else after, Purpose.MAINTAIN, storage.location.url)
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
        before.metadata_partitions if is_maintained else _old_metadata_partitions(storage, before),
    )


def _old_metadata_partitions(storage: Storage, before: TableProperties) -> tuple[str, ...]:
    """Return the partitions of a metadata table that lakemark does not read.

    Before version 4, the table's properties do not name them.
    """
    folders = (folder.rstrip("/") for folder in storage.list_folder(METADATA_FOLDER)[0])
    found = (folder.rpartition("/")[2] for folder in folders)
    listed = tuple(sorted(name for name in found if not name.startswith(".")))
    return before.stored_metadata_partitions or listed


def _check_logs(storage: Storage, change: VersionChange) -> None:
    """Check before a downgrade to version 6 that logs will have the right completion times.

    In version 6, the completion time of a commit is the modification time of its file. So the store
    must allow setting modification times, or the table must have no logs.
    """
    is_downgrade = change.after.version < FormatVersion.V8 <= change.before.version
    if not is_downgrade or _keeps_times(storage):
        return
    for log in _logs(storage):
        message = (
            f"the store of {storage.location.url} does not allow setting modification times, so "
            f"version 6 would assign log {log} to a newer base file; first: lakemark table "
            "compact TABLE --run, then: lakemark table clean TABLE --retain-versions 1 --run"
        )
        raise Refused(message)


def _check_merged(context: TableContext, change: VersionChange, timeline: Timeline) -> None:
    """Check that there is no log that the new version would read differently."""
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
    stay_active = () if layout.names_completion else (Action.RESTORE,)
    rows = [row for row in change.archived if row.action not in stay_active]
    if rows:
        writer = TimelineStore(storage, layout, version).archive_writer(lease.check)
        writer.add(iter(rows), rows[0].requested_at, rows[-1].requested_at)
    moved = {move.target for move in change.moves}
    for row in change.archived:
        if row.action in stay_active:
            _activate_restore(context, row, layout, moved, lease)
    for move in change.moves:
        content = content_of(storage, move, version)
        lease.check()
        storage.create(move.target, content)
        completed_at = move.moved.completed_at
        if completed_at is not None and not layout.names_completion:
            storage.set_modified_at(move.target, context.timeline.clock.parse(completed_at))
        elif move.moved.state is State.REQUESTED:
            _keep_modified_at(storage, move)


def _activate_restore(
    context: TableContext,
    restore: ArchivedInstant,
    layout: TimelineLayout,
    moved: Collection[str],
    lease: Lease,
) -> None:
    """Write an archived restore to the active timeline of version 6 instead of the archive.

    The archive of version 6 has no field for the plan of a restore, which shows the undone instants
    (``undone_instants.find_undone``). In this version, archival keeps restores active.

    Args:
        context: the table.
        restore: the archived restore.
        layout: the layout of version 6.
        moved: the paths of files that an archiver had still to delete. They are moved.
        lease: the lock.
    """
    requested = Instant(restore.requested_at, Action.RESTORE, State.REQUESTED)
    done = replace(requested.completed(restore.completed_at), is_legacy=True)
    contents = {requested: restore.plan or b"", requested.inflight(): b"", done: restore.metadata}
    for instant, content in contents.items():
        path = f"{layout.folder}/{layout.name_of(instant)}"
        if path in moved:
            continue
        lease.check()
        context.storage.create(path, content)
        if instant is done:
            at = context.timeline.clock.parse(restore.completed_at)
            context.storage.set_modified_at(path, at)


def _keep_modified_at(storage: Storage, move: Move) -> None:
    """Copy the modification time of a file, if the store allows it.

    The time shows the time zone of a timeline in local time (``ZoneEvidence``).
    """
    source = storage.head(move.source)
    if source is not None:
        storage.set_modified_at(move.target, source.modified_at)


def _delete_leftovers(
    storage: Storage, layout: TimelineLayout, kept: set[str], lease: Lease
) -> None:
    """Delete the files of a layout's timeline and archive, which the table does not use."""
    _, objects = storage.list_folder(layout.folder)
    instants = (o.path for o in objects if layout.parse(o.name) is not None)
    leftovers = sorted({*instants, *_archive_paths(storage, layout)} - kept)
    lease.check()
    storage.delete(leftovers)


def _archive_paths(storage: Storage, layout: TimelineLayout) -> list[str]:
    """Return the paths of all archive files.

    In version 6, the archive may be in ``.hoodie`` itself, together with other files.
    """
    is_apart = layout.archive_folder != layout.folder
    found = storage.list_tree(layout.archive_folder) if is_apart else ()
    mixed = () if is_apart else storage.list_folder(layout.folder)[1]
    return [info.path for info in (*found, *(o for o in mixed if is_archive_log(o.name)))]


def _delete_timeline(storage: Storage, change: VersionChange, lease: Lease) -> None:
    """Delete the old timeline and its archive.

    If the version was not changed, delete what a failed attempt has left in the other layout.
    """
    before, after = FormatVersion(change.before.version), FormatVersion(change.after.version)
    if after is FormatVersion.V6:
        _delete_plan_copies(storage, lease)
    if before is after:
        other = LayoutV2() if after is FormatVersion.V6 else LayoutV1(archive_folder=_NOWHERE)
        _delete_leftovers(storage, other, set(), lease)
    elif before.timeline_layout != after.timeline_layout:
        archive = _archive_paths(storage, layout_of(change.before, before))
        lease.check()
        storage.delete([move.source for move in change.moves])
        storage.delete(archive)


def _delete_plan_copies(storage: Storage, lease: Lease) -> None:
    """Delete the copies of plans that Hudi before 0.14 wrote next to the timeline."""
    _, objects = storage.list_folder(_PLAN_COPIES)
    instants = ((o.path, LayoutV1().parse(o.name)) for o in objects)
    copies = [path for path, one in instants if one and one.action is Action.COMPACTION]
    if copies:
        lease.check()
        storage.delete(copies)
