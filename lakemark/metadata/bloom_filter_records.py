"""Creates records of the partition ``bloom_filters``: the bloom filters of base files.

A commit writes a record for each base file that it adds, and a clean deletes the records of the
base files that it deletes. The filters are read from the footers of the files: a filter has at
least 420 KiB in Base64, so workers would send much more to the driver than they do now. A file
without a filter has no record, as in Apache Hudi.
Source: ``createBloomFilterMetadataRecord`` of ``HoodieMetadataPayload``,
``convertMetadataToBloomFilterRecords`` of ``HoodieTableMetadataUtil``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeGuard

import pyarrow as pa

from lakemark.codec.bloom import BLOOM_FILTER, SIMPLE, TYPE_CODE
from lakemark.codec.varint import zigzag
from lakemark.metadata.index_keys import bloom_filter_key
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges, around_payload
from lakemark.model.file_slice import BaseFile
from lakemark.read.base_file import read_footer
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import Storage
from lakemark.view.file_lister import DataFile

_TYPE = 4
_NOT_DELETED = b"\x00"


class StoredFilter(NamedTuple):
    """The bloom filter of a base file, as stored: its type, and its content in Base64."""

    type_code: bytes
    content: bytes


def encode_bloom_filters(storage: Storage, files: Iterable[DataFile]) -> RecordChanges:
    """Encode the bloom filters of distinct base files; logs are ignored.

    Args:
        storage: the data table's root.
        files: data files; the footers of the base files are read.

    Raises:
        SnapshotChanged: a file no longer exists.
        CorruptData: a file is not a Parquet file.
    """
    bases = [file for file in files if has_footer(file)]
    found = request_all(storage, lambda base: read_filter(storage, base), bases)
    return encode_filters(zip(bases, found, strict=True))


def encode_filters(filters: Iterable[tuple[DataFile, StoredFilter | None]]) -> RecordChanges:
    """Encode the bloom filters of distinct files; a file without a filter has no record."""
    stored = [(file, one) for file, one in filters if one is not None]
    keys = [bloom_filter_key(file.partition_path, str(file.name)) for file, _ in stored]
    records = [_encode_record(file.name.instant, one) for file, one in stored]
    return RecordChanges.of(keys, pa.array(records, pa.large_binary()))


def delete_bloom_filters(files: Iterable[DataFile]) -> RecordChanges:
    """Encode the deletion of the bloom filters of base files; logs are ignored."""
    return delete_filters(file for file in files if has_footer(file))


def delete_filters(files: Iterable[DataFile]) -> RecordChanges:
    """Encode the deletion of the bloom filters of files of any kind."""
    keys = [bloom_filter_key(file.partition_path, str(file.name)) for file in files]
    return RecordChanges.of([], pa.array([], pa.large_binary()), keys)


def has_footer(file: DataFile) -> TypeGuard[BaseFile]:
    """Return whether a file is a Parquet base file, which may have a bloom filter."""
    return isinstance(file, BaseFile) and file.name.extension == "parquet"


def read_filter(storage: Storage, base: BaseFile) -> StoredFilter | None:
    """Read the bloom filter in the footer of a base file; None if there is none.

    Raises:
        SnapshotChanged: the file no longer exists.
        CorruptData: the file is not a Parquet file.
    """
    footer = read_footer(storage, base).metadata or {}
    content = footer.get(BLOOM_FILTER.encode())
    if content is None:
        return None
    return StoredFilter(footer.get(TYPE_CODE.encode(), SIMPLE.encode()), content)


def _encode_record(instant: str, stored: StoredFilter) -> bytes:
    before, after = around_payload(_TYPE, PartitionKind.BLOOM_FILTERS.payload)
    fields = (stored.type_code, instant.encode(), stored.content)
    return b"".join([before, *map(_encode_bytes, fields), _NOT_DELETED, after])


def _encode_bytes(value: bytes) -> bytes:
    return zigzag(len(value)) + value
