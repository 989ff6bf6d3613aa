"""Files that a writer left after its instant was rolled back and the rollback was archived.

A file whose instant is older than the active timeline counts as committed, so such a file would
give its rows a second time, and a bucket a second file group. Its writer deletes it if it is still
able to (``roll_back``). Until then the history tells it from a file of a commit. Asking the history
takes requests, so only instants are asked for whose files were written long after the instant was
requested: that is how a late file looks, and so do those of a slow commit, of a service that was
planned long before, and of a copied table. The history is also asked about every archived instant
that is newer than a pending write, because an archival does not leave that. What the history says
is remembered.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from lakemark.errors import CorruptData
from lakemark.model.file_slice import LogFile
from lakemark.model.format_version import FormatVersion
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.taken_back import taken_back
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile

#: Shorter than it takes to replace a writer, roll it back, and archive the rollback behind as many
#: commits as stay active.
_SUSPICIOUS_AFTER = timedelta(seconds=30)

#: Instants that made a metadata table are of 1970.
_REAL_TIMES = "2"

_log = logging.getLogger(__name__)


def late_instants(
    store: TimelineStore, timeline: Timeline, written_at: Mapping[str, datetime]
) -> set[str]:
    """The instants of which only late files are there; asks the history only about suspicious ones.

    Args:
        store: reads the timeline's instants.
        timeline: the active one.
        written_at: when the last file of each instant was written.

    Raises:
        SnapshotChanged: the history was rewritten meanwhile; load the timeline again.
    """
    suspicious = {
        instant
        for instant, moment in written_at.items()
        if instant not in store.judged
        and instant.startswith(_REAL_TIMES)
        and timeline.find(instant) is None
        and timeline.is_archived(instant)
        and (timeline.is_in_doubt(instant) or _is_suspicious(instant, moment, store.clock))
    }
    if not suspicious:
        return set()
    try:
        late = taken_back(store, suspicious, timeline, store.load_archived())
    except CorruptData as error:
        _log.warning(
            "files of instants that were rolled back cannot be told from others: %s", error
        )
        return set()
    store.judged.update(suspicious - late)
    if late:
        named = ", ".join(sorted(late))
        _log.warning("files of %s are not read: they appeared after its rollback", named)
    return late


def _is_suspicious(instant: str, written_at: datetime, clock: TimelineClock) -> bool:
    with suppress(ValueError):  # a file that somebody put there: its name ends in another number
        return written_at - clock.parse(instant) > _SUSPICIOUS_AFTER
    return False


def without_late_files(
    files: Mapping[str, list[DataFile]], late: Collection[str], version: FormatVersion
) -> dict[str, list[DataFile]]:
    """The files by partition path, without those of late instants.

    A log of version 6 stays: its name tells its slice, not its writer.
    """

    def is_late(file: DataFile) -> bool:
        is_slice_name = isinstance(file, LogFile) and version.logs_name_their_slice
        return file.name.instant in late and not is_slice_name

    return {path: [file for file in some if not is_late(file)] for path, some in files.items()}
