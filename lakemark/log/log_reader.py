"""Reads the blocks of a log file from front to back, and reports torn blocks as corrupt ones.

A block is torn (incompletely written) if it is longer than the rest of the file, or if its two
lengths do not match. It is also torn if neither a block nor the end of the file follows it. Reading
then resumes at the next magic, as ``HoodieLogFileReader`` of Apache Hudi 1.2.0 does. Apache Hudi
omits this check on object stores, where files appear only when they are complete. Lakemark always
runs the check, because it needs no extra read.

If the lengths of a block match but its other fields are invalid, the block is not torn, and
``CorruptData`` is raised.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import BinaryIO

from lakemark.errors import CorruptData, Unsupported
from lakemark.log.file_range import FileRange
from lakemark.log.log_block import FORMAT_VERSION, MAGIC, BlockType, Header, HeaderKey, LogBlock

#: A file of up to this size is read in one request. A larger file is read block by block, and the
#: contents of its blocks on demand.
READ_AT_ONCE_BYTES = 1 << 20
#: Number of bytes that are read at the beginning of a block. They include all fields before the
#: content of nearly every block. The schema is the largest of these fields.
_READ_AHEAD_BYTES = 16 << 10
_SCAN_CHUNK_BYTES = 1 << 20
_LENGTH_BYTES = 8


def read_blocks(
    file: BinaryIO, size_bytes: int, path: str, at_once_bytes: int = READ_AT_ONCE_BYTES
) -> Iterator[LogBlock]:
    """Read the blocks of a log file, in stored order.

    Args:
        file: the open log file; it must stay open until the last content has been read.
        size_bytes: size of the log file; bytes of ``file`` after it are ignored.
        path: path of the file, for errors.
        at_once_bytes: largest size of a file that is read whole. Its bytes stay in memory as long
            as one of its blocks does.

    Yields:
        Every whole block, and a block of type CORRUPT for every torn block. The content of a
        CORRUPT block is the bytes between its magic and the next magic.

    Raises:
        CorruptData: the file does not begin with a block, or a whole block is invalid.
        Unsupported: a block has another format version, or an unknown type.
    """
    log = FileRange(file, path, 0, size_bytes)
    if size_bytes <= at_once_bytes:
        log = FileRange(io.BytesIO(log.read()), path, 0, size_bytes)
    offset = 0
    # Like Apache Hudi, treat a rest that is shorter than a magic as the end of the file.
    while size_bytes - offset >= len(MAGIC):
        _check_magic(log, offset)
        block_end = _find_block_end(log, offset)
        if block_end is None:
            block_end = _find_next_magic(log, offset + len(MAGIC))
            yield _corrupt_block(log, offset, block_end)
        else:
            yield _read_block(log, offset, block_end)
        offset = block_end


def _check_magic(log: FileRange, offset: int) -> None:
    found = log.read_at(offset, len(MAGIC))
    if found != MAGIC:
        raise CorruptData(log.path, offset, f"a log block's magic {MAGIC!r}", repr(found))


def _find_block_end(log: FileRange, offset: int) -> int | None:
    """Return the end of the block that begins at ``offset``; None if it is torn."""
    fields_start = offset + len(MAGIC) + _LENGTH_BYTES
    if fields_start > log.size_bytes:
        return None
    block_length = _read_block_length(log, offset)
    block_end = fields_start + block_length
    if block_length < _LENGTH_BYTES or block_end > log.size_bytes:
        return None
    tail = _read_tail(log, block_end)
    total_length = int.from_bytes(tail[:_LENGTH_BYTES], signed=True)
    following = tail[_LENGTH_BYTES:]
    is_whole = total_length - len(MAGIC) == block_length
    return block_end if is_whole and (len(following) < len(MAGIC) or following == MAGIC) else None


def _read_block_length(log: FileRange, offset: int) -> int:
    """Read the block length, which follows the magic and counts the bytes after itself."""
    data = log.read_at(offset + len(MAGIC), _LENGTH_BYTES)
    return int.from_bytes(data, signed=True)


def _read_tail(log: FileRange, block_end: int) -> bytes:
    """Read the total length (the last 8 bytes) of a block, and the next magic if there is one."""
    following_bytes = min(len(MAGIC), log.size_bytes - block_end)
    return log.read_at(block_end - _LENGTH_BYTES, _LENGTH_BYTES + following_bytes)


def _find_next_magic(log: FileRange, offset: int) -> int:
    """Return the position of the next magic at or after ``offset``, or the end of the file."""
    while offset < log.size_bytes:
        chunk = log.read_at(offset, min(_SCAN_CHUNK_BYTES, log.size_bytes - offset))
        found = chunk.find(MAGIC)
        if found >= 0:
            return offset + found
        if offset + len(chunk) == log.size_bytes:
            break
        # A magic may span the end of the chunk.
        offset += len(chunk) - len(MAGIC) + 1
    return log.size_bytes


def _corrupt_block(log: FileRange, offset: int, resume_at: int) -> LogBlock:
    content_start = offset + len(MAGIC)
    content = log.part(content_start, resume_at - content_start)
    return LogBlock(BlockType.CORRUPT, {}, content, offset)


def _read_block(log: FileRange, offset: int, block_end: int) -> LogBlock:
    fields = _Fields(log, offset + len(MAGIC) + _LENGTH_BYTES, block_end - _LENGTH_BYTES)
    _read_format_version(fields)
    block_type = _read_block_type(fields)
    header = _read_header(fields, "header")
    content = _read_content_range(fields)
    _read_header(fields, "footer")
    if fields.remaining_bytes:
        raise fields.corrupt(expected="the block's end", actual=f"{fields.remaining_bytes} bytes")
    return LogBlock(block_type, header, content, offset)


def _read_format_version(fields: _Fields) -> None:
    """Read the format version, 4 bytes, and check that it is 1.

    Blocks of version 0 (before Hudi 0.4) have neither type nor header.
    """
    version = fields.int32("a format version")
    if version != FORMAT_VERSION:
        message = (
            f"{fields.path} has a log block of format version {version}, but only version "
            f"{FORMAT_VERSION} can be read; compact the table with the Hudi that wrote it"
        )
        raise Unsupported(message)


def _read_block_type(fields: _Fields) -> BlockType:
    """Read the block type, 4 bytes: the ordinal of a ``BlockType`` other than ``CORRUPT``."""
    ordinal = fields.int32("a block type")
    if ordinal not in BlockType.__members__.values() or ordinal == BlockType.CORRUPT:
        known = ", ".join(f"{t.value} {t.name}" for t in BlockType if t is not BlockType.CORRUPT)
        message = f"{fields.path} has a log block of type {ordinal}; supported types: {known}"
        raise Unsupported(message)
    return BlockType(ordinal)


def _read_header(fields: _Fields, what: str) -> Header:
    """Read a header or footer: 4 bytes count, then the entries.

    An entry is 4 bytes key ordinal, 4 bytes length, and the value in UTF-8.
    """
    count = fields.int32(f"the number of {what} entries")
    if not 0 <= count <= fields.remaining_bytes // 8:
        raise fields.corrupt(expected=f"a number of {what} entries that fit", actual=str(count))
    return dict(_read_header_entry(fields) for _ in range(count))


def _read_header_entry(fields: _Fields) -> tuple[HeaderKey, str]:
    ordinal = fields.int32("a header key")
    if ordinal not in HeaderKey.__members__.values():
        message = f"{fields.path} has a log block with the unknown header key {ordinal}"
        raise Unsupported(message)
    value = fields.take(fields.int32("a header value's length"), "a header value")
    try:
        return HeaderKey(ordinal), value.decode()
    except UnicodeDecodeError as error:
        raise fields.corrupt(expected="a header value in UTF-8", actual=repr(value[:40])) from error


def _read_content_range(fields: _Fields) -> FileRange:
    """Read the content length, 8 bytes; return the range of the content, which is not read."""
    content_length = fields.int64("a content length")
    return fields.skip(content_length, "the content")


class _Fields:
    """Reads the fields of one block, from front to back.

    Bytes are read ahead, so that a block needs one read for the fields before its content, and one
    for its footer.
    """

    def __init__(self, log: FileRange, offset: int, end: int) -> None:
        self.path = log.path
        self._log, self._offset, self._end = log, offset, end
        self._ahead, self._ahead_offset = b"", offset

    @property
    def remaining_bytes(self) -> int:
        return self._end - self._offset

    def int32(self, what: str) -> int:
        value: int = struct.unpack(">i", self.take(4, what))[0]
        return value

    def int64(self, what: str) -> int:
        value: int = struct.unpack(">q", self.take(8, what))[0]
        return value

    def take(self, size_bytes: int, what: str) -> bytes:
        """Read the next ``size_bytes`` bytes; ``what`` names them in the error."""
        self._check_fits(size_bytes, what)
        start = self._offset - self._ahead_offset
        if start + size_bytes > len(self._ahead):
            read_bytes = min(max(size_bytes, _READ_AHEAD_BYTES), self.remaining_bytes)
            self._ahead = self._log.read_at(self._offset, read_bytes)
            self._ahead_offset, start = self._offset, 0
        self._offset += size_bytes
        return self._ahead[start : start + size_bytes]

    def skip(self, size_bytes: int, what: str) -> FileRange:
        """Skip the next ``size_bytes`` bytes, and return their range in the file."""
        self._check_fits(size_bytes, what)
        skipped = self._log.part(self._offset, size_bytes)
        self._offset += size_bytes
        return skipped

    def corrupt(self, *, expected: str, actual: str) -> CorruptData:
        return CorruptData(self.path, self._offset, expected, actual)

    def _check_fits(self, size_bytes: int, what: str) -> None:
        if not 0 <= size_bytes <= self.remaining_bytes:
            raise self.corrupt(
                expected=f"{what} of {size_bytes} bytes",
                actual=f"{self.remaining_bytes} bytes left in the block",
            )
