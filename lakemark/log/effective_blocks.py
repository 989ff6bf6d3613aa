"""Which blocks of a slice's logs count, and in which order they are read.

Blocks are taken instant by instant, in the order in which instants first appear. Left out are

- blocks of instants that the caller does not see (table version 6 keeps blocks of several commits,
  and of failed ones, in one file);
- blocks that a rollback command took back: those of its target that stand before it;
- blocks that a log compaction wrote again. Its own block stands where the last of them stood, or
  nowhere when none of them is left.

Corrupt blocks and CDC blocks hold no changes. Source: ``BaseHoodieLogRecordReader`` of Apache Hudi
1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from lakemark.errors import Unsupported
from lakemark.log.log_block import CHANGING, ROLLBACK_COMMAND, BlockType, HeaderKey, LogBlock

#: Whether a commit of that instant is part of the snapshot being read.
IsVisible: TypeAlias = Callable[[str], bool]


def effective_blocks(blocks: Iterable[LogBlock], is_visible: IsVisible) -> list[LogBlock]:
    """The data and delete blocks that count, oldest first.

    Args:
        blocks: of all logs of a slice, in scan order.
        is_visible: whether blocks of an instant count.

    Raises:
        CorruptData: a block's header lacks its instant.
        Unsupported: a command that is not known.
    """
    by_instant = _by_instant(blocks, is_visible)
    rewritten_by: dict[str, str] = {}
    taken: list[str] = []
    for instant in reversed(by_instant):
        rewritten = by_instant[instant][0].header.get(HeaderKey.COMPACTED_BLOCK_TIMES)
        final = rewritten_by.get(instant, instant)
        if rewritten is not None:
            rewritten_by.update(dict.fromkeys(rewritten.split(","), final))
        elif final not in taken:
            taken.append(final)
    return [block for instant in reversed(taken) for block in by_instant[instant]]


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
            f"{command.path} holds the command {kind}; known is {ROLLBACK_COMMAND}, a rollback"
        )
        raise Unsupported(message)
    return command.header.get(HeaderKey.TARGET_INSTANT_TIME, "")
