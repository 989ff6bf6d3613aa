"""Which commits a view shows, for readers that have to ask block by block."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.model.format_version import FormatVersion
from lakemark.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class VisibleInstants:
    """Answers for the blocks of log files; pickles to workers.

    A block counts when its commit completed, or was archived, and is not later than the moment that
    the view shows. Source: ``BaseHoodieLogRecordReader`` of Apache Hudi 1.2.0.

    Attributes:
        timeline: says what is committed; None where logs are visible as a whole, as in table
            version 8 and later.
        until: the last instant that counts; None for the latest state.
    """

    timeline: Timeline | None = None
    until: str | None = None

    @classmethod
    def of(
        cls, timeline: Timeline, version: FormatVersion, until: str | None = None
    ) -> VisibleInstants:
        """Those of a table of that version."""
        return cls(timeline.without_archive() if version.logs_name_their_slice else None, until)

    def __call__(self, instant: str) -> bool:
        """Whether blocks of that commit count."""
        if self.until is not None and instant > self.until:
            return False
        return self.timeline is None or self.timeline.is_committed(instant)
