"""Decides how many new keys each file group of a partition receives, so that files have one size.

New keys first fill small files. The remaining keys go to new file groups, each as large as allowed.
The sizes are settings of a writer, and the table does not contain them. The defaults are those of
Apache Hudi. Source: ``UpsertPartitioner``, ``SparkUpsertDeltaCommitPartitioner`` and
``AverageRecordSizeUtils`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakemark.config.parquet_settings import ParquetSettings
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import FileSlice


@dataclass(frozen=True, slots=True)
class NewKeys:
    """A number of new keys that one file group receives.

    Attributes:
        file_slice: the slice of a small file; None for a new file group.
        count: number of keys.
    """

    file_slice: FileSlice | None
    count: int


def estimate_record_bytes(commits: Iterable[CommitMetadata], settings: ParquetSettings) -> int:
    """Return the average size of a record in the base files of the newest sufficient commit.

    In small files, a record takes many times its usual size, because each file has a Bloom filter.
    So a commit counts only if its base files are together larger than a small file.

    Args:
        commits: the metadata of completed commits, newest first.
        settings: the sizes of files.
    """
    for metadata in commits:
        stats = [stat for stat in metadata.write_stats if stat.is_base_file]
        written_bytes = sum(stat.total_write_bytes for stat in stats)
        records = sum(stat.num_writes for stat in stats)
        if records and written_bytes > settings.small_file_bytes:
            return max(1, -(-written_bytes // records))
    return settings.record_bytes


def divide_new_keys(
    count: int, small: Sequence[FileSlice], record_bytes: int, settings: ParquetSettings
) -> list[NewKeys]:
    """Divide new keys among small files and new file groups.

    Args:
        count: number of new keys.
        small: slices of small base files, in the order in which they are filled.
        record_bytes: estimated size of a record.
        settings: the sizes of files.
    """
    divided: list[NewKeys] = []
    for file_slice in small:
        assert file_slice.base is not None
        free = (settings.max_file_bytes - file_slice.base.size_bytes) // record_bytes
        if count and free > 0:
            divided.append(NewKeys(file_slice, min(free, count)))
            count -= divided[-1].count
    keys_of_a_file = max(1, settings.max_file_bytes // record_bytes)
    while count:
        divided.append(NewKeys(None, min(keys_of_a_file, count)))
        count -= divided[-1].count
    return divided
