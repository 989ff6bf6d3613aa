"""Decides which instants of a metadata table are valid.

A commit is first published in the metadata table, and then in the data table with the same
requested time. The commit is valid only once it has completed in the data table, so readers see
both changes at the same time. Instants that only the metadata table has are valid once they have
completed.
Source: ``HoodieTableMetadataUtil.getValidInstantTimestamps`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from lakemark.model.action import Action
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline

#: Digits of an instant time; in table version 6, instants of a metadata table may have more.
MILLIS_DIGITS = 17
#: Prefix of the requested times of the instants that create the partitions of a new metadata table.
#: Apache Hudi also uses it for a partition that a writer adds without an indexing action.
INITIAL = "0" * 14
#: Digits of an instant time up to the second, and the digits of its first and last millisecond.
_SECOND_DIGITS, _NO_MILLIS, _LAST_MILLI = 14, "000", "999"
#: Each of these instants ends in a number of three digits, which is less than this limit.
_NUMBERS_END = 1000
#: The smallest number that lakemark uses. Apache Hudi begins with 0, or with 10 in version 6.
_FIRST_NUMBER = 10


def draw_first_number(count: int) -> int:
    """Draw a random number for the first of ``count`` instants that create a metadata table.

    The numbers are random so that a metadata table that is built again seldom has files with the
    names of the dropped one. Then a request for a file of the dropped metadata table does no harm
    if the store executes it late. Apache Hudi accepts any number
    (``HoodieTableMetadataUtil.getValidInstantTimestamps``).
    """
    return _FIRST_NUMBER + uuid4().int % (_NUMBERS_END - count - _FIRST_NUMBER)


def initial(number: int) -> str:
    """Return the requested time of an instant of a new metadata table, by the instant's number."""
    return f"{INITIAL}{number:03d}"


def creates_partition(instant: Instant, data: Timeline) -> bool:
    """Return whether a delta commit of a metadata table is known to have created a partition.

    A partition of a new metadata table is created by an instant with a number. A partition that is
    added later is created by an instant with the requested time of the indexing action. If its
    instant had a number, it would become the start of the metadata table's timeline. Then Apache
    Hudi would no longer take instants between the number and the old start for archived, and would
    ignore their base files. The result is False if the indexing action is archived, so that all
    commits from before its completion are archived, too. Source:
    ``HoodieBackedTableMetadataWriter.generateUniqueInstantTime``.

    Args:
        instant: a delta commit of the metadata table.
        data: the data table's timeline.
    """
    if is_numbered(instant):
        return True
    announced = data.find(instant.requested_at)
    return announced is not None and announced.action is Action.INDEXING


def is_numbered(instant: Instant) -> bool:
    """Return whether an instant that creates a partition has a number instead of a time."""
    return instant.requested_at.startswith(INITIAL)


def first_initial(metadata: Timeline) -> Instant | None:
    """Return the oldest active instant with a number; None if none is active.

    Completion times are compared, because the numbers do not show the order: Apache Hudi gives a
    partition that it adds later, without an indexing action, the lowest unused number.
    """
    created = filter(is_numbered, metadata.completed())
    return min(created, key=lambda i: i.completed_at or "", default=None)


def latest_completion(instant: Instant) -> str:
    """Return the latest time at which a completed instant may have completed.

    In timeline layout 1, the completion time is a modification time, which many stores record in
    whole seconds. If such a time is before the requested time of the instant, the timeline has the
    requested time instead (``TimelineReader.instant_of``).
    """
    completed_at = instant.completed_at
    assert completed_at is not None, instant
    is_exact = completed_at != instant.requested_at and not completed_at.endswith(_NO_MILLIS)
    if is_exact or not instant.is_legacy:
        return completed_at
    return completed_at[:_SECOND_DIGITS] + _LAST_MILLI


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
