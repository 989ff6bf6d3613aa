"""Finds the logs that commits wrote to the new file groups of a pending resize of buckets.

From table version 8 on, the name of a log contains the instant of its commit, so it shows whether
the commit has completed. But while a resize is pending, a commit to one of its buckets also writes
to the new file groups (``lakemark.write.log_copies``). The names of these logs contain the instant
of the resize, and only their blocks contain that of the commit. The metadata table lists such a log
when its commit has completed. A listing of storage also has the logs of pending commits, so these
logs are opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from lakemark.errors import CorruptData
from lakemark.log.log_writers import writers_in
from lakemark.model.action import REPLACING
from lakemark.model.file_slice import BaseFile, LogFile
from lakemark.model.format_version import FormatVersion
from lakemark.storage.storage import NotFound, Storage
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile


def names_resize(file: DataFile, timeline: Timeline, version: FormatVersion) -> bool:
    """Return whether the name of a log contains the instant of an active resize.

    The result is false in table version 6, in which the names of logs never contain their commit.
    """
    if version.logs_name_their_slice or not isinstance(file, LogFile):
        return False
    instant = timeline.find(file.name.instant)
    return instant is not None and instant.action in REPLACING


def logs_of_resizes(
    files: Iterable[DataFile], timeline: Timeline, version: FormatVersion
) -> Iterator[LogFile]:
    """Yield the logs whose names may contain the instant of a resize, not that of their commit.

    If the resize was archived, its base file shows it: no commit writes a base file and a log of
    the same file group. In a table that was upgraded from version 6, such a log may also have been
    written before the upgrade.
    """
    listed = list(files)
    bases = {_slice_of(file) for file in listed if isinstance(file, BaseFile)}
    for file in listed:
        if not isinstance(file, LogFile) or version.logs_name_their_slice:
            continue
        if _slice_of(file) in bases or names_resize(file, timeline, version):
            yield file


def find_writers(
    storage: Storage,
    files: Iterable[DataFile],
    timeline: Timeline,
    version: FormatVersion,
    known: dict[str, frozenset[str]],
) -> dict[LogFile, frozenset[str]]:
    """Return the commits that wrote the logs of resizes, unless they certainly have completed.

    After a resize was archived, its logs are opened only if a write is pending, because otherwise
    all of their commits have completed.

    Args:
        storage: the table's root.
        files: the listed data files.
        timeline: the active timeline.
        version: version of the table.
        known: the commits by path, which are added to it if they have completed.
    """
    is_any_pending = any(i.action.is_write for i in timeline.pending())
    found = {}
    for log in logs_of_resizes(files, timeline, version):
        if is_any_pending or names_resize(log, timeline, version):
            writers = known.get(log.path) or _writers_of(storage, log)
            if any(map(timeline.is_committed, writers)):
                known[log.path] = writers
            found[log] = writers
    return found


def unfinished(
    writers: Mapping[LogFile, Collection[str]], timeline: Timeline, late: Collection[str]
) -> set[str]:
    """Return the paths of the logs of which no writer has completed.

    Args:
        writers: the result of ``find_writers``.
        timeline: the active timeline.
        late: instants whose files are late (``lakemark.view.late_files``).
    """
    return {
        log.path
        for log, wrote in writers.items()
        if not any(timeline.is_committed(name) and name not in late for name in wrote)
    }


def _writers_of(storage: Storage, log: LogFile) -> frozenset[str]:
    """Return the instants in a log's blocks. A damaged log counts as one of the resize itself.

    So queries report the damage.
    """
    with suppress(NotFound):
        try:
            return frozenset(writers_in(storage, log))
        except CorruptData:
            return frozenset({log.name.instant})
    return frozenset()


def _slice_of(file: DataFile) -> tuple[str, str, str]:
    return file.partition_path, file.name.file_id, file.name.instant
