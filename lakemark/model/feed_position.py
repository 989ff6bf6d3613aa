"""The position of a reader of a table's commits (``lakemark.operations.change_feed``)."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.model.instant import Instant


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """A position between two commits.

    Attributes:
        requested_at: commits that were requested later follow (table version 6); "" if all do.
        completed_at: commits that completed later follow (other versions); "" if all do.
        is_commit: whether these are the times of the last commit that was read.
        is_legacy: whether that commit was read in table version 6, by requested time.
        changed_by: the requested time of the last commit before it that changed rows, if that
            commit is certain to have changed none; "" if no such commit was read. None if that
            commit may have changed rows.
    """

    requested_at: str
    completed_at: str
    is_commit: bool = False
    is_legacy: bool = False
    changed_by: str | None = None

    @classmethod
    def after(cls, commit: Instant) -> FeedPosition:
        """Return the position after a completed commit."""
        completed_at = commit.completed_at or commit.requested_at
        return cls(commit.requested_at, completed_at, is_commit=True, is_legacy=commit.is_legacy)

    @property
    def last_change(self) -> str:
        """The requested time of the last commit that may have changed rows; "" if none was read."""
        if self.changed_by is not None:
            return self.changed_by
        return self.requested_at if self.is_commit else ""
