"""One block of a log file.

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

The length is written twice. A block is whole if ``total length - 6 == block length``, else torn.
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
#: The command (``HeaderKey.COMMAND_BLOCK_TYPE``) that undoes the blocks of an instant.
ROLLBACK_COMMAND = "0"


class BlockType(IntEnum):
    """Kind of a block; the value is the ordinal on disk."""

    COMMAND = 0
    DELETE = 1
    #: Never written; a reader returns it for bytes that are not a whole block.
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


#: The types of blocks with rows, or with keys of deleted rows.
CHANGING = (
    BlockType.DELETE,
    BlockType.AVRO_DATA,
    BlockType.HFILE_DATA,
    BlockType.PARQUET_DATA,
)


class HeaderKey(IntEnum):
    """Key of a header entry; the value is the ordinal on disk. Entries may have any order."""

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
    """A block of a file; its content is read on demand.

    Attributes:
        type: of the content.
        header: entries in stored order; empty for a corrupt block.
        content: range of the content in the file, which must still be open when it is read.
        offset: position of the block's magic in the file, in bytes.
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
            CorruptData: the header lacks it.
        """
        return self._required(HeaderKey.INSTANT_TIME)

    @property
    def avro_schema(self) -> dict[str, Any]:
        """Schema of a data block's rows, meta columns included.

        Raises:
            CorruptData: the header lacks it, or it is not a JSON object.
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
        """Whether the rows have only some of the table's columns (a partial update)."""
        return self.header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"

    def corrupt(self, *, expected: str, actual: str) -> CorruptData:
        """Return the error for content of this block that does not match the format."""
        return CorruptData(self.path, self.offset, expected, actual)

    def relocated(self, error: CorruptData, start: int = 0) -> CorruptData:
        """Return the error of a codec whose offset is relative to byte ``start`` of the content."""
        offset = self.content.offset + start + (error.offset or 0)
        return CorruptData(self.path, offset, error.expected, error.actual)

    def _required(self, key: HeaderKey) -> str:
        if key not in self.header:
            raise self.corrupt(expected=f"header entry {key.name}", actual="no such entry")
        return self.header[key]


def write_block(
    file: StreamingFile, block_type: BlockType, header: Header, content: bytes | memoryview
) -> int:
    """Append a block to a file; the content is not copied.

    Returns:
        The size of the whole block in bytes.
    """
    before, after = _frame(block_type, header, len(content))
    for part in (before, content, after):
        file.write(part)
    return len(before) + len(content) + len(after)


def encode(block_type: BlockType, header: Header, content: bytes | memoryview) -> bytes:
    """Encode a whole block."""
    before, after = _frame(block_type, header, len(content))
    return b"".join((before, content, after))


def rollback_block(rollback: str, target: str) -> bytes:
    """Encode the block by which a rollback undoes the target's blocks in a slice."""
    header = {
        HeaderKey.INSTANT_TIME: rollback,
        HeaderKey.TARGET_INSTANT_TIME: target,
        HeaderKey.COMMAND_BLOCK_TYPE: ROLLBACK_COMMAND,
    }
    return encode(BlockType.COMMAND, header, b"")


def _frame(block_type: BlockType, header: Header, content_bytes: int) -> tuple[bytes, bytes]:
    """Return the bytes before the content, and after it."""
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
