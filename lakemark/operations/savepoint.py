"""Savepoints of an open table: keep the files of a commit from cleaning."""

from __future__ import annotations

from collections.abc import Iterable

from lakemark.model.file_slice import FileSlice
from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.operations.open_table import OpenTable
from lakemark.services import savepoint
from lakemark.services.savepoint import SlicesAsOf
from lakemark.timeline.timeline import Timeline


def list_savepoints(table: OpenTable) -> dict[str, SavepointMetadata]:
    """Return each savepoint by the requested time of its commit, as of the table's last refresh."""
    return savepoint.savepoints(table.timeline, table.store)


def plan_savepoint(
    table: OpenTable, requested_at: str, user: str = "", comment: str = ""
) -> SavepointMetadata:
    """Return the files that ``create_savepoint`` would keep now; errors as there."""
    return savepoint.plan_savepoint(table.context, requested_at, _slices_of(table), user, comment)


def create_savepoint(
    table: OpenTable, requested_at: str, user: str = "", comment: str = ""
) -> SavepointMetadata:
    """Keep the files of the state as of a completed commit.

    Args:
        table: the open table.
        requested_at: of the commit.
        user: that the savepoint records.
        comment: that the savepoint records.

    Raises:
        InvalidConfig: there is no such commit on the active timeline.
        Refused: it has a savepoint, files of its state were cleaned, or a clean, a restore or its
            rollback is pending.
    """
    kept = savepoint.create_savepoint(table.context, requested_at, _slices_of(table), user, comment)
    table.refresh()
    return kept


def plan_savepoint_deletion(table: OpenTable, requested_at: str) -> SavepointMetadata:
    """Return the files that a savepoint keeps, which cleaning may delete after its deletion."""
    return savepoint.plan_deletion(table.context, requested_at)


def delete_savepoint(table: OpenTable, requested_at: str) -> None:
    """Let cleaning delete the files of a savepoint again.

    Raises:
        InvalidConfig: there is no savepoint of that commit.
        Refused: a restore is pending.
    """
    savepoint.delete_savepoint(table.context, requested_at)
    table.refresh()


def _slices_of(table: OpenTable) -> SlicesAsOf:
    def slices_as_of(timeline: Timeline, instant: str) -> Iterable[FileSlice]:
        return table.view_at(timeline).as_of(instant).latest_slices()

    return slices_as_of
