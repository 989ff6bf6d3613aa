"""The errors of a target of changes."""

from __future__ import annotations

from lakemark.errors import Permanent, Retriable


class TargetUnavailable(Retriable):
    """The target did not answer. The changes of the commit were not delivered, or are checked."""


class TargetRefused(Permanent):
    """The target does not accept changes: its state or its settings must be changed first."""
