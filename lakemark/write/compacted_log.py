"""Writes the log of a log compaction: one change for each key of other logs of a file slice.

The header of each block lists the instants of the blocks that it replaces. Readers skip these
blocks, and read the new ones in the place of the last of them (``effective_blocks``). The other
logs stay in the slice, for queries of the past, until a compaction and a clean. Source:
``FileGroupReaderBasedAppendHandle`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import chain

from lakemark.merge.merge_stream import fold_changes
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_names import LogFileName, write_token
from lakemark.model.file_slice import FileSlice
from lakemark.read.log_changes import read_block_instants
from lakemark.write.new_log_file import NewLogFiles
from lakemark.write.partitioner import task_number
from lakemark.write.write_context import WriteContext


def write_compacted_log(context: WriteContext, file_slice: FileSlice) -> list[WriteStat]:
    """Write a log that replaces the logs of a slice; nothing if they contain no changes.

    Very many changes become several logs, each with a write stat. In table version 6 they become
    one log, because the second would be read after that of a commit made meanwhile (``_name``).

    Args:
        context: the write context of the log compaction.
        file_slice: the slice with only the logs of the plan. Its base file is not read.

    Raises:
        CorruptData: a log is damaged.
    """
    reader, group = context.reader, file_slice.group
    folded = fold_changes(
        reader.read_changes(file_slice), context.merger, reader.memory_budget_bytes
    )
    first = next(folded, None)
    if first is None:
        return []
    name = _name(context, file_slice)
    replaced = read_block_instants(context.storage, file_slice.logs, context.is_visible)
    if context.version.logs_name_their_slice:
        context = replace(context, max_log_bytes=sys.maxsize).use_storage(context.storage)
    with NewLogFiles(context, group, name, replaced) as files:
        for part in chain([first], folded):
            # Rows keep the times of their commits, so that incremental queries skip them.
            files.write(part)
        stats = files.close()
    base_file = file_slice.base_name or ""
    listed = [
        replace(stat, prev_commit=file_slice.base_instant, base_file=base_file) for stat in stats
    ]
    listed[0] = replace(
        listed[0],
        total_log_files_compacted=len(file_slice.logs),
        total_log_size_compacted=file_slice.log_bytes,
    )
    return listed


def _name(context: WriteContext, file_slice: FileSlice) -> LogFileName:
    """Return the name of the log, which is different for each attempt.

    In table version 6, a commit may write a log of the same version meanwhile. Readers that do not
    skip the replaced blocks must read the log of the commit last. So the write token sorts before
    that of any commit.
    """
    file_id = file_slice.group.file_id
    if not context.version.logs_name_their_slice:
        token = write_token(task_number(file_slice.group), context.attempt)
        return LogFileName(file_id, context.instant, 1, token)
    version = max(log.name.version for log in file_slice.logs) + 1
    return LogFileName(file_id, file_slice.base_instant, version, write_token(0, context.attempt))
