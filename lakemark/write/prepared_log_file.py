"""Logs that were encoded before the instant that publishes them was known.

They lie in a folder on this machine's disk. Each has the changes of an earlier commit, and its
blocks have the instant of this commit. The logs of a file group become one log of the table, whose
name contains the instant that publishes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_names import LogFileName, write_token
from lakemark.model.file_slice import FileGroupId, join
from lakemark.write.markers import create_marker
from lakemark.write.new_log_file import NewLogFile
from lakemark.write.partitioner import task_number
from lakemark.write.prepared_file import PreparedFile
from lakemark.write.write_context import WriteContext
from lakemark.write.write_status import close_file


@dataclass(frozen=True, slots=True)
class PreparedLogFile(PreparedFile):
    """A log in a folder on this machine's disk."""


def new_prepared_log(context: WriteContext, group: FileGroupId, number: int) -> NewLogFile:
    """Begin a log that is published later.

    Args:
        context: the write context with the folder, and with the instant of the earlier commit.
        group: the file group.
        number: tells apart the prepared logs of the group.
    """
    name = LogFileName(group.file_id, context.instant, number, write_token(task_number(group)))
    return NewLogFile(context, group, name)


def publish_logs(
    context: WriteContext, logs: Sequence[PreparedLogFile], base_name: str
) -> list[WriteStat]:
    """Write the first logs of a file group that the instant creates, and return their write stats.

    Mostly this is one log. Prepared logs that exceed the largest size of a log together become
    several.

    Args:
        context: the context of the instant, equal to that of the prepared logs except for the
            instant and the attempt.
        logs: the prepared logs of the file group, oldest first; at least one.
        base_name: the name of the base file; "" if there is none.

    Raises:
        ContentMismatch: a file with other bytes exists at the path.
    """
    files = _divide(logs, context.max_log_bytes)
    stats = [_publish(context, some, number) for number, some in enumerate(files, start=1)]
    names = [name for stat in stats for name in stat.log_files or ()]
    return [
        replace(stat, base_file=base_name, log_files=tuple(names[:number]))
        for number, stat in enumerate(stats, start=1)
    ]


def _divide(logs: Sequence[PreparedLogFile], max_bytes: int) -> list[list[PreparedLogFile]]:
    """Divide prepared logs into the logs of the table, of which only the last may be smaller."""
    files: list[list[PreparedLogFile]] = [[]]
    for log in logs:
        if sum(one.stat.file_size_in_bytes for one in files[-1]) > max_bytes:
            files.append([])
        files[-1].append(log)
    return files


def _publish(context: WriteContext, logs: Sequence[PreparedLogFile], number: int) -> WriteStat:
    """Write the log of the table that has this number."""
    group = logs[0].group
    token = write_token(task_number(group), context.attempt)
    name = LogFileName(group.file_id, context.instant, number, token)
    path = join(group.partition_path, str(name))
    names_slice = context.version.logs_name_their_slice
    create_marker(context.storage, context.instant, path, names_slice=names_slice)
    file = context.storage.create_streaming(path)
    try:
        for log in logs:
            log.copy(file.write)
        size_bytes = close_file(file)
    finally:
        file.abort()
    stat = _total([log.stat for log in logs])
    return replace(
        stat,
        path=path,
        prev_commit=context.instant,
        log_version=number,
        log_files=(str(name),),
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
    )


def _total(stats: Sequence[WriteStat]) -> WriteStat:
    """Return the first write stat with the counts and column ranges of all."""
    ranges = [stat.column_ranges for stat in stats if stat.column_ranges is not None]
    return replace(
        stats[0],
        num_writes=sum(stat.num_writes for stat in stats),
        num_update_writes=sum(stat.num_update_writes for stat in stats),
        num_deletes=sum(stat.num_deletes for stat in stats),
        column_ranges=ColumnRanges.union(ranges) if ranges else None,
    )
