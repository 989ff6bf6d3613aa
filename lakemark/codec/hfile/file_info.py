"""The file info block of an HFile: a map of names to values; both are bytes.

    4  "PBUF"
       length of a Protocol Buffers message (varint), then the message. Field 1 of the message is
       repeated: each value is an entry, which is a message of name (field 1) and value (field 2)

Apache Hudi stores the Avro schema of the values in this block. In base files it also stores the
smallest and the largest key. Source: ``HFileFileInfoBlock``, ``HFileInfo`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakemark.codec.hfile.block import HEADER_BYTES, Block
from lakemark.codec.hfile.protobuf import Message, bytes_field, delimited, single
from lakemark.errors import Unsupported

SCHEMA = b"schema"
BLOOM_FILTER_TYPE = b"bloomFilterTypeCode"
MIN_KEY, MAX_KEY = b"minRecordKey", b"maxRecordKey"
LAST_KEY, CREATED_MS = b"hfile.LASTKEY", b"hfile.CREATE_TIME_TS"
MEAN_KEY_BYTES, MEAN_VALUE_BYTES = b"hfile.AVG_KEY_LEN", b"hfile.AVG_VALUE_LEN"
VERSION, MAX_MVCC = b"KEY_VALUE_VERSION", b"MAX_MEMSTORE_TS_KEY"
VERSION_WITH_MVCC = 1

_MAGIC = b"PBUF"
_ENTRY, _NAME, _VALUE = 1, 1, 2
_ORDER = (
    SCHEMA,
    BLOOM_FILTER_TYPE,
    LAST_KEY,
    MEAN_VALUE_BYTES,
    MIN_KEY,
    MEAN_KEY_BYTES,
    MAX_KEY,
    VERSION,
    MAX_MVCC,
    CREATED_MS,
)


def encode_file_info(info: Mapping[bytes, bytes]) -> bytes:
    """Return the content of the block, with the entries in Apache Hudi's order.

    That order is the iteration order of the Java map in which Hudi's writer collects the entries.
    """
    standard = [name for name in _ORDER if name in info]
    entries = (
        bytes_field(_NAME, name) + bytes_field(_VALUE, info[name])
        for name in (*standard, *sorted(info.keys() - set(standard)))
    )
    return _MAGIC + delimited(b"".join(bytes_field(_ENTRY, entry) for entry in entries))


def parse_file_info(block: Block) -> Mapping[bytes, bytes]:
    """Return the entries by name.

    Raises:
        CorruptData: the content of the block is not a file info.
        Unsupported: the file stores versions of its values (MVCC), which Hudi never writes.
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
    if int.from_bytes(info.get(VERSION, b"")) == VERSION_WITH_MVCC and any(info.get(MAX_MVCC, b"")):
        message = f"{path} stores versions of its values (MVCC), which Hudi never writes"
        raise Unsupported(message)
