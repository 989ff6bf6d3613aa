"""Creates, lists and deletes savepoints, which protect the files of a commit from cleaning."""

from __future__ import annotations

from collections.abc import Iterable

from lakemark.model.file_slice import FileSlice
from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.operations.open_table import OpenTable
from lakemark.services import savepoint
from lakemark.services.savepoint import SlicesAsOf
from lakemark.timeline.timeline import Timeline


def list_savepoints(table: OpenTable) -> dict[str, SavepointMetadata]:
    """Return the savepoints, by requested time of their commit, as of the last refresh."""
    return savepoint.savepoints(table.timeline, table.store)


def plan_savepoint(
    table: OpenTable, requested_at: str, user: str = "", comment: str = ""
) -> SavepointMetadata:
    """Return the files that ``create_savepoint`` would keep now. Raises the same errors."""
    return savepoint.plan_savepoint(table.context, requested_at, _slices_of(table), user, comment)


def create_savepoint(
    table: OpenTable, requested_at: str, user: str = "", comment: str = ""
) -> SavepointMetadata:
    """Create a savepoint of a completed commit, which keeps the table's files as of that commit.

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
    kept = savepoint.create_savepoint(table.context, requested_at, _slices_of(table), user, comment)
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


def _slices_of(table: OpenTable) -> SlicesAsOf:
    def slices_as_of(timeline: Timeline, instant: str) -> Iterable[FileSlice]:
        return table.view_at(timeline).as_of(instant).latest_slices()

    return slices_as_of
