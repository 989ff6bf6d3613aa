"""How the files of one file group make file slices, table version 8 and later.

A slice begins with a base file, or with a pending compaction that is going to write one. A log
belongs to the newest slice that had begun when the log's commit completed: so a compaction owns
whatever completes after it was requested, even if that had been requested earlier, and no log is
lost between the plan and its execution. Files of instants that did not complete are not there.

Source: ``HoodieFileGroup.getBaseInstantTime``, ``CompletionTimeQueryViewV2`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from typing import TypeAlias

from table.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile

#: Completion time by requested time; None for what is pending or never was.
CompletedAt: TypeAlias = Callable[[str], str | None]


def slice_file_group(
    group: FileGroupId,
    bases: Iterable[BaseFile],
    logs: Iterable[LogFile],
    completed_at: CompletedAt,
    compaction: str | None = None,
) -> tuple[FileSlice, ...]:
    """The file group's slices, oldest first.

    Args:
        group: the file group.
        bases: its base files, committed or not.
        logs: its log files, committed or not.
        completed_at: the timeline's answer for an instant.
        compaction: instant of a pending compaction that is to rewrite the group.
    """
    # Of two attempts at one base file the one with the larger token stays, on every machine.
    committed = sorted((b for b in bases if completed_at(b.name.instant)), key=_attempt)
    base_of = {base.name.instant: base for base in committed}
    starts = sorted({*base_of, *([compaction] if compaction else [])})
    logs_of: dict[str, list[LogFile]] = {}
    for log in sorted(logs, key=lambda log: log.name.scan_order):
        completion = completed_at(log.name.instant)
        if completion is not None and not log.name.is_cdc:
            logs_of.setdefault(_start_of(log, completion, starts), []).append(log)
    return tuple(
        FileSlice(group, start, base_of.get(start), tuple(logs_of.get(start, ())))
        for start in starts
    )


def merged_for_readers(slices: tuple[FileSlice, ...], compaction: str | None) -> FileSlice | None:
    """The newest slice as a query reads it; None when the group holds nothing.

    What a pending compaction has opened still stands on the slice before it.
    """
    if not slices:
        return None
    newest = slices[-1]
    if newest.base_instant != compaction or newest.base is not None:
        return newest
    if len(slices) == 1:
        return newest if newest.logs else None
    older = slices[-2]
    # In one scan order, as before the plan: a log of the newer slice may have been requested first.
    logs = sorted(older.logs + newest.logs, key=lambda log: log.name.scan_order)
    return FileSlice(newest.group, older.base_instant, older.base, tuple(logs))


def _start_of(log: LogFile, completion: str, starts: list[str]) -> str:
    """The slice that a log belongs to; a log older than all of them begins one, in ``starts``."""
    position = bisect_right(starts, completion)
    if position == 0:
        insort(starts, log.name.instant)
        return log.name.instant
    return starts[position - 1]


def _attempt(base: BaseFile) -> tuple[str, list[int], str]:
    numbers = [int(part) if part.isdigit() else 0 for part in base.name.write_token.split("-")]
    return base.name.instant, numbers, base.name.write_token
