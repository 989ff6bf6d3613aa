"""What a restore is about to undo, and what it undid (``HoodieRestorePlan``, ``…Metadata``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakemark.model.rollback_plan import RollbackPlan

_PLAN_VERSION = 2


@dataclass(frozen=True, slots=True)
class UndoneInstant:
    """An instant by its name and the word of its action (``HoodieInstantInfo``)."""

    requested_at: str
    action: str

    def to_record(self) -> dict[str, str]:
        """The stored record."""
        return {"commitTime": self.requested_at, "action": self.action}


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The instants to undo, in that order.

    Attributes:
        restore_to: requested time of the commit whose state comes back; None in plans of Apache
            Hudi before 0.13, which did not say.
        instants: those to undo.
    """

    restore_to: str | None
    instants: tuple[UndoneInstant, ...]

    def to_record(self) -> dict[str, Any]:
        """The stored record."""
        return {
            "instantsToRollback": [instant.to_record() for instant in self.instants],
            "version": _PLAN_VERSION,
            "savepointToRestoreTimestamp": self.restore_to,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RestorePlan:
        """From the stored record."""
        listed = record.get("instantsToRollback") or ()
        return cls(
            record.get("savepointToRestoreTimestamp"),
            tuple(UndoneInstant(one["commitTime"], one["action"]) for one in listed),
        )


def restore_record(started_at: str, took_ms: int, undone: Sequence[RollbackPlan]) -> dict[str, Any]:
    """The record of the completed restore.

    Args:
        started_at: its own requested time.
        took_ms: milliseconds.
        undone: each instant with the files that were deleted.
    """
    return {
        "startRestoreTime": started_at,
        "timeTakenInMillis": took_ms,
        "instantsToRollback": [one.instant for one in undone],
        "hoodieRestoreMetadata": {
            one.instant: [one.metadata_record(started_at, took_ms)] for one in undone
        },
        "version": 1,
        "restoreInstantInfo": [
            UndoneInstant(one.instant, one.action).to_record() for one in undone
        ],
    }
