"""Which instants of a metadata table count.

A commit goes to the metadata table first, under the same instant, and then to the data table. It
counts when the latter has completed; so both become visible together. Instants that the data table
never had (the metadata table's own) count when the metadata table has completed them. Source:
``HoodieTableMetadataUtil.getValidInstantTimestamps`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline

#: Of a time; table version 6 appends more to it in a metadata table.
MILLIS_DIGITS = 17
#: How the instants begin that made a partition of the metadata table.
INITIAL = "0" * 14
#: How the first of them ends, in table version 6 and since.
FIRST_V6, FIRST = 10, 0


def initial(number: int) -> str:
    """The instant of that number among those that made a partition."""
    return f"{INITIAL}{number:03d}"


def first_initial(metadata: Timeline) -> Instant | None:
    """The instant that made a metadata table, while it is on its timeline."""
    return metadata.find(initial(FIRST)) or metadata.find(initial(FIRST_V6))


@dataclass(frozen=True, slots=True)
class ValidInstants:
    """Answers for the blocks of log files; pickles to workers.

    Attributes:
        data: the data table's timeline, loaded before ``metadata`` was.
        metadata: the metadata table's timeline.
    """

    data: Timeline
    metadata: Timeline

    def __call__(self, instant: str) -> bool:
        """Whether what that instant wrote counts."""
        if not self.metadata.is_committed(instant):
            return False
        known = self.data.find(instant)
        if known is not None:
            return known.is_completed
        # One that is not on the data table's timeline is of the metadata table alone (version 6
        # appends three digits to the data table's instant), or left that timeline, or was
        # requested after it was loaded.
        newest = self.data.newest_time or ""
        return instant.startswith(INITIAL) or instant[:MILLIS_DIGITS] <= newest
