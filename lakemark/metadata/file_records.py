"""Records of the partition ``files``: which partitions the table has, and which files each.

Source: ``createPartitionListRecord``, ``createPartitionFilesRecord`` of ``HoodieMetadataPayload``,
Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from lakemark.metadata.column_stats.short_records import files_record
from lakemark.metadata.index_keys import stored_path
from lakemark.metadata.record_changes import RecordChanges
from lakemark.model.file_slice import ALL_PARTITIONS

_ALL_PARTITIONS_TYPE, _FILES_TYPE = 1, 2

#: Name, size and whether it is gone.
_Entry: TypeAlias = tuple[str, int, bool]


@dataclass(frozen=True, slots=True)
class FilesOfPartition:
    """What becomes of the files of one partition of the table.

    Attributes:
        partition_path: "" when the table has no partitions.
        sizes_bytes: files that are there from now on, by name, without folders; none is empty.
        removed: names of files that are gone.
    """

    partition_path: str
    sizes_bytes: Mapping[str, int] = field(default_factory=dict)
    removed: Collection[str] = ()

    def __post_init__(self) -> None:
        """Refuse what readers refuse: a file of no bytes, and one that is both."""
        assert all(size > 0 for size in self.sizes_bytes.values()), self
        assert self.sizes_bytes.keys().isdisjoint(self.removed), self


def encode_files(
    files: Iterable[FilesOfPartition],
    partitions: Iterable[str] = (),
    removed_partitions: Iterable[str] = (),
) -> RecordChanges:
    """The changes of the partition ``files``; of nothing the listing of a table without partitions.

    Args:
        files: of each partition at most once.
        partitions: paths of partitions that are there, those already known among them or not.
        removed_partitions: paths of partitions that are gone; the records of their files go, too.
    """
    removed = [stored_path(path) for path in removed_partitions]
    listing = _entries({stored_path(path): 0 for path in partitions}, removed)
    of_partitions = {
        stored_path(one.partition_path): _entries(one.sizes_bytes, one.removed) for one in files
    }
    return RecordChanges.united(
        [
            _records(
                _ALL_PARTITIONS_TYPE,
                {ALL_PARTITIONS: listing} if listing or not of_partitions else {},
            ),
            _records(_FILES_TYPE, of_partitions, removed),
        ]
    )


def _entries(sizes_bytes: Mapping[str, int], removed: Collection[str]) -> list[_Entry]:
    """Entries of one map in the order of their names."""
    there = [(name, size, False) for name, size in sizes_bytes.items()]
    return sorted([*there, *((name, 0, True) for name in removed)])


def _records(
    record_type: int, maps: Mapping[str, Sequence[_Entry]], removed: Collection[str] = ()
) -> RecordChanges:
    stored = [files_record(record_type, entries) for entries in maps.values()]
    keys = [key.encode() for key in maps]
    records = pa.array(stored, pa.large_binary())
    return RecordChanges.of(keys, records, [name.encode() for name in removed])
