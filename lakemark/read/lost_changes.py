"""The error of a query whose commit can no longer, or not yet, be read."""

from __future__ import annotations

from lakemark.errors import InvalidConfig


class LostChanges(InvalidConfig):
    """Files with the changes of a commit do not exist: they were removed, or never written.

    Attributes:
        reason: which files and which commit.

    Args:
        reason: see the attribute.
        commit: requested time of the commit, after which a query can begin.
    """

    def __init__(self, reason: str, commit: str) -> None:
        super().__init__(f"{reason}; begin with {commit} or later")
        self.reason = reason
