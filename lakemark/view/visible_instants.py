"""Decides which commits are visible in a view, for readers of log blocks."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.model.format_version import FormatVersion
from lakemark.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class VisibleInstants:
    """Decides which log blocks are visible. The object can be pickled for workers.

    A block is visible if its commit is completed or archived, and is not later than ``until``.
    Source: ``BaseHoodieLogRecordReader`` of Apache Hudi 1.2.0.

    Attributes:
        timeline: decides which instants are committed. None in table version 8 and later, where all
            blocks of a visible log are committed.
        until: the last visible instant; None for the latest state.
    """

    timeline: Timeline | None = None
    until: str | None = None

    @classmethod
    def of(
        cls, timeline: Timeline, version: FormatVersion, until: str | None = None
    ) -> VisibleInstants:
        """Return the visible instants of a timeline, for a table of this version."""
        return cls(timeline.without_archive() if version.logs_name_their_slice else None, until)

    def __call__(self, instant: str) -> bool:
        """Return whether log blocks of this commit are visible."""
        if self.until is not None and instant > self.until:
            return False
        return self.timeline is None or self.timeline.is_committed(instant)
