"""Creates, lists, deletes and expires savepoints, which keep files of a commit from cleaning."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from lakemark.errors import InvalidConfig
from lakemark.model.file_slice import FileSlice
from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.operations.ages import time_before
from lakemark.operations.open_table import OpenTable
from lakemark.services import savepoint
from lakemark.services.restore import plan_restore
from lakemark.services.restored_state import restored_slices
from lakemark.services.savepoint import SlicesToKeep
from lakemark.timeline.timeline import Timeline


def list_savepoints(table: OpenTable) -> dict[str, SavepointMetadata]:
    """Return the savepoints, by requested time of their commit, as of the last refresh."""
    return savepoint.savepoints(table.timeline, table.store)


def plan_savepoint(
    table: OpenTable, requested_at: str, user: str = "", comment: str = ""
) -> SavepointMetadata:
    """Return the files that ``create_savepoint`` would keep now. Raises the same errors."""
    return savepoint.plan_savepoint(
        table.context, requested_at, slices_to_keep(table), user, comment
    )


def create_savepoint(
    table: OpenTable, requested_at: str, user: str = "", comment: str = ""
) -> SavepointMetadata:
    """Create a savepoint of a completed commit, which keeps the table's files as of that commit.

    It also keeps the files that a restore to the commit needs.

    Args:
        table: the open table.
        requested_at: the requested time of the commit.
        user: the user to record in the savepoint.
        comment: the comment to record in the savepoint.

    Raises:
        InvalidConfig: there is no such commit on the active timeline.
        Refused: the commit already has a savepoint, some of the files were cleaned, or a clean, a
            restore or a rollback of the commit is pending.
    """
    kept = savepoint.create_savepoint(
        table.context, requested_at, slices_to_keep(table), user, comment
    )
    table.refresh()
    return kept


def plan_savepoint_deletion(table: OpenTable, requested_at: str) -> SavepointMetadata:
    """Return the files that cleaning may delete once the savepoint is deleted."""
    return savepoint.plan_deletion(table.context, requested_at)


def delete_savepoint(table: OpenTable, requested_at: str) -> None:
    """Delete a savepoint, so that cleaning may delete its files again.

    Raises:
        InvalidConfig: the commit has no savepoint.
        Refused: a restore is pending.
    """
    savepoint.delete_savepoint(table.context, requested_at)
    table.refresh()


def find_expired_savepoints(
    table: OpenTable, older_than: timedelta, now: datetime | None = None
) -> dict[str, SavepointMetadata]:
    """Return the savepoints that ``expire_savepoints`` would delete, by requested time."""
    before = _time_before(older_than, now)
    return savepoint.expired_savepoints(table.timeline, table.store, before)


def expire_savepoints(
    table: OpenTable, older_than: timedelta, now: datetime | None = None
) -> dict[str, SavepointMetadata]:
    """Delete the savepoints that were created longer ago; return them by requested time.

    Nothing does this unless it is requested. Cleaning may then delete the files that only these
    savepoints kept, and archival may archive their commits.

    Args:
        table: the open table.
        older_than: the age of a savepoint since its creation.
        now: the current time; None for the time of this machine.

    Raises:
        InvalidConfig: ``older_than`` is not positive.
        Refused: a restore is pending.
        CorruptData: a savepoint is damaged.
    """
    expired = savepoint.expire_savepoints(table.context, _time_before(older_than, now))
    table.refresh()
    return expired


def _time_before(older_than: timedelta, now: datetime | None) -> datetime:
    if older_than <= timedelta():
        message = f"savepoints expire after a positive time, not {older_than}"
        raise InvalidConfig(message)
    return time_before(older_than, now)


def slices_to_keep(table: OpenTable) -> SlicesToKeep:
    """Return a function that finds the slices whose files a savepoint keeps.

    They are the slices that a query as of the commit reads, and those that a query reads after a
    restore to the commit (``lakemark.services.restored_state``).
    """
    is_merge_on_read = table.properties.is_merge_on_read

    def find(timeline: Timeline, instant: str) -> Iterable[FileSlice]:
        view = table.view_at(timeline)
        queried = view.as_of(instant).latest_slices()
        if table.version.logs_name_their_slice:
            return queried
        files = (file for group in view.groups.values() for file in group.files.values())
        plan = plan_restore(timeline, instant, is_merge_on_read)
        return [*queried, *restored_slices(files, plan, timeline, table.store)]

    return find
