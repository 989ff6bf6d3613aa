"""Closes a new data file, and defines the status that the writer of a data file returns."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.errors import WriteConflict
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import FileGroupId
from lakemark.storage.storage import AlreadyExists, StreamingFile


class ContentMismatch(WriteConflict):
    """An earlier attempt wrote other bytes. The instant's files written so far must be deleted."""


def close_file(file: StreamingFile) -> int:
    """Close a file, which makes it visible, and return its size in bytes.

    If an earlier attempt wrote a file with the same bytes, that file is kept.

    Raises:
        ContentMismatch: an earlier attempt wrote other bytes. Between the attempts, the input has
            changed (for example, Kafka compacted the topic), or the software (for example, the
            release of Arrow). None of the attempts may be committed.
    """
    try:
        return file.close()
    except AlreadyExists as error:
        message = (
            f"{error}: another attempt read other rows or ran other software; write all files again"
        )
        raise ContentMismatch(message) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatus:
    """Numbers of a complete, visible data file, for the commit's ``WriteStat``.

    Attributes:
        size_bytes: size of the file.
        num_writes: number of rows in the file. As in Apache Hudi, deletes are not counted.
        num_deletes: number of records in delete blocks; 0 for a base file.
        num_data_blocks: number of data blocks; 0 for a base file.
        num_delete_blocks: number of delete blocks; 0 for a base file.
        column_ranges: ranges of the values in each column; None if they were not collected.
    """

    size_bytes: int
    num_writes: int
    num_deletes: int = 0
    num_data_blocks: int = 0
    num_delete_blocks: int = 0
    column_ranges: ColumnRanges | None = None

    def describe(self, group: FileGroupId, path: str) -> WriteStat:
        """Return the write stat of the file, as far as it is the same for base files and logs."""
        return WriteStat(
            file_id=group.file_id,
            path=path,
            partition_path=group.partition_path,
            num_writes=self.num_writes,
            num_deletes=self.num_deletes,
            total_write_bytes=self.size_bytes,
            file_size_in_bytes=self.size_bytes,
            column_ranges=self.column_ranges,
        )
