"""Encodes records of the partition ``files``, which lists the table's partitions and their files.

Source: ``createPartitionListRecord``, ``createPartitionFilesRecord`` of ``HoodieMetadataPayload``,
Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from lakemark.codec.varint import zigzag
from lakemark.metadata.index_keys import stored_path
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges, around_payload
from lakemark.model.file_slice import ALL_PARTITIONS

_ALL_PARTITIONS_TYPE, _FILES_TYPE = 1, 2
_END_OF_MAP = b"\x00"

#: Name and size of a file, and whether the file is deleted.
_Entry: TypeAlias = tuple[str, int, bool]


@dataclass(frozen=True, slots=True)
class FilesOfPartition:
    """Changes to the files of one partition of the table.

    Attributes:
        partition_path: path of the partition; "" if the table is not partitioned.
        sizes_bytes: sizes of the added files, all greater than 0, by file name without folders.
        removed: names of deleted files.
    """

    partition_path: str
    sizes_bytes: Mapping[str, int] = field(default_factory=dict)
    removed: Collection[str] = ()

    def __post_init__(self) -> None:
        """Refuse an empty file, and a file that is both added and deleted, as readers do."""
        assert all(size > 0 for size in self.sizes_bytes.values()), self
        assert self.sizes_bytes.keys().isdisjoint(self.removed), self


def encode_files(
    files: Iterable[FilesOfPartition],
    partitions: Iterable[str] = (),
    removed_partitions: Iterable[str] = (),
) -> RecordChanges:
    """Encode changes to the records of the partition ``files``.

    If all arguments are empty, the result is one record, which lists no partitions.

    Args:
        files: changes to the files of partitions, at most one item for each partition.
        partitions: paths of new partitions; partitions that are already listed may be included.
        removed_partitions: paths of deleted partitions; the records of their files are deleted.
    """
    removed = [stored_path(path) for path in removed_partitions]
    listing = _entries({stored_path(path): 0 for path in partitions}, removed)
    of_partitions = {
        stored_path(one.partition_path): _entries(one.sizes_bytes, one.removed) for one in files
    }
    return RecordChanges.union(
        [
            _records(
                _ALL_PARTITIONS_TYPE,
                {ALL_PARTITIONS: listing} if listing or not of_partitions else {},
            ),
            _records(_FILES_TYPE, of_partitions, removed),
        ]
    )


def _entries(sizes_bytes: Mapping[str, int], removed: Collection[str]) -> list[_Entry]:
    """Return the entries of one map, sorted by name."""
    added = [(name, size, False) for name, size in sizes_bytes.items()]
    return sorted([*added, *((name, 0, True) for name in removed)])


def _records(
    record_type: int, maps: Mapping[str, Sequence[_Entry]], removed: Collection[str] = ()
) -> RecordChanges:
    stored = [_encode_record(record_type, entries) for entries in maps.values()]
    keys = [key.encode() for key in maps]
    records = pa.array(stored, pa.large_binary())
    return RecordChanges.of(keys, records, [name.encode() for name in removed])


def _encode_record(record_type: int, entries: Sequence[_Entry]) -> bytes:
    """Encode a record with a map of files."""
    listed = [_encode_name(name) + zigzag(size) + bytes([gone]) for name, size, gone in entries]
    head = zigzag(len(listed)) if listed else b""
    before, after = around_payload(record_type, PartitionKind.FILES.payload)
    return b"".join([before, head, *listed, _END_OF_MAP, after])


def _encode_name(name: str) -> bytes:
    data = name.encode()
    return zigzag(len(data)) + data
