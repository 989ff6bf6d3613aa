"""The error of a query whose commit can no longer, or not yet, be read."""

from __future__ import annotations

from lakemark.errors import InvalidConfig


class LostChanges(InvalidConfig):
    """Files with the changes of a commit do not exist: they were removed, or never written."""
