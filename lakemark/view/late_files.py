"""Detects late files: files that a writer wrote after the rollback of its instant was archived.

Files of an instant that is older than the active timeline count as committed. So queries would
return the rows of a late file, and a bucket could get a second file group. If it can, the writer of
a late file deletes the file (``roll_back``). Until then, the archive shows that the file's instant
was rolled back.

Reading the archive costs requests, so it is read only for three kinds of archived instants:

- instants with a file that was written long after the instant was requested. Slow commits, table
  services that were planned long before, and copied tables have such files too.
- instants that were requested before a restore to the empty table, while the restore is active. The
  restore deleted their files, and a writer that was at work then may write more of them. The
  archival of the restore deletes these, and later ones are of the first kind.
- instants that are newer than a pending write. Archival keeps such instants active, so archived
  instants of this kind are suspicious.

The result is cached.
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
from lakemark.timeline.undone_instants import find_emptied_at, find_undone
from lakemark.view.file_lister import DataFile

#: A file is suspicious if it was written more than this time after its instant was requested. A
#: late file is written even later, because another writer must first have taken over, rolled back
#: the instant, written the commits that stay active, and archived the rollback.
_SUSPICIOUS_AFTER = timedelta(seconds=30)

#: First digit of the year in ordinary instants. Instants that initialise a metadata table have the
#: year 1970.
_REAL_TIMES = "2"

_log = logging.getLogger(__name__)


def find_late_instants(
    store: TimelineStore, timeline: Timeline, written_at: Mapping[str, datetime]
) -> set[str]:
    """Return the instants whose files are late, because the instants were rolled back.

    The archive is read only for suspicious instants.

    Args:
        store: reads the timeline's instants.
        timeline: the active timeline.
        written_at: when the last file of each instant was written.

    Raises:
        SnapshotChanged: the archive was rewritten meanwhile; load the timeline again.
    """
    archived = {
        instant
        for instant in written_at
        if instant not in store.judged
        and instant.startswith(_REAL_TIMES)
        and timeline.find(instant) is None
        and timeline.is_archived(instant)
    }
    if not archived:
        return set()
    try:
        emptied_at = find_emptied_at(store, timeline)
        suspicious = {
            instant
            for instant in archived
            if instant < emptied_at
            or timeline.is_in_doubt(instant)
            or _is_suspicious(instant, written_at[instant], store.clock)
        }
        if not suspicious:
            return set()
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
        _log.warning("files of %s are skipped: they were written after the rollback", named)
    return late


def _is_suspicious(instant: str, written_at: datetime, clock: TimelineClock) -> bool:
    with suppress(ValueError):  # a file of another program: its name has a number, but not a time
        return written_at - clock.parse(instant) > _SUSPICIOUS_AFTER
    return False


def without_late_files(
    files: Mapping[str, list[DataFile]], late: Collection[str], version: FormatVersion
) -> dict[str, list[DataFile]]:
    """Return the files by partition path, without the files of late instants.

    Logs of version 6 are kept, because they are named after the instant of their slice, not of the
    commit that wrote them.
    """

    def is_late(file: DataFile) -> bool:
        is_slice_name = isinstance(file, LogFile) and version.logs_name_their_slice
        return file.name.instant in late and not is_slice_name

    return {path: [file for file in some if not is_late(file)] for path, some in files.items()}
