"""Reads and encodes the records of a delete block.

The content of the block, with the size of each field in bytes::

    4  block version, 3
    4  length of the list
    n  HoodieDeleteRecordList in Avro binary

Versions 1 and 2 contain Java objects that Kryo has serialized.
Source: ``HoodieDeleteBlock`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec import delete_records
from lakemark.codec.delete_records import DeleteRecords
from lakemark.errors import CorruptData, Unsupported
from lakemark.log.log_block import BlockType, LogBlock

DELETE_BLOCK_VERSION = 3

_PREFIX = struct.Struct(">ii")
_KRYO_VERSIONS = (1, 2)


def encode_deletes(
    record_keys: pa.Array,
    partition_paths: pa.Array,
    ordering: Sequence[pa.Array] | None = None,
    commit_time: npt.NDArray[np.bool_] | None = None,
) -> bytes:
    """Encode the content of a DELETE block.

    For the arguments and the exceptions see ``delete_records.encode``.
    """
    records = delete_records.encode(record_keys, partition_paths, ordering, commit_time)
    return _PREFIX.pack(DELETE_BLOCK_VERSION, len(records)) + records


def read_deletes(block: LogBlock) -> DeleteRecords:
    """Read the records of a DELETE block, in stored order.

    Raises:
        CorruptData: the content does not match the format.
        Unsupported: the block has version 1 or 2, which contain Java objects.
    """
    assert block.type is BlockType.DELETE, block
    content = block.content.read()
    if len(content) < _PREFIX.size:
        raise block.corrupt(expected="8 bytes or more in a delete block", actual=str(len(content)))
    version, length = _PREFIX.unpack_from(content)
    _check_version(block, version)
    if length != len(content) - _PREFIX.size:
        raise block.corrupt(
            expected=f"{len(content) - _PREFIX.size} bytes of delete records", actual=str(length)
        )
    try:
        return delete_records.decode(content[_PREFIX.size :], block.path)
    except CorruptData as error:
        raise block.relocated(error, start=_PREFIX.size) from error


def _check_version(block: LogBlock, version: int) -> None:
    if version in _KRYO_VERSIONS:
        message = (
            f"{block.path} has a delete block of version {version}, which contains Java objects in "
            "Kryo; compact the table with the Hudi that wrote it"
        )
        raise Unsupported(message)
    if version != DELETE_BLOCK_VERSION:
        raise block.corrupt(
            expected=f"delete block version {DELETE_BLOCK_VERSION}", actual=str(version)
        )
