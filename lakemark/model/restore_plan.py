"""The plan of a restore and its completed content (``HoodieRestorePlan``, ``…Metadata``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakemark.model.rollback_plan import RollbackPlan

_PLAN_VERSION = 2

#: The time to which a table is restored that is to become empty, instead of that of a commit
#: (``HoodieTableMetadata.SOLO_COMMIT_TIMESTAMP``, which Apache Hudi's restore also accepts).
EMPTY_TABLE = "0" * 14


@dataclass(frozen=True, slots=True)
class UndoneInstant:
    """Requested time and action of an instant (``HoodieInstantInfo``)."""

    requested_at: str
    action: str

    def to_record(self) -> dict[str, str]:
        """Build the stored record."""
        return {"commitTime": self.requested_at, "action": self.action}


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The plan of a restore.

    Attributes:
        restore_to: requested time of the commit to which the table is restored; ``EMPTY_TABLE`` to
            undo all commits; None in plans of Apache Hudi before 0.13, which did not record it.
        instants: the instants to undo, in this order.
    """

    restore_to: str | None
    instants: tuple[UndoneInstant, ...]

    @property
    def empties_table(self) -> bool:
        """Whether all commits are undone, also those that were archived."""
        return self.restore_to == EMPTY_TABLE

    def to_record(self) -> dict[str, Any]:
        """Build the stored record."""
        return {
            "instantsToRollback": [instant.to_record() for instant in self.instants],
            "version": _PLAN_VERSION,
            "savepointToRestoreTimestamp": self.restore_to,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RestorePlan:
        """Read the stored record."""
        listed = record.get("instantsToRollback") or ()
        return cls(
            record.get("savepointToRestoreTimestamp"),
            tuple(UndoneInstant(one["commitTime"], one["action"]) for one in listed),
        )


def records_deleted_archived(record: Mapping[str, Any]) -> bool:
    """Return whether a completed restore deleted the files of all archived instants."""
    return EMPTY_TABLE in (record.get("hoodieRestoreMetadata") or {})


def restore_metadata_record(
    started_at: str, took_ms: int, undone: Sequence[RollbackPlan], deletes_archived: bool
) -> dict[str, Any]:
    """Build the stored record of the completed restore.

    Args:
        started_at: requested time of the restore.
        took_ms: duration of the restore in milliseconds.
        undone: the undone instants with their deleted files.
        deletes_archived: whether the files of all archived instants were deleted, too. The record
            shows it by an entry for ``EMPTY_TABLE`` without files, which readers ignore.
    """
    marks: dict[str, list[dict[str, Any]]] = {EMPTY_TABLE: []} if deletes_archived else {}
    return {
        "startRestoreTime": started_at,
        "timeTakenInMillis": took_ms,
        "instantsToRollback": [one.instant for one in undone],
        "hoodieRestoreMetadata": marks
        | {one.instant: [one.metadata_record(started_at, took_ms)] for one in undone},
        "version": 1,
        "restoreInstantInfo": [
            UndoneInstant(one.instant, one.action).to_record() for one in undone
        ],
    }
