"""Decides which instants of a metadata table are valid.

A commit is first published in the metadata table, and then in the data table with the same
requested time. The commit is valid only once it has completed in the data table, so readers see
both changes at the same time. Instants that only the metadata table has are valid once they have
completed.
Source: ``HoodieTableMetadataUtil.getValidInstantTimestamps`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from uuid import uuid4

from lakemark.errors import Refused
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline

#: Digits of an instant time; in table version 6, instants of a metadata table may have more.
MILLIS_DIGITS = 17
#: Prefix of the requested times of the instants that create partitions of the metadata table.
INITIAL = "0" * 14
#: Each of these instants ends in a number of three digits, which is less than this limit.
_NUMBERS_END = 1000
#: The smallest number that lakemark uses. Apache Hudi begins with 0, or with 10 in version 6.
_FIRST_NUMBER = 10


def draw_first_number(count: int) -> int:
    """Draw a random number for the first of ``count`` instants that create partitions.

    The numbers are random so that a metadata table that is built again seldom has files with the
    names of the dropped one. Then a request for a file of the dropped metadata table does no harm
    if the store executes it late. Apache Hudi accepts any number
    (``HoodieTableMetadataUtil.getValidInstantTimestamps``). For a partition that it adds, it uses
    the lowest unused number (``generateUniqueInstantTime``).
    """
    return _FIRST_NUMBER + uuid4().int % (_NUMBERS_END - count - _FIRST_NUMBER)


def draw_number(metadata: Timeline) -> int:
    """Draw the number of an instant that adds one partition to a metadata table.

    Args:
        metadata: the metadata table's timeline. An archived instant has its number for ever.

    Raises:
        Refused: all numbers are used.
    """
    numbers = random.sample(range(_FIRST_NUMBER, _NUMBERS_END), _NUMBERS_END - _FIRST_NUMBER)
    unused = (n for n in numbers if metadata.find(initial(n)) is None)
    found = next((n for n in unused if metadata.archived_time(initial(n)) is None), None)
    if found is None:
        message = (
            "the timeline of the metadata table has as many instants that created partitions as "
            "there can be; build the metadata table again (lakemark table check TABLE --rebuild "
            "--run)"
        )
        raise Refused(message)
    return found


def initial(number: int) -> str:
    """Return the requested time of an instant that creates a partition, by the instant's number."""
    return f"{INITIAL}{number:03d}"


def first_initial(metadata: Timeline) -> Instant | None:
    """Return the oldest active instant that created a partition; None if none is active.

    Completion times are compared, because the requested times do not show the order: Apache Hudi
    gives a partition that it adds later the lowest unused number.
    """
    created = (i for i in metadata.completed() if i.requested_at.startswith(INITIAL))
    return min(created, key=lambda i: i.completed_at or "", default=None)


@dataclass(frozen=True, slots=True)
class ValidInstants:
    """Decides for each log block whether its instant is valid; can be pickled for workers.

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
        # If an instant is not on the data table's timeline, only the metadata table has it, or it
        # was archived in the data table, or it was requested after the timeline was loaded. In
        # version 6, an instant of the metadata table may be a data instant plus three digits.
        newest = self.data.newest_time or ""
        return instant.startswith(INITIAL) or instant[:MILLIS_DIGITS] <= newest
