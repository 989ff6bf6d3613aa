"""Finds the commits that wrote the blocks of a log file, and those that its blocks undo.

In table version 6 the name of a log does not contain them.
"""

from __future__ import annotations

from collections.abc import Container

from lakemark.log.log_block import BlockType, HeaderKey
from lakemark.log.log_reader import read_blocks
from lakemark.model.file_slice import LogFile
from lakemark.storage.storage import ObjectInfo, Storage

_WRITTEN = frozenset(BlockType) - {BlockType.CORRUPT}


def writers_in(
    storage: Storage, log: ObjectInfo | LogFile, kinds: Container[BlockType] = _WRITTEN
) -> set[str]:
    """Return the instants of the blocks of these kinds; by default of all except torn ones.

    Raises:
        NotFound: the file was deleted.
        CorruptData: it is not a log file.
    """
    with storage.open(log.path) as file:
        blocks = read_blocks(file, log.size_bytes, log.path)
        return {block.instant_time for block in blocks if block.type in kinds}


def targets_in(storage: Storage, log: ObjectInfo) -> set[str]:
    """Return the instants that blocks of a log undo; errors as for ``writers_in``."""
    with storage.open(log.path) as file:
        blocks = read_blocks(file, log.size_bytes, log.path)
        commands = [block for block in blocks if block.type is BlockType.COMMAND]
    return {block.header.get(HeaderKey.TARGET_INSTANT_TIME, "") for block in commands}
