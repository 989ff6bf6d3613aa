"""The trailer: the last 4096 bytes of an HFile, which contain the positions of its other sections.

The fields, with their sizes in bytes::

    8  magic TRABLK"$
       length (varint), then the fields as a message of Protocol Buffers
       zeros
    1  minor version
    3  major version, 3

Source: ``HFileTrailer`` and ``HFile.proto`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from lakemark.codec.hfile.protobuf import Message, bytes_field, delimited, integer_field
from lakemark.errors import CorruptData, Unsupported

MAGIC = b'TRABLK"$'
TRAILER_BYTES = 4096
MAJOR_VERSION = 3

_FILE_INFO_OFFSET, _LOAD_ON_OPEN_OFFSET, _ENTRY_BYTES, _ROOT_ENTRIES, _META_ENTRIES = 1, 2, 3, 5, 6
_ENTRIES, _LEVELS, _FIRST_DATA_OFFSET, _LAST_DATA_OFFSET, _COMPARATOR = 7, 8, 9, 10, 11
_CODEC, _ENCRYPTION_KEY = 12, 13

_COMPARATOR_CLASS = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"

#: Trailers with more levels are rejected. Even with only two entries in each index block, 16 levels
#: refer to 65,536 data blocks, so no real file needs more.
_MAX_LEVELS = 16


class Compression(IntEnum):
    """Compression of blocks. The values are the ordinals that HBase stores in the trailer."""

    LZO = 0
    GZ = 1
    NONE = 2
    SNAPPY = 3
    LZ4 = 4
    BZIP2 = 5
    ZSTD = 6


_READABLE = (Compression.GZ, Compression.NONE)


@dataclass(frozen=True, slots=True)
class Trailer:
    """The fields of the trailer that a reader needs.

    Attributes:
        load_on_open_offset: position of the root index; the index of meta blocks and the file info
            follow it.
        root_entry_count: number of entries in the root index.
        meta_entry_count: number of entries in the index of meta blocks.
        entry_count: number of entries (keys with values) in the file.
        levels: number of levels of the index; 1 if the root index refers to data blocks.
        compression: compression of every block.
    """

    load_on_open_offset: int
    root_entry_count: int
    meta_entry_count: int
    entry_count: int
    levels: int
    compression: Compression

    def encode(
        self, file_info_offset: int, entry_bytes: int, first_data_offset: int, last_data_offset: int
    ) -> bytes:
        """Return all bytes of the trailer.

        Args:
            file_info_offset: position of the file info block.
            entry_bytes: uncompressed size of all entries, in bytes.
            first_data_offset: position of the first data block; -1 if there is none.
            last_data_offset: position of the last data block; 0 if there is none.
        """
        fields = {
            _FILE_INFO_OFFSET: file_info_offset,
            _LOAD_ON_OPEN_OFFSET: self.load_on_open_offset,
            _ENTRY_BYTES: entry_bytes,
            _ROOT_ENTRIES: self.root_entry_count,
            _META_ENTRIES: self.meta_entry_count,
            _ENTRIES: self.entry_count,
            _LEVELS: self.levels,
            _FIRST_DATA_OFFSET: first_data_offset,
            _LAST_DATA_OFFSET: last_data_offset,
        }
        message = b"".join(integer_field(number, value) for number, value in fields.items())
        message += bytes_field(_COMPARATOR, _COMPARATOR_CLASS)
        message += integer_field(_CODEC, self.compression)
        body = MAGIC + delimited(message)
        return body.ljust(TRAILER_BYTES - 1, b"\x00") + bytes([MAJOR_VERSION])

    @classmethod
    def parse(cls, data: bytes, path: str, offset: int) -> Trailer:
        """Return the trailer in ``data``.

        Args:
            data: the last 4096 bytes of the file.
            path: the file, for errors.
            offset: position of ``data`` in the file.

        Raises:
            CorruptData: the trailer is invalid, or refers to bytes outside the file.
            Unsupported: the HFile has another version, is encrypted, or has a compression other
                than GZ and NONE.
        """
        if len(data) < TRAILER_BYTES or not data.startswith(MAGIC):
            raise CorruptData(path, offset, f"an HFile's trailer {MAGIC!r}", repr(data[:8]))
        _check_version(data, path)
        message = Message(data, len(MAGIC), path, offset)
        _check_not_encrypted(message, path)
        fields = message.integers()
        trailer = cls(
            fields.get(_LOAD_ON_OPEN_OFFSET, 0),
            fields.get(_ROOT_ENTRIES, 0),
            fields.get(_META_ENTRIES, 0),
            fields.get(_ENTRIES, 0),
            fields.get(_LEVELS, 0),
            _compression(fields.get(_CODEC, Compression.NONE), path),
        )
        if trailer.load_on_open_offset > offset or not 1 <= trailer.levels <= _MAX_LEVELS:
            expected = f"an index before the trailer, of 1 to {_MAX_LEVELS} levels"
            raise CorruptData(path, offset, expected, str(trailer))
        return trailer


def _check_version(data: bytes, path: str) -> None:
    major = int.from_bytes(data[-3:])
    if major != MAJOR_VERSION:
        message = f"{path} is an HFile of version {major}; only version {MAJOR_VERSION} is read"
        raise Unsupported(message)


def _check_not_encrypted(message: Message, path: str) -> None:
    if any(message.byte_strings(_ENCRYPTION_KEY)):
        text = f"{path} is an encrypted HFile, which cannot be read"
        raise Unsupported(text)


def _compression(ordinal: int, path: str) -> Compression:
    if ordinal in _READABLE:
        return Compression(ordinal)
    defined = ordinal in Compression.__members__.values()
    name = Compression(ordinal).name if defined else f"number {ordinal}"
    message = (
        f"{path} is compressed with {name}, but only "
        f"{', '.join(c.name for c in _READABLE)} can be read; compact the table with one of these"
    )
    raise Unsupported(message)
