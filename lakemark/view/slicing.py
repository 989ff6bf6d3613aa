"""Divides the files of one file group into file slices.

Table version 8 and later: a slice begins with a base file, or with a pending compaction that will
write one. A log belongs to the newest slice that had begun when the log's commit completed. So a
compaction's slice gets all logs that complete after its request, even if they were requested
earlier. No log is lost between the plan and its execution. Files of instants that did not
complete are ignored.

Version 6: the name of a log contains the instant of its slice. It is the instant of the base file,
of the compaction that will write it, or, without either, of the commit that wrote the first log. A
slice exists if that instant completed or is a pending compaction. Whether a commit in a log is
visible is decided block by block (``VisibleInstants``). Apache Hudi 1.2.0 looks up the completion
time of the named instant and uses the newest slice that is not later. This is the named slice as
long as modification times are unchanged; lakemark always uses the named slice.

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
        bases: its base files, committed or not.
        logs: its log files, committed or not.
        timeline: decides which instants are committed, and since when.
        version: the table's.
        compaction: instant of a pending compaction of the group.
    """
    # If it is unknown which of two attempts at one base file completed, every process uses the one
    # with the larger token; see ``lost_attempts``.
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

    A slice that a pending compaction opened is merged with the slice before it.
    """
    if not slices:
        return None
    newest = slices[-1]
    if newest.base_instant != compaction or newest.base is not None:
        return newest
    if len(slices) == 1:
        return newest if newest.logs else None
    older = slices[-2]
    # Sorted in one scan order: a log of the newer slice may have been requested first.
    logs = sorted(older.logs + newest.logs, key=lambda log: log.name.scan_order)
    return FileSlice(newest.group, older.base_instant, older.base, tuple(logs))


def _named_start(log: LogFile, starts: list[str], timeline: Timeline) -> str | None:
    """Return the slice that a log of table version 6 names, if it exists."""
    named = log.name.instant
    return named if named in starts or timeline.is_committed(named) else None


def _start_at_completion(log: LogFile, starts: list[str], timeline: Timeline) -> str | None:
    """Return the slice that a log belongs to; its own commit if it is older than all slices."""
    instant = log.name.instant
    if not timeline.is_committed(instant):
        return None
    if starts and instant >= starts[-1]:
        return starts[-1]  # it completed even later, so its completion time is not looked up
    position = bisect_right(starts, timeline.completed_at(instant) or instant) if starts else 0
    return starts[position - 1] if position else instant


def _attempt(base: BaseFile) -> tuple[str, list[int], str]:
    numbers = [int(part) if part.isdigit() else 0 for part in base.name.write_token.split("-")]
    return base.name.instant, numbers, base.name.write_token
