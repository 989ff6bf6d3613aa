"""Reads and encodes the records of a delete block.

The content of the block, with the size of each field in bytes::

    4  block version, 3
    4  length of the list
    n  HoodieDeleteRecordList in Avro binary

In versions 1 and 2, which Hudi wrote before 0.14, the list consists of Java objects that Kryo has
serialized (``kryo_deletes``). Source: ``HoodieDeleteBlock`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec import delete_records, kryo_deletes
from lakemark.codec.delete_records import DeleteRecords
from lakemark.errors import CorruptData
from lakemark.log.log_block import BlockType, LogBlock

DELETE_BLOCK_VERSION = 3

_PREFIX = struct.Struct(">ii")

#: The function that decodes the list, by block version.
_DECODERS: Mapping[int, Callable[[bytes, str], DeleteRecords]] = {
    1: kryo_deletes.decode_keys,
    2: kryo_deletes.decode_records,
    DELETE_BLOCK_VERSION: delete_records.decode,
}


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
        Unsupported: the block has version 1 or 2, and a Java object of an unknown class.
    """
    assert block.type is BlockType.DELETE, block
    content = block.content.read()
    if len(content) < _PREFIX.size:
        raise block.corrupt(expected="8 bytes or more in a delete block", actual=str(len(content)))
    version, length = _PREFIX.unpack_from(content)
    if version not in _DECODERS:
        known = ", ".join(map(str, _DECODERS))
        raise block.corrupt(expected=f"delete block version {known}", actual=str(version))
    if length != len(content) - _PREFIX.size:
        raise block.corrupt(
            expected=f"{len(content) - _PREFIX.size} bytes of delete records", actual=str(length)
        )
    try:
        return _DECODERS[version](content[_PREFIX.size :], block.path)
    except CorruptData as error:
        raise block.relocated(error, start=_PREFIX.size) from error
