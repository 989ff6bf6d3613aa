"""Encodes the files of the metadata table.

    log    one HFILE_DATA block with the written records, one DELETE block with the deleted keys
    base   an HFile with all records of a file group, and a bloom filter of their keys

The first log of a file group has one empty DELETE block. Files are named like data files: a log is
``.<fileId>_<instant>.log.1_<token>``, a base file is ``<fileId>_<token>_<instant>.hfile``.
Source: ``HoodieHFileDataBlock``, ``HoodieAvroHFileWriter``,
``HoodieBackedTableMetadataWriter.initializeFileGroups`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakemark.codec import bloom
from lakemark.codec.bloom import BloomFilterBuilder
from lakemark.codec.hfile import Entries, file_info, write_hfile
from lakemark.log.delete_block import encode_deletes
from lakemark.log.log_block import BlockType, HeaderKey, encode
from lakemark.metadata.record_changes import RecordChanges, stored_schema

BASE_FILE_EXTENSION = "hfile"
#: Write token of the first log of a file group.
FIRST_WRITE_TOKEN = "0-0-0"

_BLOOM_BLOCK = b"bloomFilter"
_BLOOM_KEYS_PER_ROW = 10_000

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
    if len(changes.written.keys):
        content = _hfile(changes.written, created_ms)
        blocks += encode(BlockType.HFILE_DATA, header, content)
    if len(changes.deleted):
        keys = changes.deleted.cast(pa.string())
        content = encode_deletes(keys, pa.array([partition] * len(keys), pa.string()))
        blocks += encode(BlockType.DELETE, header, content)
    return blocks


def first_log_file(instant: str) -> bytes:
    """Encode the first log of a file group.

    Args:
        instant: requested time of the instant that creates the partition.
    """
    nothing = pa.array([], pa.string())
    header = {HeaderKey.INSTANT_TIME: instant}
    return encode(BlockType.DELETE, header, encode_deletes(nothing, nothing))


def base_file(records: Entries, created_ms: int) -> bytes:
    """Encode a base file.

    Args:
        records: stored records, with keys in strictly ascending order.
        created_ms: creation time of the file, in milliseconds since 1970.
    """
    footer = _bloom_footer(records.keys)
    info = {own: footer[name] for name, own in _INFO_OF_FOOTER.items() if name in footer}
    return _hfile(records, created_ms, info, {_BLOOM_BLOCK: footer[bloom.BLOOM_FILTER]})


def _bloom_footer(keys: pa.Array) -> dict[str, bytes]:
    builder = BloomFilterBuilder(keys_per_row=_BLOOM_KEYS_PER_ROW)
    builder.add(keys)
    return {name: text.encode() for name, text in builder.footer().items()}


def _hfile(
    records: Entries,
    created_ms: int,
    info: Mapping[bytes, bytes] | None = None,
    meta_blocks: Mapping[bytes, bytes] | None = None,
) -> bytes:
    described = {file_info.SCHEMA: stored_schema().encode(), **(info or {})}
    return write_hfile(records, described, created_ms=created_ms, meta_blocks=meta_blocks or {})
