"""The methods of ``lakemark.Table`` that undo commits, and keep commits in savepoints."""

from __future__ import annotations

from datetime import timedelta

from lakemark.errors import InvalidConfig
from lakemark.facade.base import TableFacade
from lakemark.model.action import Action
from lakemark.model.file_slice import join
from lakemark.model.restore_plan import EMPTY_TABLE
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.operations.restore import restore_table
from lakemark.operations.rollback import roll_back_instant
from lakemark.operations.savepoint import (
    create_savepoint,
    delete_savepoint,
    expire_savepoints,
    list_savepoints,
)
from lakemark.operations.service_result import ServiceResult
from lakemark.transaction.instant_files import names_of


class HistoryMethods(TableFacade):
    """Rolls back, restores, and keeps savepoints."""

    def rollback(self, instant: str) -> ServiceResult:
        """Roll back one instant: the newest commit, or a pending instant.

        Args:
            instant: requested time of the instant.

        Raises:
            InvalidConfig: there is no such instant on the active timeline.
            Refused: the instant cannot be rolled back. The message says what to do first.
        """
        undone = roll_back_instant(self._maintained(), instant)
        return ServiceResult(instants=(instant,), files=_paths(undone))

    @property
    def savepoints(self) -> dict[str, SavepointMetadata]:
        """The table's savepoints, by the requested time of their commits."""
        return list_savepoints(self._table)

    def savepoint(self, instant: str | None = None, *, user: str = "", comment: str = "") -> str:
        """Create a savepoint, so that cleaning keeps the files of the table as of a commit.

        Args:
            instant: requested time of the commit; None for the newest commit.
            user: user name to record in the savepoint.
            comment: comment to record in the savepoint.

        Returns:
            The requested time of the commit.

        Raises:
            InvalidConfig: there is no such commit on the active timeline.
            Refused: the commit already has a savepoint, its files were cleaned, or a clean or
                restore is pending.
        """
        chosen = instant or self._newest_commit()
        create_savepoint(self._table, chosen, user, comment)
        return chosen

    def delete_savepoint(self, instant: str) -> None:
        """Delete a savepoint, so that cleaning may delete its files.

        Args:
            instant: requested time of the savepoint's commit.

        Raises:
            InvalidConfig: that commit has no savepoint.
            Refused: a restore is pending.
        """
        delete_savepoint(self._table, instant)

    def expire_savepoints(self, older_than: timedelta) -> tuple[str, ...]:
        """Delete the savepoints that were created longer ago than ``older_than``.

        Savepoints never expire by themselves.

        Returns:
            The requested times of their commits, oldest first.

        Raises:
            InvalidConfig: ``older_than`` is not positive.
            Refused: a restore is pending.
        """
        return tuple(expire_savepoints(self._table, older_than))

    def restore(self, instant: str | None = None, *, to_empty: bool = False) -> ServiceResult:
        """Undo every write after a commit. If a restore is pending, complete it instead.

        Args:
            instant: requested time of the commit or savepoint to restore to; None to complete the
                pending restore.
            to_empty: whether all commits are undone, also archived ones, so that the table is
                empty; without ``instant``.

        Raises:
            InvalidConfig: there is no such commit, a restore to another commit is pending, or
                ``instant`` is None and no restore is pending; or both arguments are given.
            Refused: the table cannot be restored to that commit. The message says why.
        """
        self._table.refresh()
        if to_empty and instant is not None:
            message = "pass either the instant to restore to, or to_empty=True"
            raise InvalidConfig(message)
        restore_to = EMPTY_TABLE if to_empty else instant
        if restore_to is None and not self._table.timeline.pending(Action.RESTORE):
            message = (
                f"no restore of {self._table.location.url} is pending; name a commit, or pass "
                "to_empty=True"
            )
            raise InvalidConfig(message)
        undone = restore_table(self._table, restore_to)
        return ServiceResult(
            instants=tuple(one.instant for one in undone),
            files=tuple(path for one in undone for path in _paths(one)),
        )

    def _newest_commit(self) -> str:
        self._table.refresh()  # another writer may have committed
        completed = [i for i in self._table.timeline.completed() if i.action.is_ingest]
        if not completed:
            message = f"table {self._table.location.url} has no commit to keep"
            raise InvalidConfig(message)
        return completed[-1].requested_at


def _paths(undone: RollbackPlan) -> tuple[str, ...]:
    """Return the paths, relative to the table's root, of an undone instant's deleted files."""
    named = names_of(undone.files).items()
    return tuple(join(partition, name) for partition, names in named for name in names)
