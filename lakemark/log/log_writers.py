"""Finds the commits that wrote the blocks of a log file, and the commits that its blocks undo.

In table version 6 the blocks must be read, because the name of a log file does not contain the
instants of these commits.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from lakemark.log.log_block import BlockType, HeaderKey, LogBlock
from lakemark.log.log_reader import read_blocks
from lakemark.model.file_slice import LogFile
from lakemark.storage.storage import ObjectInfo, Storage

_WRITTEN = frozenset(BlockType) - {BlockType.CORRUPT}


def writers_in(
    storage: Storage, log: ObjectInfo | LogFile, kinds: Container[BlockType] = _WRITTEN
) -> set[str]:
    """Return the instants that wrote blocks of the given types; torn blocks have no instant.

    Raises:
        NotFound: the file was deleted.
        CorruptData: the file is not a log file.
    """
    with storage.open(log.path) as file:
        blocks = read_blocks(file, log.size_bytes, log.path)
        return {block.instant_time for block in blocks if block.type in kinds}


class LogInstants(NamedTuple):
    """The instants that wrote a log file, and those that its rollback commands undo."""

    writers: frozenset[str]
    targets: frozenset[str]


def read_instants(storage: Storage, log: ObjectInfo | LogFile) -> LogInstants:
    """Read both kinds of instants at once; see ``writers_in`` and ``targets_in``."""
    with storage.open(log.path) as file:
        blocks = [
            block for block in read_blocks(file, log.size_bytes, log.path) if block.type in _WRITTEN
        ]
        return LogInstants(
            frozenset(block.instant_time for block in blocks),
            frozenset(_target_of(block) for block in blocks if block.type is BlockType.COMMAND),
        )


def targets_in(storage: Storage, log: ObjectInfo) -> set[str]:
    """Return the instants whose blocks the rollback commands in a log file undo.

    Raises:
        NotFound: the file was deleted.
        CorruptData: the file is not a log file.
    """
    return set(read_instants(storage, log).targets)


def _target_of(command: LogBlock) -> str:
    return command.header.get(HeaderKey.TARGET_INSTANT_TIME, "")
