"""Which commits wrote a log file, by its blocks: in table version 6 its name does not tell."""

from __future__ import annotations

from table.log.log_block import BlockType
from table.log.log_reader import read_blocks
from table.storage.storage import ObjectInfo, Storage


def writers_in(storage: Storage, log: ObjectInfo) -> set[str]:
    """Instants of the blocks; those of rollbacks, too, and none of what is torn.

    Raises:
        NotFound: it is gone.
        CorruptData: it is no log file.
    """
    with storage.open(log.path) as file:
        blocks = read_blocks(file, log.size_bytes, log.path)
        return {block.instant_time for block in blocks if block.type is not BlockType.CORRUPT}
