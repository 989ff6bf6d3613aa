"""What an HFile says about itself: entries of bytes by name.

    4  "PBUF"
       length, then a message that repeats field 1, a message of 1: name and 2: value

Apache keeps the Avro schema of the values there, and in base files the smallest and the largest
key. Source: ``HFileFileInfoBlock``, ``HFileInfo`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from table.codec.hfile.block import HEADER_BYTES, Block
from table.codec.hfile.protobuf import Message, single
from table.errors import Unsupported

SCHEMA = b"schema"

_MAGIC = b"PBUF"
_ENTRY, _NAME, _VALUE = 1, 1, 2
_VERSION, _VERSION_WITH_MVCC = b"KEY_VALUE_VERSION", 1
_MAX_MVCC = b"MAX_MEMSTORE_TS_KEY"


def parse_file_info(block: Block) -> Mapping[bytes, bytes]:
    """The entries by name.

    Raises:
        CorruptData: the block holds something else.
        Unsupported: values with versions, which Hudi never writes.
    """
    if not block.content.startswith(_MAGIC):
        raise block.corrupt(expected=f"file info after {_MAGIC!r}", actual=repr(block.content[:4]))
    offset = block.offset + HEADER_BYTES
    message = Message(block.content, len(_MAGIC), block.path, offset)
    info: dict[bytes, bytes] = {}
    for entry in message.byte_strings(_ENTRY):
        pair = single(entry, block.path, offset)
        names, values = pair.byte_strings(_NAME), pair.byte_strings(_VALUE)
        if not names or not values:
            raise block.corrupt(
                expected="a name and a value in each entry", actual=repr(entry[:40])
            )
        info[names[-1]] = values[-1]
    _check_without_versions(info, block.path)
    return info


def _check_without_versions(info: Mapping[bytes, bytes], path: str) -> None:
    if int.from_bytes(info.get(_VERSION, b"")) == _VERSION_WITH_MVCC and any(
        info.get(_MAX_MVCC, b"")
    ):
        message = f"{path} keeps versions of its values (MVCC), which Hudi never writes"
        raise Unsupported(message)
