"""One block of a log file.

The fields of a block, with their sizes in bytes. All numbers are big-endian::

    6  magic "#HUDI#"
    8  block length: number of bytes from the next field to the end of the block
    4  format version, always 1
    4  block type, the ordinal of BlockType
    4  number of header entries, then for each entry: 4 key ordinal, 4 length, UTF-8 value
    8  content length
    n  content
    4  number of footer entries, always 0
    8  total length: number of bytes before this field, magic and block length included

The length is written twice, so that a torn (incompletely written) block can be detected. In a whole
block, ``total length - 6 == block length``.
Source: ``HoodieLogFormatWriter`` of Apache Hudi 1.2.0.
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
    """Type of a block. The values are the ordinals in log files."""

    COMMAND = 0
    DELETE = 1
    #: This type is never written. Readers return it for bytes that are not a whole block.
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
    """Key of a header entry. The values are the ordinals in log files.

    The entries of a header may be in any order.
    """

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
    """A block of a log file, whose content is read on demand.

    Attributes:
        type: type of the block.
        header: header entries in stored order; empty for a corrupt block.
        content: range of the content in the file. The file must still be open when the content is
            read.
        offset: position of the block's magic in the file, in bytes.
    """

    type: BlockType
    header: Header
    content: FileRange
    offset: int

    @property
    def path(self) -> str:
        """Path of the log file."""
        return self.content.path

    @property
    def instant_time(self) -> str:
        """Instant of the commit (or rollback) that wrote the block.

        Raises:
            CorruptData: the header has no instant.
        """
        return self._required(HeaderKey.INSTANT_TIME)

    @property
    def avro_schema(self) -> dict[str, Any]:
        """Schema of a data block's rows, meta columns included.

        Raises:
            CorruptData: the header has no schema, or the schema is not a JSON object.
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
        """Return the error to raise if the content of this block violates the format."""
        return CorruptData(self.path, self.offset, expected, actual)

    def relocated(self, error: CorruptData, start: int = 0) -> CorruptData:
        """Return the error of a codec with its offset converted to an offset in the log file.

        Args:
            error: the error; its offset is relative to the bytes that the codec received.
            start: position of these bytes in the content.
        """
        offset = self.content.offset + start + (error.offset or 0)
        return CorruptData(self.path, offset, error.expected, error.actual)

    def _required(self, key: HeaderKey) -> str:
        if key not in self.header:
            raise self.corrupt(expected=f"header entry {key.name}", actual="no such entry")
        return self.header[key]


def write_block(
    file: StreamingFile, block_type: BlockType, header: Header, content: bytes | memoryview
) -> int:
    """Append a block to a file without copying the content.

    Returns:
        The size of the whole block in bytes.
    """
    before, after = _frame(block_type, header, len(content))
    for part in (before, content, after):
        file.write(part)
    return len(before) + len(content) + len(after)


def encode(block_type: BlockType, header: Header, content: bytes | memoryview) -> bytes:
    """Return the bytes of a block."""
    before, after = _frame(block_type, header, len(content))
    return b"".join((before, content, after))


def rollback_block(rollback: str, target: str) -> bytes:
    """Return the bytes of a block with which a rollback undoes the blocks of another instant.

    Args:
        rollback: instant of the rollback.
        target: instant whose blocks in the same slice are undone.
    """
    header = {
        HeaderKey.INSTANT_TIME: rollback,
        HeaderKey.TARGET_INSTANT_TIME: target,
        HeaderKey.COMMAND_BLOCK_TYPE: ROLLBACK_COMMAND,
    }
    return encode(BlockType.COMMAND, header, b"")


def _frame(block_type: BlockType, header: Header, content_bytes: int) -> tuple[bytes, bytes]:
    """Return the bytes of a block before the content, and those after the content."""
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
