"""Selects the effective blocks of a slice's logs, in the order in which they are read.

Blocks of one instant are read together, and instants are read in the order in which they first
appear. These blocks are omitted:

- Blocks of instants that are not visible to the caller. In table version 6, one file may have
  blocks of several commits, some of which may have failed.
- Blocks that a rollback command has undone. These are the blocks of its target instant that precede
  the command.
- Blocks that a log compaction has rewritten. The block of the log compaction takes the position of
  the last block that it has rewritten. If no rewritten block is visible, the block of the log
  compaction is omitted, too.
- Corrupt blocks and CDC blocks, which contain no changes.

Source: ``BaseHoodieLogRecordReader`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from lakemark.errors import Unsupported
from lakemark.log.log_block import CHANGING, ROLLBACK_COMMAND, BlockType, HeaderKey, LogBlock

#: A function that returns whether the commit of an instant is part of the snapshot being read.
IsVisible: TypeAlias = Callable[[str], bool]


def effective_blocks(blocks: Iterable[LogBlock], is_visible: IsVisible) -> list[LogBlock]:
    """Select the data and delete blocks to read, oldest first.

    Args:
        blocks: blocks of all logs of a slice, in the order of the logs.
        is_visible: whether blocks of an instant are visible.

    Raises:
        CorruptData: the header of a block has no instant.
        Unsupported: a block has an unknown command.
    """
    by_instant = _by_instant(blocks, is_visible)
    rewritten_by: dict[str, str] = {}
    chosen: list[str] = []
    for instant in reversed(by_instant):
        rewritten = by_instant[instant][0].header.get(HeaderKey.COMPACTED_BLOCK_TIMES)
        final = rewritten_by.get(instant, instant)
        if rewritten is not None:
            rewritten_by.update(dict.fromkeys(rewritten.split(","), final))
        elif final not in chosen:
            chosen.append(final)
    return [block for instant in reversed(chosen) for block in by_instant[instant]]


def _by_instant(blocks: Iterable[LogBlock], is_visible: IsVisible) -> dict[str, list[LogBlock]]:
    found: dict[str, list[LogBlock]] = {}
    for block in blocks:
        if block.type is BlockType.COMMAND:
            found.pop(_target_of(block), None)
        elif block.type in CHANGING and is_visible(block.instant_time):
            found.setdefault(block.instant_time, []).append(block)
    return found


def _target_of(command: LogBlock) -> str:
    kind = command.header.get(HeaderKey.COMMAND_BLOCK_TYPE)
    if kind != ROLLBACK_COMMAND:
        message = (
            f"{command.path} has a block with command {kind}, but only {ROLLBACK_COMMAND}, a "
            "rollback, is supported"
        )
        raise Unsupported(message)
    return command.header.get(HeaderKey.TARGET_INSTANT_TIME, "")
