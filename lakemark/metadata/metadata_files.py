"""Encodes the files of the metadata table.

    log    an HFILE_DATA block with the written records, a DELETE block with the deleted keys
    base   an HFile with all records of a file group, and a bloom filter of their keys

The first log of a file group has one empty DELETE block. Files are named like data files: a log is
``.<fileId>_<instant>.log.1_<token>``, a base file is ``<fileId>_<token>_<instant>.hfile``.
Source: ``HoodieHFileDataBlock``, ``HoodieAvroHFileWriter``,
``HoodieBackedTableMetadataWriter.initializeFileGroups`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakemark.codec import bloom
from lakemark.codec.bloom import BloomFilterBuilder
from lakemark.codec.byte_strings import byte_strings
from lakemark.codec.hfile import Entries, HFileReader, file_info, write_hfile
from lakemark.codec.hfile.hfile_splice import splice_hfile
from lakemark.codec.hfile.hfile_writer import HFileParts, check_order
from lakemark.codec.hfile.trailer import Compression
from lakemark.errors import CorruptData, Unsupported
from lakemark.log.delete_block import encode_deletes
from lakemark.log.log_block import BlockType, HeaderKey, encode
from lakemark.metadata.record_changes import RecordChanges, stored_schema

BASE_FILE_EXTENSION = "hfile"
#: Write token of the first log of a file group.
FIRST_WRITE_TOKEN = "0-0-0"

#: The most bytes of the values in a block, before compression. Java holds the content of a block in
#: one array of at most 2 GiB, which is its limit (``hoodie.metadata.max.logfile.size``).
_MAX_BLOCK_BYTES = 1 << 30

_BLOOM_BLOCK = b"bloomFilter"
_BLOOM_KEYS_PER_ROW = 10_000

#: The bloom filter is created again if it has so many keys for each record. A few keys more do not
#: matter, because a row of the filter is never smaller.
_MOST_IN_BLOOM, _SPARE_IN_BLOOM = 2, 1_000

#: For each key in the footer of a Parquet base file, the key in an HFile's file info.
_INFO_OF_FOOTER = {
    bloom.TYPE_CODE: file_info.BLOOM_FILTER_TYPE,
    bloom.MIN_RECORD_KEY: file_info.MIN_KEY,
    bloom.MAX_RECORD_KEY: file_info.MAX_KEY,
}


def log_file(changes: RecordChanges, partition: str, instant: str, created_ms: int) -> bytes:
    """Encode a log with the changes of one file group.

    Args:
        changes: changes to the records of the file group; not empty.
        partition: partition of the metadata table that contains the file group.
        instant: requested time of the delta commit.
        created_ms: creation time of the file, in milliseconds since 1970.
    """
    assert not changes.is_empty, (partition, instant)
    header = {HeaderKey.SCHEMA: stored_schema(), HeaderKey.INSTANT_TIME: instant}
    blocks = b""
    for records in _in_blocks(changes.written):
        blocks += encode(BlockType.HFILE_DATA, header, _hfile(records, created_ms))
    if len(changes.deleted):
        keys = changes.deleted.cast(pa.string())
        content = encode_deletes(keys, pa.array([partition] * len(keys), pa.string()))
        blocks += encode(BlockType.DELETE, header, content)
    return blocks


def _in_blocks(records: Entries) -> Iterator[Entries]:
    """Divide records into blocks, mostly one."""
    for rows, _ in byte_strings(records.values).chunks(_MAX_BLOCK_BYTES):
        yield Entries(records.keys[rows], records.values[rows])


def first_log_file(instant: str) -> bytes:
    """Encode the first log of a file group.

    Args:
        instant: requested time of the instant that creates the partition.
    """
    nothing = pa.array([], pa.string())
    header = {HeaderKey.INSTANT_TIME: instant}
    return encode(BlockType.DELETE, header, encode_deletes(nothing, nothing))


@dataclass(frozen=True, slots=True)
class BaseContent:
    """The bytes of a base file, and the number of its records."""

    content: bytes
    count: int

    @classmethod
    def of(cls, records: Entries, created_ms: int) -> BaseContent:
        """Encode a base file of records that are in memory; see ``of_parts``."""
        return cls.of_parts([records], created_ms)

    @classmethod
    def of_parts(cls, parts: Iterable[Entries], created_ms: int) -> BaseContent:
        """Encode a base file.

        Args:
            parts: stored records, with keys in strictly ascending order, also from part to part.
            created_ms: creation time of the file, in milliseconds since 1970.
        """
        builder = BloomFilterBuilder(keys_per_row=_BLOOM_KEYS_PER_ROW)
        file, count = HFileParts(Compression.GZ), 0
        for part in parts:
            check_order(part)
            builder.add(part.keys)
            file.add_entries(part)
            count += len(part.keys)
        info, meta_blocks = _bloom_entries(builder)
        described = {file_info.SCHEMA: stored_schema().encode(), **info}
        return cls(file.finish(described, created_ms, meta_blocks), count)


def changed_base_file(
    base: HFileReader, changes: RecordChanges, created_ms: int, path: str
) -> BaseContent | None:
    """Encode a base file that differs from another one in few records.

    The data blocks without changes are copied. The bloom filter keeps the keys that were deleted,
    which does no harm: it may claim that a key exists. The result is None if the file must be
    written from all of its records.

    Args:
        base: the other base file.
        changes: the changed records.
        created_ms: creation time of the file, in milliseconds since 1970.
        path: the other base file, for errors.

    Raises:
        CorruptData: the other base file violates the format.
    """
    count = base.num_entries
    builder = _bloom_of(base, path)
    if builder is None or builder.key_count > _MOST_IN_BLOOM * (count + _SPARE_IN_BLOOM):
        return None
    splice = splice_hfile(base, changes.written, changes.deleted, path)
    if splice is None or splice.is_fragmented:
        return None
    if len(splice.added):
        builder.add(splice.added)
    info, meta_blocks = _bloom_entries(builder)
    described = {file_info.SCHEMA: stored_schema().encode(), **info}
    return BaseContent(splice.parts.finish(described, created_ms, meta_blocks), splice.count)


def _bloom_of(base: HFileReader, path: str) -> BloomFilterBuilder | None:
    """Continue the bloom filter of a base file; None if it has none that can be continued.

    A filter that cannot be read is created again, with the whole file.
    """
    stored, info = base.meta_block(_BLOOM_BLOCK.decode()), base.file_info
    names = (file_info.BLOOM_FILTER_TYPE, file_info.MIN_KEY, file_info.MAX_KEY)
    if stored is None or any(name not in info for name in names):
        return None
    kind, low, high = (info[name] for name in names)
    try:
        return BloomFilterBuilder.resume(stored.decode(), kind.decode(), (low, high), path)
    except (CorruptData, Unsupported, UnicodeDecodeError, ZeroDivisionError):
        return None


def _bloom_entries(builder: BloomFilterBuilder) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return the entries of the file info and the meta block that describe the keys."""
    footer = {name: text.encode() for name, text in builder.footer().items()}
    info = {own: footer[name] for name, own in _INFO_OF_FOOTER.items() if name in footer}
    return info, {_BLOOM_BLOCK: footer[bloom.BLOOM_FILTER]}


def _hfile(
    records: Entries,
    created_ms: int,
    info: Mapping[bytes, bytes] | None = None,
    meta_blocks: Mapping[bytes, bytes] | None = None,
) -> bytes:
    described = {file_info.SCHEMA: stored_schema().encode(), **(info or {})}
    return write_hfile(records, described, created_ms=created_ms, meta_blocks=meta_blocks or {})
