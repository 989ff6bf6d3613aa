"""Detects late files: a writer wrote them after the rollback of its instant was archived.

A file whose instant is older than the active timeline counts as committed. So a late file would
return its rows again, and give a bucket a second file group. Its writer deletes the file if it
still can (``roll_back``). Until then the history of the table shows that the instant was rolled
back. Reading the history costs requests, so it is read only for suspicious instants: those whose
files were written long after the request. Besides late files these are files of slow commits, of
services that were planned long before, and of copied tables. The history is also read for each
archived instant that is newer than a pending write, because an archival does not leave such a
write. The result is cached.
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
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.timeline.undone_instants import find_undone
from lakemark.view.file_lister import DataFile

#: Less than the time to replace a writer, roll back its instant, and archive the rollback after
#: the commits that stay active.
_SUSPICIOUS_AFTER = timedelta(seconds=30)

#: Instants that initialise a metadata table are of the year 1970.
_REAL_TIMES = "2"

_log = logging.getLogger(__name__)


def find_late_instants(
    store: TimelineStore, timeline: Timeline, written_at: Mapping[str, datetime]
) -> set[str]:
    """Find instants that have only late files; reads the history for suspicious ones only.

    Args:
        store: reads the timeline's instants.
        timeline: the active timeline.
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
        late = find_undone(store, suspicious, timeline, store.load_archived())
    except CorruptData as error:
        _log.warning(
            "late files of instants that were rolled back may be read, because the history is "
            "damaged: %s",
            error,
        )
        return set()
    store.judged.update(suspicious - late)
    if late:
        named = ", ".join(sorted(late))
        _log.warning("files of %s are skipped: they were written after its rollback", named)
    return late


def _is_suspicious(instant: str, written_at: datetime, clock: TimelineClock) -> bool:
    with suppress(ValueError):  # a file of another program, whose name ends in another number
        return written_at - clock.parse(instant) > _SUSPICIOUS_AFTER
    return False


def without_late_files(
    files: Mapping[str, list[DataFile]], late: Collection[str], version: FormatVersion
) -> dict[str, list[DataFile]]:
    """Return the files by partition path, without those of late instants.

    A log of version 6 is kept, because its name contains its slice and not its writer.
    """

    def is_late(file: DataFile) -> bool:
        is_slice_name = isinstance(file, LogFile) and version.logs_name_their_slice
        return file.name.instant in late and not is_slice_name

    return {path: [file for file in some if not is_late(file)] for path, some in files.items()}
