"""Decides which instants of a metadata table are valid.

A commit is written to the metadata table first, under the same requested time, and then completes
in the data table. It is valid once it has completed there, so both become visible together. The
metadata table's own instants, which the data table never has, are valid once they have completed.
Source: ``HoodieTableMetadataUtil.getValidInstantTimestamps`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline

#: Digits of an instant time; table version 6 appends more in a metadata table.
MILLIS_DIGITS = 17
#: Prefix of the requested times of the instants that create partitions of the metadata table.
INITIAL = "0" * 14
#: Number of the first of them, in table version 6 and later.
FIRST_V6, FIRST = 10, 0


def initial(number: int) -> str:
    """Return the requested time of an instant that creates a partition, by its number."""
    return f"{INITIAL}{number:03d}"


def first_initial(metadata: Timeline) -> Instant | None:
    """Return the instant that created the first partition; None once it is archived."""
    return metadata.find(initial(FIRST)) or metadata.find(initial(FIRST_V6))


@dataclass(frozen=True, slots=True)
class ValidInstants:
    """Decides for each log block whether its instant is valid. It can be pickled to workers.

    Attributes:
        data: the data table's timeline, loaded before ``metadata``.
        metadata: the metadata table's timeline.
    """

    data: Timeline
    metadata: Timeline

    def __call__(self, instant: str) -> bool:
        """Return whether the instant is valid."""
        if not self.metadata.is_committed(instant):
            return False
        known = self.data.find(instant)
        if known is not None:
            return known.is_completed
        # An instant that is not on the data table's timeline belongs to the metadata table alone
        # (version 6 appends three digits to the data table's instant), or was archived there, or
        # was requested after that timeline was loaded.
        newest = self.data.newest_time or ""
        return instant.startswith(INITIAL) or instant[:MILLIS_DIGITS] <= newest
