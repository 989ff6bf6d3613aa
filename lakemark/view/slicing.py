"""Divides the files of one file group into file slices.

In table version 8 and later, a slice begins with a base file, or with a pending compaction that
will write the base file. A log belongs to the newest slice that had begun when the log's commit
completed. So a log that completes after the request of a compaction belongs to the slice of the
compaction, even if the log was requested earlier. Therefore no log is lost between the plan of a
compaction and its execution. Files of instants that did not complete are ignored.

In version 6, the name of a log contains the instant of its slice. The instant of a slice is the
instant of its base file, or of the compaction that will write the base file. If there is neither,
the slice has the instant of the commit that wrote the first log. A slice exists if its instant is
completed or is a pending compaction. Readers check for each block of a log whether its commit is
visible (``VisibleInstants``).

For version 6, Apache Hudi 1.2.0 looks up the completion time of the instant in the log's name, and
uses the newest slice that is not later. lakemark always uses the slice that the log names. The two
slices differ only if modification times have changed.

From version 8 on, Apache Hudi 1.2.0 also begins a slice with the base file of a pending commit, and
with the first log of a file group without base files, if that log belongs to a pending commit. If
it lists storage, it then omits the logs of later commits, although these have completed. lakemark
begins slices with files of completed commits only.

Source: ``HoodieFileGroup.getBaseInstantTime``, ``AbstractTableFileSystemView``,
``CompletionTimeQueryViewV1``, ``…V2`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.model.format_version import FormatVersion
from lakemark.timeline.timeline import Timeline


def slice_file_group(
    group: FileGroupId,
    bases: Iterable[BaseFile],
    logs: Iterable[LogFile],
    timeline: Timeline,
    version: FormatVersion,
    compaction: str | None = None,
) -> tuple[FileSlice, ...]:
    """Return the file group's slices, oldest first.

    Args:
        group: the file group.
        bases: base files of the group, committed or not.
        logs: log files of the group, committed or not.
        timeline: decides which instants are committed, and when they completed.
        version: version of the table.
        compaction: instant of a pending compaction of the group; None if there is none.
    """
    # Several attempts may have written a base file of the same slice. If it is unknown which of
    # them completed, every process uses the file with the largest token; see ``lost_attempts``.
    committed = sorted((b for b in bases if timeline.is_committed(b.name.instant)), key=_attempt)
    base_of = {base.name.instant: base for base in committed}
    starts = sorted({*base_of, *([compaction] if compaction else [])})
    start_of = _named_start if version.logs_name_their_slice else _start_at_completion
    logs_of: dict[str, list[LogFile]] = {}
    for log in sorted(logs, key=lambda log: log.name.scan_order):
        start = None if log.name.is_cdc else start_of(log, starts, timeline)
        if start is not None:
            logs_of.setdefault(start, []).append(log)
            if start not in starts:
                insort(starts, start)
    return tuple(
        FileSlice(group, start, base_of.get(start), tuple(logs_of.get(start, ())))
        for start in starts
    )


def merge_for_readers(slices: tuple[FileSlice, ...], compaction: str | None) -> FileSlice | None:
    """Return the newest slice as a query reads it; None if the group is empty.

    If a pending compaction opened the newest slice, the result also has the files of the slice
    before.
    """
    if not slices:
        return None
    newest = slices[-1]
    if newest.base_instant != compaction or newest.base is not None:
        return newest
    if len(slices) == 1:
        return newest if newest.logs else None
    older = slices[-2]
    # Logs of both slices are sorted together, because a log of the newer slice may be older.
    logs = sorted(older.logs + newest.logs, key=lambda log: log.name.scan_order)
    return FileSlice(newest.group, older.base_instant, older.base, tuple(logs))


def _named_start(log: LogFile, starts: list[str], timeline: Timeline) -> str | None:
    """Return the slice that a log of version 6 names; None if there is no such slice."""
    named = log.name.instant
    return named if named in starts or timeline.is_committed(named) else None


def _start_at_completion(log: LogFile, starts: list[str], timeline: Timeline) -> str | None:
    """Return the instant of the slice to which a log of table version 8 or later belongs.

    If all slices are newer than the log, the log begins a slice with the instant of its own commit.
    If the log's commit did not complete, the result is None.
    """
    instant = log.name.instant
    if not timeline.is_committed(instant):
        return None
    if starts and instant >= starts[-1]:
        return starts[-1]  # the log was requested, and so completed, after the slice began
    position = bisect_right(starts, timeline.completed_at(instant) or instant) if starts else 0
    return starts[position - 1] if position else instant


def _attempt(base: BaseFile) -> tuple[str, list[int], str]:
    numbers = [int(part) if part.isdigit() else 0 for part in base.name.write_token.split("-")]
    return base.name.instant, numbers, base.name.write_token
