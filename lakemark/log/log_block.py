"""One block of a log file, as bytes and as a value.

Layout, all numbers big-endian (``HoodieLogFormatWriter`` of Apache Hudi 1.2.0)::

    6  magic "#HUDI#"
    8  block length: bytes from the next field through the trailing length
    4  format version, always 1
    4  block type, the ordinal of BlockType
    4  header count, then for each entry: 4 key ordinal, 4 length, UTF-8 value
    8  content length
    n  content
    4  footer count, always 0
    8  total length: everything before this field, magic and block length included

The length is written twice, so ``total length - 6 == block length`` tells a whole block from a
torn one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from lakemark.errors import CorruptData
from lakemark.log.file_range import FileRange
from lakemark.storage.storage import StreamingFile

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1
#: The command (``HeaderKey.COMMAND_BLOCK_TYPE``) that takes the blocks of an instant back.
ROLLBACK_COMMAND = "0"


class BlockType(IntEnum):
    """Kind of a block; the value is the ordinal on disk."""

    COMMAND = 0
    DELETE = 1
    #: Never written: what a reader makes of bytes that are no whole block.
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


#: Those that hold rows, or keys of deleted ones.
CHANGING = (
    BlockType.DELETE,
    BlockType.AVRO_DATA,
    BlockType.HFILE_DATA,
    BlockType.PARQUET_DATA,
)


class HeaderKey(IntEnum):
    """Key of a header entry; the value is the ordinal on disk, entries come in any order."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


Header = Mapping[HeaderKey, str]


@dataclass(frozen=True, slots=True)
class LogBlock:
    """A block as it lies in a file; its content stays there until it is asked for.

    Attributes:
        type: what the content is.
        header: entries in the order in which they are stored; empty for a corrupt block.
        content: the content's place in the file, which must still be open when it is read.
        offset: where the block's magic stands in the file, in bytes.
    """

    type: BlockType
    header: Header
    content: FileRange
    offset: int

    @property
    def path(self) -> str:
        """The log file."""
        return self.content.path

    @property
    def instant_time(self) -> str:
        """Instant of the commit (or rollback) that wrote the block.

        Raises:
            CorruptData: the header does not say.
        """
        return self._required(HeaderKey.INSTANT_TIME)

    @property
    def avro_schema(self) -> dict[str, Any]:
        """Schema of a data block's rows, meta columns included.

        Raises:
            CorruptData: the header has none, or none that is a JSON object.
        """
        text = self._required(HeaderKey.SCHEMA)
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.corrupt(
                expected="an Avro schema in the header", actual=str(error)
            ) from error
        if not isinstance(schema, dict):
            raise self.corrupt(expected="an Avro record schema in the header", actual=text[:80])
        return schema

    @property
    def is_partial(self) -> bool:
        """Whether the rows carry some of the table's columns only (a partial update)."""
        return self.header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"

    def corrupt(self, *, expected: str, actual: str) -> CorruptData:
        """The error for content of this block that disagrees with the format."""
        return CorruptData(self.path, self.offset, expected, actual)

    def relocated(self, error: CorruptData, start: int = 0) -> CorruptData:
        """A codec's error, whose offset counts from byte ``start`` of the content."""
        offset = self.content.offset + start + (error.offset or 0)
        return CorruptData(self.path, offset, error.expected, error.actual)

    def _required(self, key: HeaderKey) -> str:
        if key not in self.header:
            raise self.corrupt(expected=f"header entry {key.name}", actual="none")
        return self.header[key]


def write_block(
    file: StreamingFile, block_type: BlockType, header: Header, content: bytes | memoryview
) -> int:
    """Append a block to a file; the content is handed on, not copied.

    Returns:
        The size of the whole block in bytes.
    """
    before, after = _frame(block_type, header, len(content))
    for part in (before, content, after):
        file.write(part)
    return len(before) + len(content) + len(after)


def encode(block_type: BlockType, header: Header, content: bytes | memoryview) -> bytes:
    """The bytes of a whole block."""
    before, after = _frame(block_type, header, len(content))
    return b"".join((before, content, after))


def rollback_block(rollback: str, target: str) -> bytes:
    """The bytes of a block by which a rollback takes the target's blocks out of a slice."""
    header = {
        HeaderKey.INSTANT_TIME: rollback,
        HeaderKey.TARGET_INSTANT_TIME: target,
        HeaderKey.COMMAND_BLOCK_TYPE: ROLLBACK_COMMAND,
    }
    return encode(BlockType.COMMAND, header, b"")


def _frame(block_type: BlockType, header: Header, content_bytes: int) -> tuple[bytes, bytes]:
    """What stands before the content, and what after it."""
    fields = b"".join(
        (
            struct.pack(">ii", FORMAT_VERSION, block_type),
            _encode_header(header),
            struct.pack(">q", content_bytes),
        )
    )
    block_length = len(fields) + content_bytes + 4 + 8
    before = MAGIC + struct.pack(">q", block_length) + fields
    return before, struct.pack(">iq", 0, len(MAGIC) + block_length)


def _encode_header(header: Header) -> bytes:
    parts = [struct.pack(">i", len(header))]
    for key, text in header.items():
        value = text.encode()
        parts += struct.pack(">ii", key, len(value)), value
    return b"".join(parts)
